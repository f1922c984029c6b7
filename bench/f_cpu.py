"""f. CPU a MB in the proxy, and records/s at 1, 10 and 100 connections, beside other proxies.

All ways lead to the same sink broker. A request is a batch of 512-byte records of up to 16 KB (Produce v9, acks=1), or
a Fetch v4 that is answered by as much; Forebay also gets what the others do not tell apart: requests that no policy
needs, and idempotent batches, which it passes on untouched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, NamedTuple

from bench.others import WARM_UP, installed
from bench.report import Section, Table
from bench.wire_frames import Kind, records_in
from bench.wire_load import Load, Outcome, offer
from bench.wired import codecs, forebay, forebay_of_workers, relay, sink
from tests.kit.children import children

SIZE: Final = 16_384
VALUE: Final = 512
DEPTH: Final = 5
CONNECTIONS: Final = (1, 10, 100)
WORKERS: Final = (2, 4)
TARGETS: Final[dict[Kind, float]] = {"opaque": 1, "fetch": 1, "produce": 3}
"""ms of CPU a MB, compiled."""
PATHS: Final[dict[Kind, str]] = {
    "opaque": "opaque requests of 16 KB",
    "fetch": "opaque responses of 16 KB (Fetch)",
    "idempotent": "idempotent batches of 16 KB, untouched",
    "produce": "batches of 16 KB, opened and merged",
}


class Way(NamedTuple):
    """Where a load goes. `pids`: whose CPU is told; none directly."""

    port: int
    pids: tuple[int, ...]
    warm_up: float


def run(short: bool) -> Section:
    seconds = 2.0 if short else 10.0
    with sink() as broker:
        with _forebay(broker) as way:
            paths = [_path(kind, _offered(way, kind, 10, seconds)) for kind in PATHS]
        found = {name: _way(start, seconds) for name, start in _ways(broker).items()}
    what = (
        f"Each load {seconds:.0f} s on connections with {DEPTH} requests under way, the broker a sink that answers at "
        "once, load and sink processes of their own; one worker thread each proxy, where no more are named. CPU is "
        "the proxy's, user and system; a MB is 10⁶ bytes of batches. A bare relay passes bytes on and reads nothing in "
        "them (`bench/wire_relay.py`): it says how fast the machine is. Workers beyond the cores are judged by CPU "
        f"alone. Forebay's codecs: {codecs()}."
    )
    speeds = [
        [name, *(f"{_records(outcome):,.0f}" for outcome in produced), _ms_a_mb(produced[1]), _ms_a_mb(fetched)]
        for name, (produced, fetched) in found.items()
    ]
    head = ["", *(f"records/s, {count} conn." for count in CONNECTIONS), "CPU ms/MB produced", "CPU ms/MB fetched"]
    return Section(
        "f",
        "CPU a MB, and other proxies",
        [
            what,
            "Forebay, 10 connections:",
            Table(["", "µs a request", "ms a MB", "target", "requests/s"], paths),
            "Produce at three numbers of connections, Fetch at 10; CPU at 10 connections:",
            Table(head, speeds),
        ],
    )


def _offered(way: Way, kind: Kind, connections: int, seconds: float) -> Outcome:
    load = Load(way.port, kind, SIZE, connections, DEPTH, seconds, VALUE, way.warm_up, way.pids)
    return offer(load)


def _path(kind: Kind, outcome: Outcome) -> list[object]:
    us = 1e6 * outcome.cpu / outcome.requests
    target = TARGETS.get(kind)
    told = "" if target is None else f"≤ {target:g}: {'met' if us * 1e3 / SIZE <= target else 'missed'}"
    return [PATHS[kind], f"{us:.1f}", _ms_a_mb(outcome), told, f"{outcome.rate:,.0f}"]


def _way(start: AbstractContextManager[Way], seconds: float) -> tuple[list[Outcome], Outcome]:
    with start as way:
        produced = [_offered(way, "produce", count, seconds) for count in CONNECTIONS]
        return produced, _offered(way, "fetch", 10, seconds)


def _records(outcome: Outcome) -> float:
    return outcome.rate * records_in(SIZE, VALUE)


def _ms_a_mb(outcome: Outcome) -> str:
    return f"{1e9 * outcome.cpu / (outcome.requests * SIZE):.2f}" if outcome.cpu else "–"


def _ways(broker: int) -> dict[str, AbstractContextManager[Way]]:
    others = {name: _other(name, broker) for name in installed()}
    ours = {f"Forebay, {count} workers": _workers(broker, count) for count in WORKERS}
    return {
        "directly": _directly(broker),
        "a bare relay": _relay(broker),
        "Forebay": _forebay(broker),
        **ours,
        **others,
    }


@contextmanager
def _directly(broker: int) -> Iterator[Way]:
    yield Way(broker, (), 1.0)


@contextmanager
def _relay(broker: int) -> Iterator[Way]:
    with relay(broker) as (port, pid):
        yield Way(port, (pid,), 1.0)


@contextmanager
def _forebay(broker: int) -> Iterator[Way]:
    with forebay(broker) as proxy:
        yield Way(proxy.node_port(0), (proxy.pid,), 1.0)


@contextmanager
def _workers(broker: int, count: int) -> Iterator[Way]:
    with forebay_of_workers(broker, count) as proxy:
        yield Way(proxy.node_port(0), (proxy.pid, *children(proxy.pid)), 1.0)


@contextmanager
def _other(name: str, broker: int) -> Iterator[Way]:
    with installed()[name]({0: broker}) as proxy:
        yield Way(proxy.node_ports[0], (proxy.pid,), WARM_UP[name])
