"""Job `partitions`: load, latency and skew by partition, and partitions that ran away.

In: the journal. Out: tables; with `--output` the same as JSON (summary.Summary).
"""

from __future__ import annotations

import click
import msgspec

from forebay_pipeline.errors import CLEAN
from forebay_pipeline.jobs.options import (
    OpenSpark,
    compacted_options,
    job,
    output_option,
    session_options,
    span_options,
)
from forebay_pipeline.jobs.text_table import terminal_width
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.journal.span import Span
from forebay_pipeline.partitions.batches import KEYS
from forebay_pipeline.partitions.measures import SUMMARIZED, Questions, kept_rows, summarize
from forebay_pipeline.partitions.runaway_detector import Thresholds
from forebay_pipeline.partitions.runaway_options import runaway_options
from forebay_pipeline.partitions.text import as_text
from forebay_pipeline.storage import Storage


def grouping(by: str) -> list[str]:
    """`topic, partition` → [topic, partition]. Raises click.UsageError unless all are in KEYS."""
    names = [name.strip() for name in by.split(",") if name.strip()]
    unknown = [name for name in names if name not in KEYS]
    if unknown or not names:
        raise click.UsageError(f"--by {by}: must be a comma-separated list of {', '.join(KEYS)}")
    return list(dict.fromkeys(names))


@click.command()
@compacted_options
@span_options
@click.option(
    "--by", default="topic,partition", show_default=True, metavar="KEY,…", help=f"Group by any of {', '.join(KEYS)}."
)
@click.option(
    "--most",
    "max_rows",
    type=click.IntRange(1, 100_000),
    default=500,
    show_default=True,
    help="Show at most this many groups, and this many topics.",
)
@runaway_options
@output_option
@session_options
@job
def command(
    place: JournalPlace,
    span: Span,
    by: str,
    max_rows: int,
    window: int,
    limits: Thresholds,
    output: str | None,
    spark: OpenSpark,
) -> int:
    """Show load, latency and skew by partition.

    Also why batches were sent and what became of them, partitions that ran away, metadata lookups and memory pressure.
    """
    questions = Questions(grouping(by), max_rows, window_us=window * 1_000_000, thresholds=limits)
    session = spark("partitions", kafka=place.in_kafka, table_format=place.format)
    with kept_rows(session, place, span, of_these=SUMMARIZED) as rows:
        summary = summarize(rows, place, span, questions)
    click.echo(as_text(summary, terminal_width()))
    if output is not None:
        Storage(session).write(output, msgspec.json.encode(summary))
    return CLEAN
