"""The table of faults: printed after the tests, and by `make chaos` kept in docs/reliability.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.report import Table, machine
from tests.chaos.bystander import Latency
from tests.chaos.run import Result, Spared

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- chaos -->", "<!-- /chaos -->"

BYSTANDER = "bystanders' p50 · p99 · worst s, direct / through Forebay"
HEAD = (
    "fault",
    "timeouts",
    "lasted s",
    "records",
    "acknowledged",
    "refused",
    "unknown",
    "lost",
    "duplicated",
    "sent again by clients",
    "longest silence s",
    "recovered after s",
    "fresh client s",
    BYSTANDER,
)


def table(results: Sequence[Result]) -> Table:
    return Table(HEAD, [_row(result.fault, [result]) for result in results])


def keep(results: Sequence[Result], seed: str, document: Path = DOCUMENT) -> None:
    """Between the document's marks: the table, its pairs in one row, their seed, the machine."""
    rows = [_row(result.fault, [result]) for result in results if result.faults < 2]
    if pairs := [result for result in results if result.faults > 1]:
        rows.append(_row(f"random pairs, {len(pairs)} of them", pairs))
    words = f"Pairs from seed {seed}. _{machine()}_"
    block = f"{BEGIN}\n{Table(HEAD, rows).markdown()}\n\n{words}\n{END}"
    text = document.read_text()
    document.write_text(re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: block, text, flags=re.DOTALL))


def _row(name: str, results: Sequence[Result]) -> tuple[object, ...]:
    """Counts are summed, seconds those of the worst."""
    found = [result.findings for result in results]
    return (
        name,
        results[0].timeouts,
        _worst(result.seconds for result in results),
        sum(findings.sent for findings in found),
        sum(findings.acknowledged for findings in found),
        sum(findings.refused for findings in found),
        sum(findings.unknown for findings in found),
        sum(findings.lost for findings in found),
        sum(findings.duplicated for findings in found),
        sum(findings.retried for findings in found),
        _worst(result.silence for result in results),
        _worst(result.recovery for result in results),
        _worst(result.probe for result in results if result.probe is not None),
        _bystander([result.spared for result in results if result.spared is not None]),
    )


def _bystander(spared: Sequence[Spared]) -> str:
    """The run in which bystanders waited longest through Forebay."""
    if not spared:
        return "–"
    one = max(spared, key=lambda it: it.through.worst)
    return f"{_latency(one.direct)} / {_latency(one.through)}"


def _latency(found: Latency) -> str:
    return " · ".join(f"{seconds:.3f}" for seconds in (found.p50, found.p99, found.worst))


def _worst(seconds: Iterable[float]) -> str:
    worst = max(seconds, default=None)
    return "–" if worst is None else f"{worst:.1f}"
