"""Job `watch`: loss and latency of each topic and minute, while the journal grows.

In: the journal with its ledger (`journal.ledger`), its files or topic, and what the brokers say of the topics'
offsets; no record is read. Out: a Minute for each topic and minute, to any of: JSON lines, each exactly once, across
restarts with the same checkpoint too; a Kafka topic; a file for Prometheus; and those with findings to a webhook.
Without any of these, sentences. Exit codes: 0; with --once 1 if there were findings, and 3 if there were none, but not
all could be checked, or nothing was judged; 2 it could not run.
"""

from __future__ import annotations

import click

from forebay_pipeline.audit.topics import KafkaTopics
from forebay_pipeline.errors import CLEAN, FINDINGS, INCOMPLETE
from forebay_pipeline.jobs.driver_sink import DriverSink
from forebay_pipeline.jobs.json_lines import JsonLines
from forebay_pipeline.jobs.live import STORES, live_options, live_rows, tell_late, wait_s
from forebay_pipeline.jobs.options import FiniteRange, OpenSpark, job, journal_options, session_options
from forebay_pipeline.journal.output_owner import claim
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.storage import Storage
from forebay_pipeline.watch.exposition import TextFile, Totals
from forebay_pipeline.watch.judged import Judged
from forebay_pipeline.watch.minutes import COLUMNS, KINDS, stream_tallies
from forebay_pipeline.watch.to_topic import ToTopic
from forebay_pipeline.watch.watcher import Sentences, Watcher
from forebay_pipeline.watch.webhook import Webhook


@click.command()
@journal_options
@live_options(every=5)
@click.option("--slow", type=FiniteRange(0), metavar="MS", help="A minute whose p99 latency exceeds this is a finding.")
@click.option("--output", metavar="FOLDER", help="Write JSON lines to this folder.")
@click.option("--to-topic", metavar="TOPIC", help="Send each minute as JSON to this topic.")
@click.option("--prometheus", metavar="FILE", help="Keep metrics in this file, for node_exporter's textfile collector.")
@click.option(
    "--webhook",
    metavar="URL",
    envvar="FOREBAY_WATCH_WEBHOOK",
    help="Post minutes with findings as JSON to this URL; better from the variable FOREBAY_WATCH_WEBHOOK.",
)
@click.option(
    "--checkpoint",
    metavar="FOLDER",
    help="Folder that records progress, which --to-topic and --webhook need; OUTPUT/_checkpoint with --output.",
)
@session_options
@job
def command(
    *,
    place: JournalPlace,
    once: bool,
    every: int,
    late: int | None,
    slow: float | None,
    output: str | None,
    to_topic: str | None,
    prometheus: str | None,
    webhook: str | None,
    checkpoint: str | None,
    spark: OpenSpark,
) -> int:
    """Report loss and latency per topic and minute, as they happen.

    Only ends of topics are looked at: records that are there, but wrong, are found by `audit`. Exit codes: 0; with
    --once also 1, there were findings; 3, there were none, but not all could be checked, or nothing was judged; 2 it
    could not run.
    """
    if place.brokers is None:
        raise click.UsageError("watch requires --bootstrap-servers: it asks the brokers where topics end")
    if output is not None:
        checkpoint = checkpoint or f"{output.rstrip('/')}/_checkpoint"
    elif checkpoint is None and (to_topic is not None or webhook is not None):
        raise click.UsageError("--to-topic and --webhook require --checkpoint: else all would be told again")
    watcher = Watcher(KafkaTopics(place.brokers), slow)
    batches = DriverSink(watcher.told)
    posts = Webhook(webhook) if webhook is not None else None

    def totals() -> Totals:
        late = {"late_rows_total": ("Rows that came after their minutes had been judged.", batches.late)}
        return {**watcher.totals(), **late, **(posts.totals() if posts is not None else {})}

    session = spark("watch", kafka=place.in_kafka, settings=STORES)
    storage = Storage(session)
    rows = live_rows(session, place, KINDS, COLUMNS, "watch")
    if output is not None and checkpoint is not None:
        watcher.outputs.append(JsonLines(storage, output, "minutes", checkpoint))
    if prometheus is not None:
        watcher.outputs.append(TextFile(storage, prometheus, totals))
    if to_topic is not None:
        watcher.outputs.append(ToTopic(place.brokers, to_topic))
    if posts is not None:
        watcher.outputs.append(posts)
    watcher.outputs = watcher.outputs or [Sentences()]
    judged = Judged(storage, checkpoint)
    watcher.outputs.append(judged)
    if checkpoint is not None:
        claim(storage, checkpoint, "watch")
    wait = wait_s(place, late)
    batches.start(stream_tallies(rows, wait), checkpoint, None if once else every)
    batches.await_end()
    tell_late(batches.late, "rows")
    if not once:
        return CLEAN
    if watcher.findings:
        return FINDINGS
    if not judged.any:
        click.echo(f"No minute was judged: the journal has no rows that are {wait:,} s later than one's end.", err=True)
        return INCOMPLETE
    return INCOMPLETE if watcher.unchecked or watcher.without_ledger or batches.late else CLEAN
