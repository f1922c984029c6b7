"""What a running Forebay holds: memory of records, connections, tasks, file descriptors.

    settled = footprint(forebay)           # before: at rest, and after a first load
    …
    wait_until(lambda: not footprint(forebay).beyond(settled), 30, "…")

At rest it holds no records and no client; connections to brokers stay, at most as many as it had.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import Self

from tests.kit.children import children
from tests.kit.forebay import ForebayProcess


@dataclass(frozen=True, slots=True)
class Footprint:
    held_bytes: int
    queued_bytes: int
    queued_batches: int
    in_flight_requests: int
    memory_waiters: int
    queued_request_bytes: int
    client_connections: int
    upstream_connections: int
    tasks: int
    file_descriptors: int

    def beyond(self, settled: Footprint) -> dict[str, tuple[int, int]]:
        """What there is more of, name → (now, settled)."""
        pairs = {field.name: (getattr(self, field.name), getattr(settled, field.name)) for field in fields(self)}
        return {name: (now, before) for name, (now, before) in pairs.items() if now > before}

    @property
    def without_connections(self) -> Self:
        """The same without those to brokers, each of which is a file descriptor."""
        connections = self.upstream_connections
        return replace(self, upstream_connections=0, file_descriptors=self.file_descriptors - connections)

    @property
    def at_rest(self) -> bool:
        held = self.held_bytes or self.queued_batches or self.in_flight_requests or self.queued_request_bytes
        return not (held or self.client_connections)


def footprint(forebay: ForebayProcess) -> Footprint:
    """Of a Forebay, with all its processes."""
    now = forebay.metrics()

    def level(name: str) -> int:
        found = [value for sample, value in now.items() if sample.partition("{")[0] == f"forebay_{name}"]
        assert found, f"there is no forebay_{name}"
        return int(sum(found))

    return Footprint(
        held_bytes=level("buffer_memory_total_bytes") - level("buffer_memory_available_bytes"),
        queued_bytes=level("queued_bytes"),
        queued_batches=level("queued_batches"),
        in_flight_requests=level("in_flight_requests"),
        memory_waiters=level("buffer_memory_waiters"),
        queued_request_bytes=level("queued_request_bytes"),
        client_connections=level("open_connections"),
        upstream_connections=level("upstream_connections"),
        tasks=level("tasks"),
        file_descriptors=sum(map(descriptors, (forebay.pid, *children(forebay.pid)))),
    )


def descriptors(pid: int) -> int:
    """How many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))
