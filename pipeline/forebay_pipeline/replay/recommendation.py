"""Which of the replayed settings to take: the rule, the words for it, and the TOML file with its evidence.

In: the Results of a replay, and which of them the present settings are. Out: an index with a reason; a text that
`forebay config --config FILE` accepts. Nothing is raised.

The rule. Of the settings whose average latency is within NEAR of the best average, that with the lowest p99; of those
that share it (to the width of a bucket, 2 %), the one with the fewest requests to brokers. The present settings stay
unless it is clearly better: its average or its p99 lower by CLEARLY, and neither of them higher by as much.

    setting     average   p99       best average 5.0, within a tenth: b, c
    a present     8.0      20
    b             5.0      30
    c             5.4      18       lowest p99: c; its average is 33 % below the present one, its p99 10 %: c
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from forebay_pipeline.replay.histogram import GROWTH
from forebay_pipeline.replay.results import ReplayReport, Result
from forebay_pipeline.replay.settings import Variant, toml_value

NEAR: Final = 0.10
CLEARLY: Final = 0.10

_MOST_LINES: Final = 20


class Recommendation(NamedTuple):
    chosen: int
    reason: str


def recommend(results: Sequence[Result], present: int) -> Recommendation:
    best_average = min(result.average_ms for result in results)
    near = [index for index, result in enumerate(results) if result.average_ms <= best_average * (1 + NEAR)]
    least_p99 = min(results[index].p99_ms for index in near)
    level = [index for index in near if results[index].p99_ms <= least_p99 * GROWTH]
    # Where even that is the same, the present settings, then what comes first in the grid.
    found = min(level, key=lambda index: (results[index].requests, index != present, index))
    if found == present:
        return Recommendation(present, "The present settings are the best of those tried.")
    old, new = results[present], results[found]
    if _clearly_better(new, old):
        return Recommendation(
            found,
            f"Average {_change(old.average_ms, new.average_ms)}, p99 {_change(old.p99_ms, new.p99_ms)}:"
            f" the lowest p99 of those whose average is within {NEAR:.0%} of the best.",
        )
    return Recommendation(
        present,
        f"The present settings stay: the best of the others has average {_change(old.average_ms, new.average_ms)},"
        f" p99 {_change(old.p99_ms, new.p99_ms)}, which is not better by {CLEARLY:.0%} without being worse as much.",
    )


def _clearly_better(new: Result, old: Result) -> bool:
    pairs = ((new.average_ms, old.average_ms), (new.p99_ms, old.p99_ms))
    return any(ours <= theirs * (1 - CLEARLY) for ours, theirs in pairs) and all(
        ours < theirs * (1 + CLEARLY) for ours, theirs in pairs
    )


def _change(old: float, new: float) -> str:
    return f"{old:.2f} -> {new:.2f} ms"


def as_toml(report: ReplayReport, variants: Sequence[Variant]) -> str:
    """The recommended values of what was tried or given, and why, in comments."""
    chosen = report.results[report.recommended]
    settings = variants[report.recommended].settings
    comments = [
        "Recommended by `forebay-pipeline replay`; `forebay config --config FILE` checks it.",
        f"Evidence: {report.records:,} records ({report.source}, {report.seconds:,.0f} s), replayed with"
        f" {len(report.results)} settings, seed {report.seed}. Simulated from receive to acknowledgement, ms:",
        *_table(report),
        report.reason,
        *(f"Assumed: {line}" for line in report.assumed),
    ]
    if report.measured is not None:
        had = report.measured
        comments.insert(2, f"measured: average {had.average_ms:.2f}, p50 {had.p50_ms:.2f}, p99 {had.p99_ms:.2f}")
    values = [f'"{name}" = {toml_value(settings, name)}' for name in chosen.settings]
    return "\n".join([*(f"# {line}" for comment in comments for line in comment.splitlines()), "", *values, ""])


def _table(report: ReplayReport) -> list[str]:
    """The best by average, the present and the recommended ones among them."""
    order = sorted(range(len(report.results)), key=lambda index: report.results[index].average_ms)
    shown = order[:_MOST_LINES] + [i for i in (report.present, report.recommended) if i not in order[:_MOST_LINES]]
    return [_line(report, index) for index in dict.fromkeys(shown)]


def _line(report: ReplayReport, index: int) -> str:
    result = report.results[index]
    marks = [name for name in ("recommended", "present") if getattr(report, name) == index]
    words = " ".join(f"{name}={value}" for name, value in result.settings.items())
    tail = f"  <- {', '.join(marks)}" if marks else ""
    return (
        f"  average {result.average_ms:.2f}, p50 {result.p50_ms:.2f}, p99 {result.p99_ms:.2f},"
        f" {result.batch_records:.1f} records a batch, {result.requests:,} requests: {words}{tail}"
    )
