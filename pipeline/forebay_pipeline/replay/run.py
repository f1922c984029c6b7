"""A replay, from the journal's rows, or a Load, to its report.

In: rows of KINDS (or a Load), and a Plan: the present settings and others. Out: a ReplayReport: latencies, batches,
requests, skew and memory for each of the settings, with 95 % intervals; one of them recommended. Raises CannotRun if
there are no arrivals, or no batches that tell how long the brokers take.

    arrivals, leaders, service times, proxy times → slices × settings, simulated → summed → recommendation
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.clusters import clusters, mixed
from forebay_pipeline.journal.source import of_kind
from forebay_pipeline.replay import arrivals as arriving
from forebay_pipeline.replay.arrivals import SYNTHETIC, Load
from forebay_pipeline.replay.intervals import LEAST_BLOCKS, certainty, draws, intervals
from forebay_pipeline.replay.proxy_times import NO_WAY, TURN, fit_turn, fit_way
from forebay_pipeline.replay.recommendation import choose, recommend
from forebay_pipeline.replay.results import (
    Measured,
    ReplayReport,
    Result,
    Unmerged,
    blocks_of,
    measured,
    results_of,
    unmerged,
)
from forebay_pipeline.replay.service_times import constant, fit
from forebay_pipeline.replay.settings import Variant
from forebay_pipeline.replay.simulation import World
from forebay_pipeline.replay.slices import LEAST_CHOSEN, Slices, Task, busy, sample, simulated
from forebay_pipeline.replay.topics import groups_of, leaders_of
from forebay_pipeline.replay.trust import marked
from forebay_policies.journal_rows import BatchRow, ChoiceRow, GaugeRow, LedgerRow, ObservedRow

KINDS: Final = (BatchRow, LedgerRow, ObservedRow, ChoiceRow, GaugeRow)
"""The kinds of rows that it needs."""
SLICE_S: Final = 60.0
WITH_INTERVALS: Final = 20
"""Settings with intervals: the present and the recommended ones, and others with the best averages."""

_ALWAYS: Final = (
    "requests arrive when they were recorded, whatever became of earlier ones; a client that waits for answers would"
    " send later",
    "nothing fails and no leader changes; service times are drawn at random from those of the whole span; of the load"
    " they know whether another request was under way",
    "a leader's partitions have one replica set (acks=all), and no partition is slower than others of its leader",
    "records are not compressed; the proxy's own CPU is free, except for a turn of its event loop and a request's way"
    " through it",
    "latency is from receive to acknowledgement; waiting for earlier answers on the same connection is not included",
)
_APART: Final = "topics were simulated apart, as if each had the brokers, the connections and buffer.memory to itself"
_NO_LEDGER: Final = (
    "there is no ledger (journal.ledger): arrivals are guessed from batches, spread evenly over their linger, with each"
    " run a request of its own"
)
_SILENT: Final = "brokers that answered nothing ({}) are left out: their partitions are simulated on others"
_OBSERVED: Final = (
    "what was only observed is simulated as if merged; brokers' times are those of the requests that clients"
    " sent themselves, and merged ones are fewer and larger"
)


class NoArrivals(CannotRun):
    """There is nothing to replay."""

    def __init__(self) -> None:
        super().__init__("There are no arrivals to replay.")


class Plan(NamedTuple):
    """How to replay."""

    variants: Sequence[Variant]
    """The present settings first."""
    seed: int = 1
    slice_s: float = SLICE_S
    apart: bool = False
    """Simulate each topic by itself, even if topics share brokers."""
    sample: float = 1.0
    """The part of the slices to simulate."""


class Traffic(NamedTuple):
    """What is replayed, and where it comes from."""

    source: str
    """recorded or synthetic."""
    arrivals: DataFrame
    """In arrivals.SCHEMA."""
    world: World
    measured: Measured | None
    assumed: Sequence[str]
    """What was guessed, as sentences."""
    unmerged: Unmerged | None = None


class _Extent(NamedTuple):
    """How much there is, and from when to when."""

    records: int
    first_us: int
    last_us: int


def replay_journal(rows: DataFrame, plan: Plan) -> ReplayReport:
    """Replay the traffic of `rows`, which has those of KINDS.

    Raises NoArrivals without arrivals, CannotRun without answered batches.
    """
    batches = of_kind(rows, BatchRow).drop("kind").persist()
    ledger = of_kind(rows, LedgerRow).where(F.size("parts") > 0).persist()
    observed = of_kind(rows, ObservedRow).drop("kind").persist()
    try:
        traffic = _recorded(batches, ledger, observed, of_kind(rows, ChoiceRow), plan)
        if several := mixed(clusters(of_kind(rows, GaugeRow))):
            traffic = traffic._replace(assumed=[several.rstrip("."), *traffic.assumed])
        return _replayed(traffic, plan)
    finally:
        batches.unpersist()
        ledger.unpersist()
        observed.unpersist()


def _recorded(batches: DataFrame, ledger: DataFrame, observed: DataFrame, choices: DataFrame, plan: Plan) -> Traffic:
    arrivals, assumed = arriving.of_ledger(ledger), []
    if ledger.isEmpty():
        arrivals, assumed = arriving.of_batches(batches), [] if batches.isEmpty() else [_NO_LEDGER]
    before = unmerged(observed)
    if before is not None:
        arrivals = arrivals.union(arriving.of_observed(observed))
        assumed.append(_OBSERVED)
    if arrivals.isEmpty():
        raise NoArrivals
    brokers = fit(batches, observed)
    place = ("topic", "partition", "leader", "time_us")
    places = batches.select(*place).union(observed.select(*place)).where("leader >= 0")
    led = F.col("leader").isin(list(brokers))
    if silent := sorted(row["leader"] for row in places.where(~led).select("leader").distinct().collect()):
        assumed.append(_SILENT.format(", ".join(map(str, silent))))
    sizes = ("topic", "partitions")
    world = World(
        leaders_of(
            places.where(led),
            choices.select(*sizes).union(observed.select(*sizes)),
            arrivals,
            brokers,
        ),
        brokers,
        fit_turn(batches, plan.variants[0].settings.linger_ms),
        fit_way(ledger, batches),
    )
    return Traffic("recorded", arrivals, world, measured(ledger), assumed, before)


def replay_load(spark: SparkSession, load: Load, plan: Plan) -> ReplayReport:
    """Replay made-up traffic. Raises NoArrivals if it comes to no records."""
    times = {broker: constant((load.service_ms if broker else load.slow_ms) / 1000) for broker in range(load.brokers)}
    world = World({SYNTHETIC: load.leaders}, times, TURN, NO_WAY)
    arrivals = arriving.of_load(spark, load, plan.seed)
    return _replayed(Traffic("synthetic", arrivals, world, None, []), plan)


def _replayed(traffic: Traffic, plan: Plan) -> ReplayReport:
    extent = _extent(traffic.arrivals)
    slices = Slices.over(extent.first_us, extent.last_us, plan.slice_s)
    settings = [variant.settings for variant in plan.variants]
    numbers = busy(traffic.arrivals, slices) if plan.sample < 1 else range(slices.number)
    task = Task(
        world=traffic.world,
        variants=settings,
        stripes=1,
        slices=slices,
        seed=plan.seed,
        chosen=sample(numbers, plan.sample, plan.seed),
    )
    task = task._replace(stripes=_stripes(traffic.arrivals, task))
    outcomes = simulated(traffic.arrivals, groups_of(traffic.world.leaders, apart=plan.apart), task).persist()
    try:
        results = results_of(outcomes, plan.variants, None if task.chosen is None else extent.records)
        found = recommend(results, 0)
        results, certain = _with_intervals(outcomes, task, results, found.chosen, extent.records)
    finally:
        outcomes.unpersist()
    return ReplayReport(
        source=traffic.source,
        # What was observed is simulated as well, and has not been measured.
        results=marked(results, 0, traffic.measured if traffic.unmerged is None else None),
        present=0,
        recommended=found.chosen,
        reason=found.reason,
        assumed=[
            *traffic.assumed,
            *([_APART] if plan.apart else []),
            *_of_slices(task, len(numbers), plan.sample),
            *_ALWAYS,
        ],
        measured=traffic.measured,
        records=extent.records,
        seconds=(extent.last_us - extent.first_us) / 1e6,
        seed=plan.seed,
        unmerged=traffic.unmerged,
        certainty=certain,
    )


def _with_intervals(
    outcomes: DataFrame, task: Task, results: list[Result], chosen: int, records: int
) -> tuple[list[Result], float | None]:
    """The results, those that matter with intervals; and how certain the `chosen` one is."""
    by_average = sorted(range(len(results)), key=lambda index: results[index].average_ms)
    matter = list(dict.fromkeys([0, chosen, *by_average]))[:WITH_INTERVALS]
    slices = range(task.slices.number) if task.chosen is None else task.chosen
    if len(slices) < LEAST_BLOCKS:
        return results, None
    drawn = draws(blocks_of(outcomes, slices, matter), records, task.seed)
    if drawn is None:
        return results, None
    of = {index: intervals(each) for index, each in zip(matter, drawn, strict=True)}
    made = [msgspec.structs.replace(result, intervals=of.get(index)) for index, result in enumerate(results)]
    return made, certainty(drawn, matter.index(chosen), lambda each: choose(each, 0))


def _extent(arrivals: DataFrame) -> _Extent:
    [row] = arrivals.agg(F.sum("records"), F.min("at_us"), F.max("at_us")).collect()
    if row[1] is None:
        raise NoArrivals
    return _Extent(*row)


def _stripes(arrivals: DataFrame, task: Task) -> int:
    """Into how many tasks to split a slice's variants, so that few slices keep all cores busy."""
    cores = arrivals.sparkSession.sparkContext.defaultParallelism
    return min(len(task.variants), -(-2 * cores // task.slices_simulated))


def _of_slices(task: Task, count: int, share: float) -> list[str]:
    """`count`: of how many slices the sample is, or would be."""
    slices = task.slices
    lines = []
    if task.chosen is not None:
        lines.append(
            f"the other slices are like those of the sample: {len(task.chosen):,} of {count:,}, at random, one"
            " of each stretch of time"
        )
    elif share < 1:
        lines.append(f"all {count:,} slices were simulated: too few for a sample of {LEAST_CHOSEN} or more")
    if slices.number > 1:
        lines.append(
            f"each slice of {slices.seconds:g} s begins {slices.warm_up_us / 1e6:g} s early, with empty queues: an"
            " older backlog is missing"
        )
    return lines
