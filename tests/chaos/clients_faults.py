"""Clients that behave badly beside a load that behaves well: the load must not notice, and nothing may stay behind."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle
from time import monotonic

from tests.chaos.fault import ALL_SPARED, CLIENTS, Fault
from tests.chaos.stage import Stage
from tests.kit.crowd import Crowd
from tests.kit.ports import LOOPBACK
from tests.kit.wire import batch, echo, keyed, metadata, null_key, produce

STORM = 2_000
IMPATIENCE = 5.0
_UNREAD = "never-read"
"""The topic of those that do not read."""


def _connect(port: int) -> socket.socket:
    return socket.create_connection((LOOPBACK, port), timeout=IMPATIENCE)


@contextmanager
def _with_a_topic_of_theirs(stage: Stage) -> Iterator[None]:
    stage.create_topic(_UNREAD)
    try:
        yield
    finally:
        stage.delete_topic(_UNREAD)


@contextmanager
def never_reading(stage: Stage, topic: str) -> Iterator[None]:
    """Clients that ask for metadata and send records for as long as they are read, and read no answer."""
    asked = metadata(1, topic) * 200 + produce(2, (_UNREAD, 0, batch(null_key("never read"))), acks=0) + echo(3) * 200
    with ExitStack() as stack:
        for port in [*map(stage.forebay.node_port, stage.nodes), stage.forebay.port] * 5:
            client = stack.enter_context(_connect(port))
            client.settimeout(0.05)
            until = monotonic() + 0.15
            with suppress(OSError):  # it is not read any more
                while monotonic() < until:
                    client.sendall(asked)
        yield


@contextmanager
def dying_in_mid_frame(stage: Stage, topic: str) -> Iterator[None]:
    """Clients that leave with half of a request sent: to be gathered, to be cut through, and of its size alone."""
    whole = produce(1, (topic, 0, batch(keyed("half" * 5_000)))), echo(2, bytes(20_000)), metadata(3, topic)
    halves = [frame[:length] for frame in whole for length in (len(frame) // 2, 9, 3)]
    over = threading.Event()

    def die() -> None:
        for number, half in enumerate(cycle(halves)):
            with suppress(OSError), _connect(stage.forebay.node_port(stage.nodes[number % len(stage.nodes)])) as client:
                client.sendall(half)
                if number % 2:  # a reset instead of an orderly end
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if over.wait(0.005):
                return

    dying = threading.Thread(target=die)
    dying.start()
    try:
        yield
    finally:
        over.set()
        dying.join()


@contextmanager
def storm(stage: Stage, topic: str) -> Iterator[None]:
    """All connect at once, ask for metadata, and leave without having read it."""
    with Crowd(stage.forebay.port, STORM, metadata(1, topic)) as crowd:
        crowd.start()
        assert crowd.count == STORM
        yield


CLIENTS_FAULTS = (
    Fault(
        "20 clients never read",
        frozenset({CLIENTS}),
        never_reading,
        around=_with_a_topic_of_theirs,
        spares=ALL_SPARED,
    ),
    Fault("clients die in mid-frame", frozenset({CLIENTS}), dying_in_mid_frame, spares=ALL_SPARED),
    Fault(f"{STORM:,} clients connect at once", frozenset({CLIENTS}), storm, seconds=1.0, spares=ALL_SPARED),
)
