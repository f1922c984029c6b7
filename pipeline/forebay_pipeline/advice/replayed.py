"""The rule about what a replay recommends: simulated numbers instead of estimates.

In: Facts with a replay's report. Out: a Change, or None if the present settings stay.
"""

from __future__ import annotations

from collections.abc import Iterator

from forebay_pipeline.advice.change import Change, Effect
from forebay_pipeline.advice.facts import Facts
from forebay_pipeline.advice.toml import TomlValue
from forebay_pipeline.replay.results import ReplayReport, Result
from forebay_pipeline.replay.trust import trusted, within


def replayed(facts: Facts) -> Change | None:
    """Set what the replay recommends."""
    report = facts.replay
    if report is None or report.recommended == report.present:
        return None
    old, new = report.results[report.present], report.results[report.recommended]
    changed = {name: value for name, value in new.settings.items() if old.settings.get(name) != value}
    seconds = max(1.0, report.seconds)
    words = ", ".join(f"{name} {value}" for name, value in changed.items())
    return Change(
        name="replay",
        title=f"Set {words}, as the replay recommends",
        evidence=f"{report.records:,} records ({report.source}) replayed with {len(report.results):,} settings: average"
        f" {old.average_ms:.2f} → {new.average_ms:.2f} ms, p99 {old.p99_ms:.2f} → {new.p99_ms:.2f} ms.",
        effect=Effect(
            ms=new.average_ms - old.average_ms,
            of_ms=old.average_ms,
            requests=(new.requests - old.requests) / seconds,
            of_requests=old.requests / seconds,
            others=tuple(_sure(new, report)),
        ),
        how=" ".join(
            ["Simulated with the proxy's own policies on what the journal recorded (docs/replay.md).", *trusted(report)]
        ),
        settings={name: _value(value) for name, value in changed.items()},
    )


def _sure(new: Result, report: ReplayReport) -> Iterator[str]:
    if new.intervals is not None and report.certainty is not None:
        yield (
            f"Average {within(new.intervals.average_ms)} ms with 95 %; the same recommendation in"
            f" {report.certainty:.0%} of draws."
        )
    if new.ranking_only:
        yield "The milliseconds are for ranking only: they may be off by more than a quarter."


def _value(text: str) -> TomlValue:
    """A value as a replay writes it."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
