"""i. What clients that mean harm cost one that does not: its requests' time, with them there and without them.

One honest connection, 500 produce requests/s of 1 KB. Each attack stands between two measurements without any, so that
the machine's own drift can be seen beside what the attack costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from bench.e_added_latency import RATE, Line, over
from bench.report import Section, Table
from bench.wire_frames import frames
from bench.wire_hostile import ENDLESS, GARBAGE_A_SECOND, SLOW, Kind, hostile
from bench.wire_load import percentile
from bench.wired import codecs, forebay, sink
from tests.kit.crowd import Crowd

CROWD: Final = 10_000
ATTACKS: Final[dict[Kind, str]] = {
    "slow": f"{SLOW:,} connections, each a byte of a request a second",
    "garbage": f"{GARBAGE_A_SECOND} connections a second that send no requests",
    "endless": f"{ENDLESS} connections that send requests of 50 MB without end, as fast as they are read",
}


def run(short: bool) -> Section:
    seconds = 2 if short else 15
    with sink() as broker, forebay(broker) as proxy:
        port = proxy.node_port(0)
        honest = Line(port)
        rows = [_row("nobody", nullcontext(), honest, seconds)]
        for kind, what in ATTACKS.items():
            rows.append(_row(what, hostile(kind, port), honest, seconds))
            rows.append(_row("nobody", nullcontext(), honest, seconds))
        rows.append(_row(f"{CROWD:,} connections that say nothing", _crowd(port), honest, seconds))
        rows.append(_row("nobody", nullcontext(), honest, seconds))
        honest.close()
    what = (
        f"One honest connection through Forebay, {RATE} produce requests/s of 1 KB for {seconds} s each; microseconds. "
        "The others run in a process of their own on the same two cores; what `endless` costs is mostly their own and "
        f"the system's work of moving bytes. Codecs: {codecs()}."
    )
    return Section("i", "Hostile clients", [what, Table(["beside it", "p50", "p99", "longest"], rows)])


@contextmanager
def _crowd(port: int) -> Iterator[None]:
    with Crowd(port, CROWD) as crowd:
        crowd.start()
        yield


def _row(what: str, others: AbstractContextManager[None], honest: Line, seconds: int) -> list[object]:
    with others:
        (waits,) = over([honest], frames("produce", 1_024, 900), seconds * RATE)
    return [what, f"{percentile(waits, 0.5):,.0f}", f"{percentile(waits, 0.99):,.0f}", f"{waits[-1]:,.0f}"]
