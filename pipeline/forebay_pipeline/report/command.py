"""Job `report`: what to change, and the other jobs' results, on one HTML page with plots.

In: the journal, or what `rollup` made of it; optionally the files of `audit --output` and `replay --output`, and the
proxy's settings. Out: a page to open in a browser, or to send to somebody.
"""

from __future__ import annotations

from typing import Final, TypeVar

import click
import msgspec

from forebay_pipeline.advice.gather import COLUMNS, KEPT, gather
from forebay_pipeline.advice.present import read
from forebay_pipeline.audit.result import AuditResult
from forebay_pipeline.errors import CLEAN, CannotRun
from forebay_pipeline.jobs.options import FiniteRange, OpenSpark, job, rollups_options, session_options, span_options
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.journal.span import Span
from forebay_pipeline.partitions.measures import Questions, Rows, kept_rows, summarize
from forebay_pipeline.replay.results import ReplayReport
from forebay_pipeline.report.page import page
from forebay_pipeline.report.rolled import known_of_days
from forebay_pipeline.report.sections import MAX_ROWS, Asked, Known
from forebay_pipeline.report.series import series
from forebay_pipeline.rollups.store import FEW_LISTINGS
from forebay_pipeline.storage import Storage
from forebay_policies.journal_rows import LedgerRow, ObservedRow

T = TypeVar("T")

MAX_TOPICS: Final = 5
"""Each takes up to a tenth of the page."""


def known(rows: Rows, place: JournalPlace, span: Span, asked: Asked) -> Known:
    """All that the page shows of the rows of `span` at `place`.

    Raises CannotRun if there are neither batches nor rows about clients.
    """
    of_clients = [rows.others[LedgerRow], rows.others[ObservedRow]]
    summary = summarize(rows, place, span, Questions(max_rows=MAX_ROWS), of_clients)
    names = [topic.topic for topic in summary.topics[: asked.topics]]
    found = series(rows.batches, rows.gauges, summary.first_us, summary.last_us, names)
    facts = gather(rows, summary, asked.present, asked.replay, asked.price_per_gb)
    return Known(found, facts, asked.audit)


def read_result(storage: Storage, path: str | None, kind: type[T], made_by: str) -> T | None:
    """The result in a file that `made_by` wrote, None without a path. Raises CannotRun if it holds something else."""
    if path is None:
        return None
    written = storage.read(path)
    if written is None:
        raise CannotRun(f"Cannot read {path}: no such file.")
    try:
        return msgspec.json.decode(written, type=kind)
    except msgspec.DecodeError as error:
        raise CannotRun(f"{path} was not written by `{made_by}`: {error}.") from error


@click.command()
@rollups_options
@span_options
@click.option("--audit", metavar="FILE.json", help="Include this output of `audit`.")
@click.option("--replay", metavar="FILE.json", help="Include this output of `replay`.")
@click.option("--config", metavar="FILE.toml", help="The proxy's settings, for the advice; without it, its defaults.")
@click.option(
    "--price-per-gb",
    type=FiniteRange(min=0),
    metavar="MONEY",
    help="Say what bytes that crossed racks cost, at this price for a GB.",
)
@click.option(
    "--topics",
    type=click.IntRange(1, MAX_TOPICS),
    default=3,
    show_default=True,
    help="Plot the shares of partitions for this many topics, those with the most bytes.",
)
@click.option(
    "--output",
    required=True,
    metavar="PAGE.html",
    help="Write the page to this file.",
)
@session_options
@job
def command(
    place: JournalPlace | None,
    rollups: str | None,
    span: Span,
    audit: str | None,
    replay: str | None,
    config: str | None,
    price_per_gb: float | None,
    topics: int,
    output: str,
    spark: OpenSpark,
) -> int:
    """Put advice and all results on one HTML page with plots."""
    present = read(config)
    if place is None:
        session = spark("report", settings=FEW_LISTINGS)
    else:
        session = spark("report", kafka=place.in_kafka, table_format=place.format)
    storage = Storage(session)
    audited = read_result(storage, audit, AuditResult, "audit --output")
    replayed = read_result(storage, replay, ReplayReport, "replay --output")
    asked = Asked(topics, audited, replayed, price_per_gb, present)
    if place is not None:
        with kept_rows(session, place, span, KEPT, of_these=COLUMNS) as rows:
            found = known(rows, place, span, asked)
    else:
        assert rollups is not None
        found = known_of_days(session, rollups, span, asked)
    html = page(found).encode()
    storage.write(output, html)
    for sentence in found.missing:
        click.echo(sentence, err=True)
    click.echo(f"{output}: {len(html) / 1000:,.0f} kB")
    return CLEAN
