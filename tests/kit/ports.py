"""Free ports on loopback, from below the range that the kernel lends to outgoing connections.

A port asked from the kernel (bind to 0) may be lent to somebody's outgoing connection before the server that it is
meant for binds it; one from this range can only be lost to another server. Ports once given are not given again by
this process.
"""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
_RANGE = range(12_000, 30_000)
_given: set[int] = set()


def free_port() -> int:
    return free_run(1)


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


def free_run(count: int) -> int:
    """The first of `count` consecutive free ports."""
    for _ in range(1_000):
        first = random.choice(_RANGE)
        run = range(first, first + count)
        if _given.isdisjoint(run) and all(map(_is_free, run)):
            _given.update(run)
            return first
    raise RuntimeError(f"no {count} consecutive free ports in {_RANGE}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0
