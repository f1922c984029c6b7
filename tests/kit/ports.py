"""Free ports on loopback, from below the range that the kernel lends to outgoing connections.

A port asked from the kernel (bind to 0) may be lent to somebody's outgoing connection before the server that it is
meant for binds it; one from this range can only be lost to another server. A port is given again by this process only
when half of the range has been given since, and pytest's workers, which run side by side, each have a part of the range
to themselves; so have runs of pytest beside each other, by FOREBAY_TEST_PORTS=FIRST-LAST.
"""

from __future__ import annotations

import os
import random
import socket

LOOPBACK = "127.0.0.1"


def _share_of(ports: range) -> range:
    """gw0 and gw1 of two workers: a half each."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = len(ports) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return ports[worker * size : (worker + 1) * size]


_first, _last = map(int, os.environ.get("FOREBAY_TEST_PORTS", "12000-29999").split("-"))
_RANGE = _share_of(range(_first, _last + 1))
_given: dict[int, None] = {}
"""Those given last, the oldest first."""
_rng = random.Random()  # of its own: Hypothesis seeds the shared one, the same in all workers


def free_port() -> int:
    return free_run(1)


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


def free_run(count: int) -> int:
    """The first of `count` consecutive free ports."""
    while len(_given) > len(_RANGE) // 2:
        del _given[next(iter(_given))]
    for _ in range(1_000):
        first = _rng.choice(_RANGE[: len(_RANGE) - count + 1])
        run = range(first, first + count)
        if _given.keys().isdisjoint(run) and all(map(_is_free, run)):
            _given.update(dict.fromkeys(run))
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
