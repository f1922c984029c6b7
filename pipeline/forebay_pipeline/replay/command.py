"""The job `replay`: what other settings would have done with recorded, or made-up, traffic.

In: a span of a journal (or a Load), the present settings and a grid of others. Out: tables; with `--output` a
ReplayReport as JSON, with `--toml` the recommended settings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec
from pyspark.sql import SparkSession

from forebay_pipeline.errors import CLEAN, CannotRun
from forebay_pipeline.jobs.options import (
    PLACE,
    FiniteRange,
    OpenSpark,
    format_option,
    in_format,
    job,
    journal_flags,
    journal_place,
    output_option,
    session_options,
    span_options,
)
from forebay_pipeline.jobs.time_text import within
from forebay_pipeline.journal.source import JournalPlace, read_rows
from forebay_pipeline.journal.span import ALL_TIME, Span
from forebay_pipeline.journal.tables import Format
from forebay_pipeline.replay.arrivals import Load
from forebay_pipeline.replay.recommendation import as_toml
from forebay_pipeline.replay.results import ReplayReport
from forebay_pipeline.replay.run import KINDS, SLICE_S, NoArrivals, Plan, replay_journal, replay_load
from forebay_pipeline.replay.settings import DEFAULT_GRID, read_grid, read_limits, read_present, taken, variants
from forebay_pipeline.replay.slices import WARM_UP_S
from forebay_pipeline.replay.text import as_text
from forebay_pipeline.storage import Storage

T = TypeVar("T")


def _source_options(command: Callable[..., T]) -> Callable[..., T]:
    """Adds those of a journal, and in place of all of them --synthetic, with an option for each field of Load.

    Passed to the job as one checked argument: `source`, a JournalPlace or a Load.
    """

    @functools.wraps(command)
    def gathered(*, synthetic: bool, table_format: Format, span: Span, **others: Any) -> T:
        load = Load(**{name: others.pop(name) for name in Load._fields})
        journal = {name: others.pop(name) for name in PLACE}
        if not synthetic:
            return command(source=in_format(journal_place(**journal), table_format), span=span, **others)
        if span != ALL_TIME or journal["journal"] is not None or journal["journal_topic"] is not None:
            raise click.UsageError("--synthetic replays no journal: drop --journal, --journal-topic, --from and --to")
        return command(source=load, span=span, **others)

    for names, kind, default, text in reversed(
        (
            (("--rate", "records_per_s"), FiniteRange(1), 2048, "records per second"),
            (("--record-bytes",), click.IntRange(7), 512, "bytes per record"),
            (("--run", "records_a_run"), click.IntRange(1), 1, "records per client batch"),
            (("--connections",), click.IntRange(1), 3, "client connections"),
            (("--partitions",), click.IntRange(1), 3, "partitions of the topic"),
            (("--brokers",), click.IntRange(1), 3, "brokers that lead them in turn"),
            (("--service-ms",), FiniteRange(0.001), 0.6, "time a broker takes for a request"),
            (("--slow-ms",), FiniteRange(0.001), 20.5, "time broker 0 takes instead"),
            (("--seconds",), FiniteRange(1), 60, "duration"),
        )
    ):
        gathered = click.option(
            *names, type=kind, default=default, show_default=True, help=f"With --synthetic: {text}."
        )(gathered)
    text = "Replay made-up traffic without keys to one topic."
    gathered = click.option("--synthetic", is_flag=True, help=text)(gathered)
    return journal_flags(format_option()(span_options(gathered)))


@click.command()
@_source_options
@click.option("--config", metavar="FILE.toml", help="The proxy's present settings; without it, its defaults.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Override a present setting; may be repeated.",
)
@click.option(
    "--grid", metavar="'NAME=V1,V2 …'", help=f"Settings to try, in all combinations; default: {DEFAULT_GRID!r}."
)
@click.option("--vary", multiple=True, metavar="NAME=V1,V2", help="One more setting to try; may be repeated.")
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Random seed: the same seed, the same result."
)
@click.option(
    "--slice",
    "slice_s",
    type=FiniteRange(1),
    default=SLICE_S,
    show_default=True,
    metavar="SECONDS",
    help=f"Simulate slices of this length in parallel, each after {WARM_UP_S:g} s of warm-up.",
)
@click.option(
    "--sample",
    type=FiniteRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    metavar="SHARE",
    help="Simulate only this share of the slices, chosen at random; 0.1 takes a tenth of the CPU.",
)
@click.option("--apart", is_flag=True, help="Simulate each topic by itself, even if topics share brokers.")
@output_option
@click.option("--toml", metavar="FILE", help="Write the recommended settings to this file.")
@session_options
@job
def command(
    *,
    source: JournalPlace | Load,
    span: Span,
    config: str | None,
    assignments: tuple[str, ...],
    grid: str | None,
    vary: tuple[str, ...],
    seed: int,
    slice_s: float,
    sample: float,
    apart: bool,
    output: str | None,
    toml: str | None,
    spark: OpenSpark,
) -> int:
    """Simulate other settings on recorded traffic.

    Runs the proxy's own policies on the arrivals that the journal recorded, for every combination of the grid, and
    recommends one. The journal should have a ledger (journal.ledger): without it, arrivals are guessed from batches.
    """
    tried = read_grid([text for text in (grid, *vary) if text]) or read_grid([DEFAULT_GRID])
    found = variants(read_present(config, assignments), tried)
    possible = taken(found, read_limits(config))
    if refused := len(found) - len(possible):
        click.echo(
            f"{refused:,} of the grid's settings are left out: Forebay refuses them beside its others.", err=True
        )
    plan = Plan(possible, seed, slice_s, apart=apart, sample=sample)
    if isinstance(source, Load):
        session = spark("replay")
        report = replay_load(session, source, plan)
    else:
        session = spark("replay", kafka=source.in_kafka, table_format=source.format)
        report = _of_journal(session, source, span, plan)
    click.echo(as_text(report))
    storage = Storage(session)
    if toml:
        storage.write(toml, as_toml(report, possible).encode())
    if output:
        storage.write(output, msgspec.json.format(msgspec.json.encode(report), indent=2))
    return CLEAN


def _of_journal(session: SparkSession, place: JournalPlace, span: Span, plan: Plan) -> ReplayReport:
    try:
        return replay_journal(read_rows(session, place, span, KINDS), plan)
    except NoArrivals as error:
        raise CannotRun(f"There are no arrivals{within(span)} in {place}.") from error
