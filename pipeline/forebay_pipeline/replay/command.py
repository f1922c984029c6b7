"""The job `replay`: what other settings would have done with the traffic that was recorded, or with one made up.

In: a journal and a span of it (or a Load), the present settings and a grid of others. Out: a ReplayReport: for each
of the settings latencies, batches, requests, skew and memory, one of them recommended. Wrong: CannotRun, where there
are no arrivals, or no batches from which it could be seen how long the brokers take.

    arrivals, leaders, service times, the proxy's own → slices × settings, simulated → added up → recommended
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.errors import CLEAN, CannotRun
from forebay_pipeline.jobs import output_file
from forebay_pipeline.jobs.options import job, journal_flags, journal_place, session_options, span_options
from forebay_pipeline.journal.source import ALL_TIME, Span, of_kind, read_rows
from forebay_pipeline.replay import arrivals as arriving
from forebay_pipeline.replay.arrivals import SYNTHETIC, Load
from forebay_pipeline.replay.proxy_times import NO_WAY, TURN, fit_turn, fit_way
from forebay_pipeline.replay.recommendation import as_toml, recommend
from forebay_pipeline.replay.results import Measured, ReplayReport, measured, results_of
from forebay_pipeline.replay.service_times import constant, fit
from forebay_pipeline.replay.settings import DEFAULT_GRID, Variant, read_grid, read_present, variants
from forebay_pipeline.replay.simulation import World
from forebay_pipeline.replay.slices import WARM_UP_S, Slices, Task, simulated
from forebay_pipeline.replay.text import as_text
from forebay_pipeline.replay.topics import groups_of, leaders_of
from forebay_policies.journal_rows import BatchRow, ChoiceRow, LedgerRow

SLICE_S: Final = 60.0

_ALWAYS: Final = (
    "requests come when they came, whatever became of those before them: a client that waits for answers would send"
    " later",
    "nothing fails and no leader changes; brokers take as long as they took somewhere in the whole span, at random,"
    " however much reaches them",
    "records are not compressed, and the proxy's own CPU is free, but for a turn of its loop and a request's way in it",
    "from receive to acknowledgement: answers that wait for earlier ones on their connection are not counted as later",
)
_APART: Final = "topics were simulated apart, as if each had the brokers, the connections and buffer.memory for itself"
_NO_LEDGER: Final = (
    "there is no ledger (journal.ledger): arrivals are those of the batches, evenly from opening to sending, each run a"
    " request of its own"
)


class NoArrivals(CannotRun):
    """Nothing that could be replayed."""

    def __init__(self) -> None:
        super().__init__("There are no arrivals to replay.")


class Plan(NamedTuple):
    """`variants` begin with the present settings."""

    variants: Sequence[Variant]
    seed: int = 1
    slice_s: float = SLICE_S
    apart: bool = False


class Traffic(NamedTuple):
    """What is replayed, and where it came from."""

    source: str
    arrivals: DataFrame
    world: World
    measured: Measured | None
    assumed: Sequence[str]


class _Extent(NamedTuple):
    records: int
    first_us: int
    last_us: int


def replay_journal(rows: DataFrame, plan: Plan) -> ReplayReport:
    """`rows` as journal.source reads them. CannotRun without arrivals or without answered batches."""
    batches = of_kind(rows, BatchRow).drop("kind").persist()
    ledger = of_kind(rows, LedgerRow).where(F.size("parts") > 0).persist()
    try:
        return _replayed(_recorded(batches, ledger, of_kind(rows, ChoiceRow), plan), plan)
    finally:
        batches.unpersist()
        ledger.unpersist()


def _recorded(batches: DataFrame, ledger: DataFrame, choices: DataFrame, plan: Plan) -> Traffic:
    arrivals, assumed = arriving.of_ledger(ledger), []
    if ledger.isEmpty():
        arrivals, assumed = arriving.of_batches(batches), [_NO_LEDGER]
    if arrivals.isEmpty():
        raise NoArrivals
    brokers = fit(batches)
    world = World(
        leaders_of(batches, choices, arrivals, brokers),
        brokers,
        fit_turn(batches, plan.variants[0].settings.linger_ms),
        fit_way(ledger, batches),
    )
    return Traffic("recorded", arrivals, world, measured(ledger), assumed)


def replay_load(spark: SparkSession, load: Load, plan: Plan) -> ReplayReport:
    """CannotRun where the load comes to no record."""
    times = {broker: constant((load.service_ms if broker else load.slow_ms) / 1000) for broker in range(load.brokers)}
    world = World({SYNTHETIC: load.leaders}, times, TURN, NO_WAY)
    arrivals = arriving.of_load(spark, load, plan.seed)
    return _replayed(Traffic("synthetic", arrivals, world, None, []), plan)


def _replayed(traffic: Traffic, plan: Plan) -> ReplayReport:
    extent = _extent(traffic.arrivals)
    slices = Slices.over(extent.first_us, extent.last_us, plan.slice_s)
    settings = [variant.settings for variant in plan.variants]
    task = Task(traffic.world, settings, _stripes(traffic.arrivals, slices, len(settings)), slices, plan.seed)
    outcomes = simulated(traffic.arrivals, groups_of(traffic.world.leaders, plan.apart), task).persist()
    try:
        results = results_of(outcomes, plan.variants)
    finally:
        outcomes.unpersist()
    found = recommend(results, 0)
    return ReplayReport(
        source=traffic.source,
        results=results,
        present=0,
        recommended=found.chosen,
        reason=found.reason,
        assumed=[*traffic.assumed, *([_APART] if plan.apart else []), *_of_slices(slices), *_ALWAYS],
        measured=traffic.measured,
        records=extent.records,
        seconds=(extent.last_us - extent.first_us) / 1e6,
        seed=plan.seed,
    )


def _extent(arrivals: DataFrame) -> _Extent:
    [row] = arrivals.agg(F.sum("records"), F.min("at_us"), F.max("at_us")).collect()
    if row[1] is None:
        raise NoArrivals
    return _Extent(*row)


def _stripes(arrivals: DataFrame, slices: Slices, count: int) -> int:
    """Where slices are too few to keep all cores busy, a slice's variants are dealt out to several tasks."""
    cores = arrivals.sparkSession.sparkContext.defaultParallelism
    return min(count, -(-2 * cores // slices.number))


def _of_slices(slices: Slices) -> list[str]:
    if slices.number == 1:
        return []
    return [
        f"each slice of {slices.seconds:g} s begins {slices.warm_up_us / 1e6:g} s early, with queues empty: what had"
        " piled up before is missing"
    ]


@click.command()
@journal_flags
@span_options
@click.option("--synthetic", is_flag=True, help="Instead of a journal, made-up traffic without keys to one topic:")
@click.option(
    "--rate", "records_per_s", type=click.FloatRange(1), default=2048, show_default=True, help="records a second,"
)
@click.option("--record-bytes", type=click.IntRange(7), default=512, show_default=True, help="of so many bytes,")
@click.option("--run", "records_a_run", type=click.IntRange(1), default=1, show_default=True, help="so many a batch,")
@click.option("--connections", type=click.IntRange(1), default=3, show_default=True, help="of so many clients,")
@click.option("--partitions", type=click.IntRange(1), default=3, show_default=True, help="to so many partitions")
@click.option("--brokers", type=click.IntRange(1), default=3, show_default=True, help="on so many brokers;")
@click.option("--service-ms", type=click.FloatRange(0.001), default=0.6, show_default=True, help="a request takes")
@click.option("--slow-ms", type=click.FloatRange(0.001), default=20.5, show_default=True, help="or on broker 0,")
@click.option("--seconds", type=click.FloatRange(1), default=60, show_default=True, help="for so long.")
@click.option("--config", metavar="FILE.toml", help="The proxy's settings as they are now; else its defaults.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="One of them; several times.")
@click.option("--grid", metavar="'NAME=V1,V2 …'", help=f"Settings to try, all combinations; else {DEFAULT_GRID!r}.")
@click.option("--vary", multiple=True, metavar="NAME=V1,V2", help="One more of them; several times.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of all chance: the same gives the same.")
@click.option(
    "--slice", "slice_s", type=click.FloatRange(1), default=SLICE_S, show_default=True, metavar="SECONDS",
    help=f"Simulated by itself, after a warm-up of {WARM_UP_S:g} s.",
)  # fmt: skip
@click.option("--apart", is_flag=True, help="Topics by themselves too, though they share brokers: more for many cores.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write all of it as JSON.")
@click.option("--toml", type=click.Path(dir_okay=False), help="Write the recommended settings, with the evidence.")
@session_options
@job
def command(**given: Any) -> int:
    """What other settings would have done: recorded (or made-up) arrivals through the proxy's own policies, simulated.

    The journal should have a ledger (journal.ledger); without one arrivals are guessed from the batches.
    """
    grid = read_grid([text for text in (given["grid"], *given["vary"]) if text]) or read_grid([DEFAULT_GRID])
    found = variants(read_present(given["config"], given["assignments"]), grid)
    plan = Plan(found, given["seed"], given["slice_s"], given["apart"])
    report = _of_load(given, plan) if given["synthetic"] else _of_journal(given, plan)
    click.echo(as_text(report))
    if given["toml"]:
        output_file.write(Path(given["toml"]), as_toml(report, found).encode())
    if given["output"]:
        output_file.write(Path(given["output"]), msgspec.json.format(msgspec.json.encode(report), indent=2))
    return CLEAN


def _of_load(given: dict[str, Any], plan: Plan) -> ReplayReport:
    if given["span"] != ALL_TIME or any(given[name] is not None for name in ("journal", "journal_topic")):
        raise click.UsageError("--synthetic replays no journal: it goes without --journal, --from and --to")
    load = Load(**{name: given[name] for name in Load._fields})
    return replay_load(given["spark"]("replay"), load, plan)


def _of_journal(given: dict[str, Any], plan: Plan) -> ReplayReport:
    place = journal_place(given["journal"], given["journal_topic"], given["bootstrap_servers"])
    span = given["span"]
    try:
        return replay_journal(read_rows(given["spark"]("replay", place.in_kafka), place, span), plan)
    except NoArrivals as error:
        raise CannotRun(f"There are no arrivals {_words(span)} in {place}.") from error


def _words(span: Span) -> str:
    first, last = (_moment(end) for end in span)
    if first and last:
        return f"between {first} and {last}"
    return f"from {first} on" if first else f"before {last}" if last else "at all"


def _moment(us: int | None) -> str:
    return datetime.datetime.fromtimestamp(us / 1e6, datetime.UTC).isoformat() if us is not None else ""
