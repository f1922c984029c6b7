"""q. What watching the page costs those who produce: two Forebays in turns, one of them watched by five browsers.

One connection to each, as in e: a request to the Forebay that nobody watches, a fraction of a millisecond later the
same to the other, in any order. Browsers take CPU of this machine, which on people's desks they would not; both meet
it. Forebay has one process, so that the page is served by the event loop of the data path.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from time import monotonic
from typing import Final

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


def run(short: bool) -> Section:
    seconds = 2 if short else 60
    with ExitStack() as stack:
        broker = stack.enter_context(sink())
        both = [stack.enter_context(forebay(broker)) for _ in range(2)]
        lines = [Line(each.node_port(0)) for each in both]
        rows = [_row("nobody watches", both, lines, seconds)]
        for _ in range(WATCHERS):  # a browser each: tabs of one share a stream
            page = stack.enter_context(Browser()).visit(both[1].admin_url, width=1400)
            page.until(LIVE)
        rows.append(_row(f"{WATCHERS} watch the second", both, lines, seconds))
        for line in lines:
            line.close()
    what = (
        f"{RATE} Produce requests/s of 1 KB to each of two Forebays for {seconds} s, in turns, one connection each; "
        f"first nobody watches, then {WATCHERS} browsers (Chromium) show the second one's first screen. Microseconds "
        "from sending a request to its answer; milliseconds of CPU a second. The broker is a sink that answers "
        f"at once; all share the machine. Codecs: {codecs()}."
    )
    shares = [f"{which} p{100 * share:.0f}" for share in SHARES for which in ("first", "second")]
    return Section(
        "q",
        "Five people watch the page",
        [what, Table(["", *shares, "change of p99", "CPU of the first", "of the second"], rows)],
    )


def _row(name: str, both: Sequence[ForebayProcess], lines: Sequence[Line], seconds: int) -> list[object]:
    began, before = monotonic(), [cpu_seconds([each.pid]) for each in both]
    found = over(lines, frames("produce", SIZE, VALUE), seconds * RATE)
    took = monotonic() - began
    cpu = [1000 * (cpu_seconds([each.pid]) - then) / took for each, then in zip(both, before, strict=True)]
    numbers = [[percentile(waits, share) for waits in found] for share in SHARES]
    first, second = numbers[-1]
    waits = [f"{number:,.0f}" for pair in numbers for number in pair]
    return [name, *waits, f"{second / first - 1:+.1%}", *(f"{each:,.0f}" for each in cpu)]
