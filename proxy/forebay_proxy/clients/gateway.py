"""What a client's connection needs of its process: how it is joined to everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from forebay_proxy.clients.opaque_connection import OpaqueConnection


class Gateway(Protocol):
    """How a connection reaches its broker."""

    def translate(self, advertised_host: str, node_id: int, host: str, port: int) -> tuple[str, int] | None: ...

    async def connect(self, node_id: int | None, protocol: OpaqueConnection) -> None:
        """Connect to a broker (None: to any). Raises OSError."""

    def produce_answered(self, response: bytes, version: int) -> None:
        """A broker's answer to untouched records: what it says of leaders holds for everybody. Raises Malformed."""

    def takes(self, api_key: int, version: int) -> bool:
        """Whether brokers take such requests, as far as is known."""

    def topics_changed(self) -> None:
        """A client has had topics made, ended or moved."""

    def api_versions(self, node_id: int | None, version: int, ready: Callable[[bytes | None], None]) -> None:
        """A broker's ApiVersions response, cut to what is understood; None: no broker answers."""
