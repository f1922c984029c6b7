"""How far a replay's numbers can be trusted: which are predictions, and which are good for ranking only.

In: results, and what the proxy measured. Out: the results marked, and sentences.

What was simulated with the present settings can be compared with what the proxy measured: average, p50 and p99 within
FAR of it, and they are predictions. Nobody has measured the other settings on the same traffic. Where somebody did
(docs/performance.md, l: three partitioners, each replayed from the journals of the other two), 6 of 18 numbers were off
by more than that: clients that wait for answers would have sent at other times. So these are for ranking only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from forebay_pipeline.replay.intervals import Interval
from forebay_pipeline.replay.results import FAR, Measured, ReplayReport, Result


def checked(made: Result, had: Measured | None) -> dict[str, float]:
    """Simulated ÷ measured, by name; empty where nothing was measured."""
    if had is None:
        return {}
    pairs = (("average", made.average_ms, had.average_ms), ("p50", made.p50_ms, had.p50_ms))
    return {name: ours / theirs for name, ours, theirs in (*pairs, ("p99", made.p99_ms, had.p99_ms)) if theirs}


def marked(results: Sequence[Result], present: int, had: Measured | None) -> list[Result]:
    """The results with `ranking_only` set."""
    ratios = checked(results[present], had)
    predicted = bool(ratios) and all(abs(ratio - 1) <= FAR for ratio in ratios.values())
    return [
        msgspec.structs.replace(result, ranking_only=not (predicted and index == present))
        for index, result in enumerate(results)
    ]


def trusted(report: ReplayReport) -> Iterator[str]:
    """Sentences: what is for ranking only, and how sure the recommendation is."""
    only = [result.ranking_only for result in report.results]
    if all(only):
        yield f"All latencies are for ranking only: they may be off by more than {FAR:.0%}."
    elif any(only):
        yield (
            f"Latencies of other settings than the present ones are for ranking only: they may be off by more than"
            f" {FAR:.0%}."
        )
    best = report.results[report.recommended].intervals
    if report.certainty is None or best is None:
        return
    yield (
        f"95 % intervals, over slices of the time, of the recommended settings: average {best.average_ms.low:.2f} to"
        f" {best.average_ms.high:.2f} ms, p99 {best.p99_ms.low:.2f} to {best.p99_ms.high:.2f} ms. Traffic drawn anew"
        f" from these slices leads to the same recommendation in {report.certainty:.0%} of the draws."
    )


def within(interval: Interval) -> str:
    """4.90–5.60"""
    return f"{interval.low:,.2f}–{interval.high:,.2f}"


def average_ms(result: Result) -> str:
    """5.20 (4.90–5.60), or without an interval 5.20"""
    sure = f" ({within(result.intervals.average_ms)})" if result.intervals is not None else ""
    return f"{result.average_ms:,.2f}{sure}"


def p99_ms(result: Result) -> str:
    """As average_ms."""
    sure = f" ({within(result.intervals.p99_ms)})" if result.intervals is not None else ""
    return f"{result.p99_ms:,.2f}{sure}"
