"""Which of the replayed settings to use: the rule, the reason, and a TOML file with the evidence.

The rule. Of the settings whose average latency is within NEAR of the best average, take the one with the lowest p99; of
those that share it (to the width of a bucket, 2 %), the one with the fewest requests to brokers. The present settings
stay unless that one is clearly better: average or p99 lower by CLEARLY, and neither higher by as much.

    setting     average   p99       best average 5.0, within a tenth: b, c
    a present     8.0      20
    b             5.0      30
    c             5.4      18       lowest p99: c; its average is 33 % below the present one, its p99 10 %: c
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from forebay_pipeline.jobs.histogram import GROWTH
from forebay_pipeline.replay.results import ReplayReport, Result
from forebay_pipeline.replay.settings import Variant, toml_value
from forebay_pipeline.replay.trust import trusted

NEAR: Final = 0.10
CLEARLY: Final = 0.10

_MAX_LINES: Final = 20


class Recommendation(NamedTuple):
    """Which settings to use, and why."""

    chosen: int
    """Index of the result."""
    reason: str
    """A sentence."""


class Numbers(Protocol):
    """What settings are judged by."""

    @property
    def average_ms(self) -> float:
        """Over records."""

    @property
    def p99_ms(self) -> float:
        """Over records."""

    @property
    def requests(self) -> float:
        """To brokers."""


def choose(results: Sequence[Numbers], present: int) -> int:
    """The index of the recommended result; `present` is that of the present settings' result."""
    found = _best(results, present)
    return found if found == present or _clearly_better(results[found], results[present]) else present


def recommend(results: Sequence[Result], present: int) -> Recommendation:
    """Apply the rule; `present` is the index of the present settings' result."""
    found = _best(results, present)
    if found == present:
        return Recommendation(present, "The present settings are the best of those tried.")
    old, new = results[present], results[found]
    if choose(results, present) == found:
        return Recommendation(
            found,
            f"Average {_change(old.average_ms, new.average_ms)}, p99 {_change(old.p99_ms, new.p99_ms)}:"
            f" the lowest p99 among settings whose average is within {NEAR:.0%} of the best.",
        )
    return Recommendation(
        present,
        f"The present settings stay: with the best others, average {_change(old.average_ms, new.average_ms)} and p99"
        f" {_change(old.p99_ms, new.p99_ms)}, which is not {CLEARLY:.0%} better in one without being as much worse in"
        " the other.",
    )


def _best(results: Sequence[Numbers], present: int) -> int:
    best_average = min(result.average_ms for result in results)
    near = [index for index, result in enumerate(results) if result.average_ms <= best_average * (1 + NEAR)]
    least_p99 = min(results[index].p99_ms for index in near)
    level = [index for index in near if results[index].p99_ms <= least_p99 * GROWTH]
    # If even that is the same, the present settings, then the first in the grid.
    return min(level, key=lambda index: (results[index].requests, index != present, index))


def _clearly_better(new: Numbers, old: Numbers) -> bool:
    pairs = ((new.average_ms, old.average_ms), (new.p99_ms, old.p99_ms))
    return any(ours <= theirs * (1 - CLEARLY) for ours, theirs in pairs) and all(
        ours < theirs * (1 + CLEARLY) for ours, theirs in pairs
    )


def _change(old: float, new: float) -> str:
    return f"{old:.2f} -> {new:.2f} ms"


def as_toml(report: ReplayReport, variants: Sequence[Variant]) -> str:
    """A file for `forebay config --config`: the recommended values of all settings given or tried, why in comments.

    `variants` are those of the report's results, in the same order.
    """
    chosen = report.results[report.recommended]
    settings = variants[report.recommended].settings
    comments = [
        "Recommended by `forebay-pipeline replay`; `forebay config --config FILE` checks it.",
        f"Evidence: {report.records:,} records ({report.source}, {report.seconds:,.0f} s), replayed with"
        f" {len(report.results)} settings, seed {report.seed}. Simulated latency, receive to acknowledgement, in ms:",
        *_table(report),
        report.reason,
        *trusted(report),
        *(f"Assumed: {line}" for line in report.assumed),
    ]
    if report.measured is not None:
        had = report.measured
        of = "" if report.unmerged is None else " (of what was merged)"
        comments.insert(2, f"measured{of}: average {had.average_ms:.2f}, p50 {had.p50_ms:.2f}, p99 {had.p99_ms:.2f}")
    values = [f'"{name}" = {toml_value(settings, name)}' for name in chosen.settings]
    return "\n".join([*(f"# {line}" for comment in comments for line in comment.splitlines()), "", *values, ""])


def _table(report: ReplayReport) -> list[str]:
    """The best by average, and the present and the recommended settings in any case."""
    order = sorted(range(len(report.results)), key=lambda index: report.results[index].average_ms)
    shown = order[:_MAX_LINES] + [i for i in (report.present, report.recommended) if i not in order[:_MAX_LINES]]
    return [_line(report, index) for index in dict.fromkeys(shown)]


def _line(report: ReplayReport, index: int) -> str:
    result = report.results[index]
    words = " ".join(f"{name}={value}" for name, value in result.settings.items())
    marks = report.marks(index)
    tail = f"  <- {', '.join(marks)}" if marks else ""
    return (
        f"  average {result.average_ms:.2f}, p50 {result.p50_ms:.2f}, p99 {result.p99_ms:.2f},"
        f" {result.batch_records:.1f} records a batch, {result.requests:,} requests: {words}{tail}"
    )
