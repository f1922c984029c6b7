"""A ReplayReport as text: what was replayed, a line for each of the settings, the recommendation."""

from __future__ import annotations

from forebay_pipeline.jobs.text_table import text_table
from forebay_pipeline.replay.results import FAR, ReplayReport
from forebay_pipeline.replay.trust import average_ms, checked, p99_ms, trusted


def as_text(report: ReplayReport) -> str:
    """The whole report."""
    lines = [
        f"{report.records:,} records, {report.source}, {report.seconds:,.1f} s; latencies in ms, from receive to"
        " acknowledgement, over records.",
        "",
        _table(report),
        "",
        *_checked(report),
        *([*found, ""] if (found := gained(report)) else []),
        "Recommended: " + _words(report.results[report.recommended].settings),
        report.reason,
        *trusted(report),
        "",
        "Assumed:",
        *(f"- {line}" for line in report.assumed),
    ]
    return "\n".join(lines)


def _words(settings: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items()) or "the defaults"


def _table(report: ReplayReport) -> str:
    names = list(report.results[0].settings)
    numbers = ("average", "p50", "p99", "bytes/batch", "records/batch", "requests", "skew", "Gini", "pool peak")
    rows = [
        (
            " ".join(report.marks(index)),
            *(result.settings[name] for name in names),
            average_ms(result),
            f"{result.p50_ms:,.2f}",
            p99_ms(result),
            f"{result.batch_bytes:,.0f}",
            f"{result.batch_records:,.1f}",
            f"{result.requests:,}",
            f"{result.skew:.2f}",
            f"{result.gini:.2f}",
            f"{result.pool_peak_bytes:,}",
        )
        for index, result in enumerate(report.results)
    ]
    header = ["", *names, *numbers]
    numeric = [False] * (1 + len(names)) + [True] * len(numbers)
    return "\n".join(text_table(header, numeric, rows, None))


def gained(report: ReplayReport) -> list[str]:
    """What was only observed, and what merging makes of it where nothing else was recorded."""
    before, made = report.unmerged, report.results[report.present]
    if before is None:
        return []
    lines = [
        f"Observed, unmerged: average {before.average_ms:.2f}, p50 {before.p50_ms:.2f}, p99 {before.p99_ms:.2f};"
        f" {before.batch_records:,.1f} records/batch, {before.requests:,} requests."
    ]
    if report.only_observed and made.requests and before.batch_records:
        lines.append(
            f"Merged with the present settings: {before.requests / made.requests:,.1f} times fewer requests,"
            f" {made.batch_records / before.batch_records:,.1f} times the records/batch."
        )
    return lines


def _checked(report: ReplayReport) -> list[str]:
    """How the simulation of the present settings compares with what the proxy recorded."""
    if report.measured is None:
        return []
    had = report.measured
    if report.unmerged is not None:
        return [
            f"Measured of what was merged: average {had.average_ms:.2f}, p50 {had.p50_ms:.2f}, p99 {had.p99_ms:.2f}."
            " What was only observed was simulated with it, so the two cannot be compared.",
            "",
        ]
    ratios = checked(report.results[report.present], had)
    shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    lines = [
        f"Measured: average {had.average_ms:.2f}, p50 {had.p50_ms:.2f}, p99 {had.p99_ms:.2f}."
        f" Simulated with the present settings ÷ measured: {shown}."
    ]
    if any(abs(ratio - 1) > FAR for name, ratio in ratios.items() if name != "average"):
        lines.append(f"They differ by more than {FAR:.0%}: was it recorded with these settings (--config, --set)?")
    return [*lines, ""]
