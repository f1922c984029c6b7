"""q. What watching the page costs those who produce: two Forebays in turns, the second of which five people watch.

One connection to each, as in e: a request to the Forebay that nobody watches, a fraction of a millisecond later the
same to the other, in any order. For some seconds it is watched, for as long it is not, and so on: what else changes on
the machine meets both. Whoever watches asks for what the page asks for and draws nothing. With browsers, which draw on
the same two cores at the moment at which the second has told them something, it is measured as well; on people's desks
they would not. Forebay has one process, so that the page is served by the event loop of the data path.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import fmean, stdev
from time import monotonic
from typing import Final, NamedTuple

from bench.e_added_latency import RATE, Line, over
from bench.report import Section, Table
from bench.wire_frames import frames
from bench.wire_load import cpu_seconds, percentile
from bench.wired import codecs, forebay, sink
from tests.kit.browser import Browser
from tests.kit.forebay import ForebayProcess

WATCHERS: Final = 5
SIZE: Final = 1_024
VALUE: Final = 900
SHARES: Final = (0.5, 0.9, 0.99)
LIVE: Final = "document.querySelector('.live.live') && !!document.querySelector('main h1')"


class Block(NamedTuple):
    """Some seconds: microseconds of each request to the first and the second, ascending; ms of CPU a second of each."""

    waits: Sequence[Sequence[float]]
    cpu: Sequence[float]

    @property
    def p99(self) -> float:
        """How many times that of the first the second's is."""
        first, second = (percentile(waits, 0.99) for waits in self.waits)
        return second / first


def run(short: bool) -> Section:
    turns, seconds = (2, 2) if short else (40, 15)
    with ExitStack() as stack:
        broker = stack.enter_context(sink())
        both = [stack.enter_context(forebay(broker)) for _ in range(2)]
        lines = [stack.enter_context(Line(each.node_port(0))) for each in both]
        alone, watched, drawn = [], [], []
        for _ in range(turns):
            alone.append(_block(both, lines, seconds))
            with _watching(both[1].admin_url):
                watched.append(_block(both, lines, seconds))
        for _ in range(WATCHERS):  # a browser each: tabs of one share a stream
            page = stack.enter_context(Browser()).visit(both[1].admin_url, width=1400)
            page.until(LIVE)
        drawn = [_block(both, lines, seconds) for _ in range(max(2, turns // 4))]
    what = (
        f"{RATE} Produce requests/s of 1 KB to each of two Forebays, in turns, one connection each; {turns} times "
        f"{seconds} s while nobody watches and {seconds} s while {WATCHERS} ask the second for what its page asks for "
        f"(`bench/watchers.py`); then {WATCHERS} browsers (Chromium) show it, which draw on the same two cores. Means "
        "of all turns: microseconds from sending a request to its answer; milliseconds of CPU a second. The change is "
        "how much more the second's p99 is, beside the first's, than while nobody watched, ± its standard error. The "
        f"broker is a sink that answers at once; all share the machine. Codecs: {codecs()}."
    )
    shares = [f"{which} p{100 * share:.0f}" for share in SHARES for which in ("first", "second")]
    rows = [
        _row("nobody watches", alone, alone),
        _row(f"{WATCHERS} watch the second", watched, alone),
        _row(f"{WATCHERS} browsers here do", drawn, alone),
    ]
    head = ["", *shares, "change of the second's p99", "CPU of the first", "of the second"]
    return Section("q", "Five people watch the page", [what, Table(head, rows)])


@contextmanager
def _watching(url: str) -> Iterator[None]:
    words = [sys.executable, "-m", "bench.watchers", url, str(WATCHERS)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watchers:
        assert watchers.stdout is not None
        try:
            if not watchers.stdout.readline():
                raise RuntimeError("nobody could watch")
            yield
        finally:
            watchers.kill()


def _block(both: Sequence[ForebayProcess], lines: Sequence[Line], seconds: int) -> Block:
    began, before = monotonic(), [cpu_seconds([each.pid]) for each in both]
    waits = over(lines, frames("produce", SIZE, VALUE), seconds * RATE)
    took = monotonic() - began
    cpu = [1000 * (cpu_seconds([each.pid]) - then) / took for each, then in zip(both, before, strict=True)]
    return Block(waits, cpu)


def _row(name: str, blocks: Sequence[Block], usual: Sequence[Block]) -> list[object]:
    waits = [
        f"{fmean(percentile(block.waits[which], share) for block in blocks):,.0f}"
        for share in SHARES
        for which in (0, 1)
    ]
    cpu = [f"{fmean(block.cpu[which] for block in blocks):,.0f}" for which in (0, 1)]
    return [name, *waits, "" if blocks is usual else _change(blocks, usual), *cpu]


def _change(blocks: Sequence[Block], usual: Sequence[Block]) -> str:
    found, without = [block.p99 for block in blocks], [block.p99 for block in usual]
    mean = fmean(without)
    error = (stdev(found) ** 2 / len(found) + stdev(without) ** 2 / len(without)) ** 0.5
    return f"{fmean(found) / mean - 1:+.1%} ± {error / mean:.1%}"
