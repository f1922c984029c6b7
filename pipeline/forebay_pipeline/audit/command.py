"""Job `audit`: is every acknowledged record in its topic, once, unchanged and in order?

In: the journal with its ledger (`journal.ledger`), and the topics, read directly from the brokers. Out: tables; with
`--output` the same as JSON (result.AuditResult); with `--state` a file that lets the next audit look only at new rows.
Exit codes: 0 clean, 1 findings, 2 it could not run, 3 incomplete.
"""

from __future__ import annotations

import time

import click
import msgspec

from forebay_pipeline.audit.ledger import AuditScope
from forebay_pipeline.audit.reread import reading
from forebay_pipeline.audit.run import audit
from forebay_pipeline.audit.state import read_state, write_state
from forebay_pipeline.audit.text import as_text
from forebay_pipeline.audit.topics import KafkaTopics
from forebay_pipeline.jobs.options import (
    FiniteRange,
    OpenSpark,
    compacted_options,
    job,
    output_option,
    session_options,
    span_options,
)
from forebay_pipeline.jobs.text_table import terminal_width
from forebay_pipeline.journal.source import JournalPlace, reader
from forebay_pipeline.journal.span import Span
from forebay_pipeline.storage import Storage


@click.command()
@compacted_options
@span_options
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Audit only this topic; may be repeated. Default: all."
)
@click.option(
    "--state",
    "state_path",
    metavar="FILE",
    help="File that records how far audits have come; --from and --to override it.",
)
@click.option(
    "--settle",
    type=FiniteRange(0, 10 * 365 * 86_400),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="Without --to, leave younger rows to a later audit. Files of a process that runs are expected to be there "
    "after this time. At least twice the proxy's journal.roll.ms; 0 if none of them runs any more.",
)
@output_option
@session_options
@job
def command(
    place: JournalPlace,
    span: Span,
    topics: tuple[str, ...],
    state_path: str | None,
    settle: float,
    output: str | None,
    spark: OpenSpark,
) -> int:
    """Check that no acknowledged record was lost.

    Each must be in its topic once, unchanged and in order. Exit codes: 0 clean; 1 findings; 2 it could not run; 3
    nothing found, but not all was there, or was followed: what is missing is named.
    """
    if place.brokers is None:
        raise click.UsageError("audit requires --bootstrap-servers: it reads the topics themselves")
    due_us = int((time.time() - settle) * 1_000_000)
    last_us = due_us if span.last is None else span.last
    if span.last is None and span.first is not None and span.first >= due_us:
        raise click.UsageError("--from is younger than --settle: audit later, or say --to")
    session = spark("audit", kafka=True, table_format=place.format)
    storage = Storage(session)
    state = read_state(storage, state_path, list(topics)) if state_path is not None else None
    scope = AuditScope(Span(span.first, last_us), topics, state, min(due_us, last_us))
    topics_now = KafkaTopics(place.brokers)
    again = reading(session, place, scope)
    result, moved_on = audit(session, reader(session, place, again.span, again.but), topics_now, scope)
    click.echo(as_text(result, terminal_width()))
    if output is not None:
        storage.write(output, msgspec.json.encode(result))
    if state_path is not None and moved_on is not state:
        write_state(storage, state_path, msgspec.structs.replace(moved_on, files=again.files))
    return result.exit_code
