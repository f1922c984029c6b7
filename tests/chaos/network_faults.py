"""What networks do, by toxiproxy: between Forebay and the brokers, and between clients and Forebay.

`downstream` is what comes back: brokers' answers, Forebay's responses. What toxiproxy calls a timeout is a connection
that stands and carries nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.chaos.broker_faults import killed
from tests.chaos.fault import (
    ALL_SPARED,
    BROKERS,
    BROKERS_NETWORK,
    CLIENTS_NETWORK,
    WITHOUT_BROKERS,
    Fault,
    Place,
    toxic,
)
from tests.chaos.stage import Stage
from tests.kit.toxiproxy import Stream

BOTH: tuple[Stream, ...] = ("downstream", "upstream")
THERE: tuple[Stream, ...] = ("upstream",)
BACK: tuple[Stream, ...] = ("downstream",)
EVERY_BROKER = (0, 1, 2)

Streams = tuple[Stream, ...]


def _brokers(
    title: str, nodes: tuple[int, ...], name: str, streams: Streams = BACK, seconds: float = 3.0, **attributes: int
) -> Fault:
    @contextmanager
    def during(stage: Stage, topic: str) -> Iterator[None]:
        with toxic(stage, [stage.broker_hops[node] for node in nodes], name, streams, **attributes):
            yield

    spares = tuple(node for node in ALL_SPARED if node not in nodes)
    return Fault(title, frozenset[Place]({BROKERS_NETWORK}), during, seconds, spares=spares)


def _clients(title: str, name: str, streams: Streams = BACK, seconds: float = 3.0, **attributes: int) -> Fault:
    @contextmanager
    def during(stage: Stage, topic: str) -> Iterator[None]:
        with toxic(stage, stage.client_hops, name, streams, **attributes):
            yield

    return Fault(title, frozenset[Place]({CLIENTS_NETWORK}), during, seconds, spares=ALL_SPARED)


@contextmanager
def _cut_off(stage: Stage, topic: str) -> Iterator[None]:
    stage.toxiproxy.cut(stage.broker_hops[1])
    try:
        yield
    finally:
        stage.toxiproxy.mend(stage.broker_hops[1])


@contextmanager
def _closed_slowly(stage: Stage, topic: str) -> Iterator[None]:
    """The toxic delays only the news that a connection is closed, so a broker closes its connections: it dies."""
    with toxic(stage, list(stage.broker_hops.values()), "slow_close", BOTH, delay=2000), killed(stage, [2]):
        yield


# Longer than any of the clients' timeouts and Forebay's own, so that everybody gives up.
SILENCE = 5.5

NETWORK_FAULTS = (
    _brokers("latency, one broker 300 ms", (0,), "latency", latency=300),
    _brokers("jitter, all brokers 150 ± 150 ms", EVERY_BROKER, "latency", BOTH, latency=75, jitter=75),
    replace(  # toxiproxy holds what brokers say until it resets the connection
        _brokers("reset_peer, brokers' connections live 300 ms", EVERY_BROKER, "reset_peer", timeout=300),
        touches=WITHOUT_BROKERS | {BROKERS_NETWORK},
    ),
    _brokers("half-open, one broker's answers vanish", (1,), "timeout", seconds=SILENCE, timeout=0),
    _brokers("half-open, requests to one broker vanish", (1,), "timeout", THERE, seconds=SILENCE, timeout=0),
    replace(
        _brokers("half-open, all brokers' answers vanish", EVERY_BROKER, "timeout", seconds=SILENCE, timeout=0),
        touches=WITHOUT_BROKERS | {BROKERS_NETWORK},
    ),
    _brokers("bandwidth, 8 KB/s to one broker", (0,), "bandwidth", THERE, rate=8),
    _brokers("slicer, brokers, 40 bytes", EVERY_BROKER, "slicer", BOTH, average_size=40, size_variation=20, delay=50),
    Fault(
        "slow_close by 2 s, one broker killed",
        frozenset[Place]({BROKERS_NETWORK, BROKERS}),
        _closed_slowly,
        spares=(0, 1),  # their connections are not closed
    ),
    Fault("one broker refuses connections", frozenset[Place]({BROKERS_NETWORK}), _cut_off, spares=(0, 2)),
    _clients("jitter, clients 50 ± 50 ms", "latency", BOTH, latency=50, jitter=50),
    _clients("reset_peer, clients' connections live 300 ms", "reset_peer", timeout=300),
    _clients("half-open, responses to clients vanish", "timeout", seconds=SILENCE, timeout=0),
    _clients("bandwidth, 8 KB/s from a client", "bandwidth", THERE, rate=8),
    _clients("slicer, clients, 40 bytes", "slicer", BOTH, average_size=40, size_variation=20, delay=50),
)
