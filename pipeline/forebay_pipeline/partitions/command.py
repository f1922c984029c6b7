"""Job `partitions`: who got what, how long it took, and whether a partition runs away.

In: the journal. Out: tables, and `--output` with the same as JSON (partitions_summary.Summary).
"""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from forebay_pipeline.errors import CLEAN
from forebay_pipeline.jobs.options import OpenSpark, job, journal_options, session_options, span_options
from forebay_pipeline.jobs.output_file import write
from forebay_pipeline.jobs.text_table import terminal_width
from forebay_pipeline.journal.source import JournalPlace, Span
from forebay_pipeline.partitions.batches import KEYS
from forebay_pipeline.partitions.measures import Questions, kept_rows, summarize
from forebay_pipeline.partitions.runaway_detector import Thresholds
from forebay_pipeline.partitions.runaway_options import runaway_options
from forebay_pipeline.partitions.text import as_text


def grouping(by: str) -> list[str]:
    """topic,partition → [topic, partition]. UsageError where one is not of KEYS."""
    names = [name.strip() for name in by.split(",") if name.strip()]
    unknown = [name for name in names if name not in KEYS]
    if unknown or not names:
        raise click.UsageError(f"--by {by}: must be some of {', '.join(KEYS)}, with commas between")
    return list(dict.fromkeys(names))


@click.command()
@journal_options
@span_options
@click.option(
    "--by", default="topic,partition", show_default=True, metavar="KEY,…", help=f"Groups: any of {', '.join(KEYS)}."
)
@click.option(
    "--most", type=click.IntRange(1, 100_000), default=500, show_default=True, help="Groups and topics shown at most."
)
@runaway_options
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="The same as JSON, to this file.")
@session_options
@job
def command(
    place: JournalPlace,
    span: Span,
    by: str,
    most: int,
    window: int,
    limits: Thresholds,
    output: Path | None,
    spark: OpenSpark,
) -> int:
    """Who got what, how long it took, and whether a partition runs away."""
    questions = Questions(grouping(by), most, window * 1_000_000, limits)
    with kept_rows(spark("partitions", place.in_kafka), place, span) as rows:
        summary = summarize(rows, place, span, questions)
    click.echo(as_text(summary, terminal_width()))
    if output is not None:
        write(output, msgspec.json.encode(summary))
    return CLEAN
