"""A Summary as text: a table for each question, KIP-794's first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from forebay_pipeline.jobs.text_table import text_table
from forebay_pipeline.jobs.time_text import instant
from forebay_pipeline.partitions import tables
from forebay_pipeline.partitions.summary import Summary

_TABLES: Final = (
    tables.sizes,
    tables.times,
    tables.skew,
    tables.runaways,
    tables.reasons,
    tables.fates,
    tables.workers,
)


def as_text(summary: Summary, width: int | None) -> str:
    """The whole Summary. `width` is the terminal's; with None every row of a table is one line."""
    return "\n\n".join(_blocks(summary, width))


def _blocks(summary: Summary, width: int | None) -> Iterator[str]:
    yield f"{summary.journal}, {instant(summary.first_us)} to {instant(summary.last_us)}\n{tables.totals(summary)}"
    for make in _TABLES:
        table = make(summary)
        if table.rows:
            yield _text(table, width)
    sentences = ["" if summary.runaways else "No partition ran away.", tables.metadata(summary), tables.racks(summary)]
    yield "\n".join(sentence for sentence in (*sentences, *tables.warnings(summary)) if sentence)


def _text(table: tables.Table, width: int | None) -> str:
    lines = [table.title, *text_table(table.header, table.numeric(), table.rows, width)]
    if table.left_out:
        lines.append(f"… and {table.left_out:,} more")
    return "\n".join(lines)
