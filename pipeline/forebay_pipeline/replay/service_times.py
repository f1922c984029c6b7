"""How long each broker takes for a Produce request: fitted to the journal's batches, drawn from in the simulation.

In: batch rows (the columns of journal_rows.BatchRow), and rows of what was only observed (ObservedRow), whose requests
were the clients' own. Out: for each broker the distribution of its times: by size,
apart for acks=all, which waits for followers, and apart for requests that found others under way.

Each request has a connection to itself, so its time is `upstream_us`, from its sending to its answer; requests are put
together again from their batches (sent and answered at the same time). What a broker takes for a request may grow with
what it has to do meanwhile. Of that the rows say whether another request, with the same kind of acks, was under way:

    sent       0    1    50 ms
    answered  20   40    51 ms
    took      20   39     1 ms      the second one found the first under way

What the rows do not say: the replicas of a partition, and which requests were sent apart because they were slow. Times
of acks=all are those of all replica sets of a leader together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from random import Random
from typing import Final, NamedTuple, Protocol

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.jobs.histogram import bucket_column, start_of
from forebay_policies.accumulator import ALL_REPLICAS

SIZES: Final = (16_384, 65_536, 262_144)
"""Bounds, in bytes, between the four size classes of requests."""

FEW: Final = 30
"""A kind with fewer requests has no distribution of its own: that of the nearest kind stands in."""

_TOGETHER_US: Final = 200
"""Batches of one request are sent, and answered, this close to each other."""

STRETCH_US: Final = 600_000_000
"""Rows are ordered within stretches of ten minutes, so that those of a broker need not all be in one task."""


class Times(Protocol):
    """A distribution of times."""

    def draw(self, rng: Random) -> float:
        """One of them, in seconds."""


class Constant(NamedTuple):
    """Always the same time."""

    seconds: float

    def draw(self, rng: Random) -> float:
        """The same time, in seconds."""
        return self.seconds


class Empirical:
    """Times with the frequencies of a histogram (bucket → count, not empty), evenly spread within a bucket."""

    __slots__ = ("_cumulative", "_edges", "count")

    def __init__(self, counts: Mapping[int, int]) -> None:
        buckets = sorted(bucket for bucket in counts if counts[bucket])
        self._edges = [(start_of(bucket) / 1e6, start_of(bucket + 1) / 1e6) for bucket in buckets]
        self._cumulative = list(accumulate((counts[bucket] for bucket in buckets), initial=0))
        self.count = self._cumulative[-1]

    def draw(self, rng: Random) -> float:
        """One of them, in seconds."""
        number = rng.random() * self.count
        place = min(bisect_right(self._cumulative, number), len(self._edges)) - 1
        below, above = self._cumulative[place], self._cumulative[place + 1]
        start, end = self._edges[place]
        return start + (number - below) / (above - below) * (end - start)


class AcksTimes(NamedTuple):
    """A broker's times for one kind of acks, by size class, smallest first.

    `alone`: of requests that found no other of that kind under way; `busy`: of those that did.
    """

    alone: tuple[Times, ...]
    busy: tuple[Times, ...]


class BrokerTimes(NamedTuple):
    """A broker's times: for requests that wait for it alone, and for those that wait for its followers (acks=all)."""

    leader: AcksTimes
    followers: AcksTimes

    def draw(self, size: int, rng: Random, *, waits: bool, busy: bool) -> float:
        """What a request of `size` bytes takes, in seconds; `waits`: for followers."""
        acks = self.followers if waits else self.leader
        return (acks.busy if busy else acks.alone)[bisect_right(SIZES, size)].draw(rng)


def constant(seconds: float) -> BrokerTimes:
    """A broker that takes the same time for each request."""
    times = (Constant(seconds),) * (len(SIZES) + 1)
    acks = AcksTimes(times, times)
    return BrokerTimes(acks, acks)


class Kind(NamedTuple):
    """Requests whose times are taken to be alike."""

    leader: int
    waits: bool
    """For followers: acks=all."""
    busy: bool
    """Others of the same acks were under way."""
    size: int
    """Size class: 0 to len(SIZES)."""


def fit(batches: DataFrame, observed: DataFrame) -> dict[int, BrokerTimes]:
    """Broker → its times. Raises CannotRun if no batch was answered."""
    requests = _requests(batches).union(_observed_requests(observed))
    took = requests.withColumn("bucket", bucket_column(F.col("took_us")))
    counted = took.groupBy("leader", "waits", "busy", "size", "bucket").agg(F.count("*").alias("requests"))
    kinds: dict[Kind, dict[int, int]] = {}
    for row in counted.collect():
        kind = Kind(row["leader"], row["waits"], row["busy"], row["size"])
        kinds.setdefault(kind, {})[row["bucket"]] = row["requests"]
    if not kinds:
        raise CannotRun("There are no answered batches in the journal, so the brokers' service times are unknown.")
    return {leader: _broker(leader, kinds) for leader in sorted({kind.leader for kind in kinds})}


def _requests(batches: DataFrame) -> DataFrame:
    """A row for each request that was answered: leader, waits, busy, size (class), took_us."""
    lane = ("process", "leader", "waits", "stretch")
    answered = batches.where(F.col("fate") != "unknown").select(
        "process",
        "leader",
        (F.col("acks") == ALL_REPLICAS).alias("waits"),
        "bytes",
        F.col("time_us").alias("answered"),
        (F.col("time_us") - F.col("upstream_us")).alias("sent"),
        F.floor(F.col("time_us") / STRETCH_US).alias("stretch"),
    )
    in_turn = Window.partitionBy(*lane).orderBy("answered", "sent")
    near = [F.abs(F.col(name) - F.lag(name).over(in_turn)) <= _TOGETHER_US for name in ("sent", "answered")]
    begins = F.when(near[0] & near[1], 0).otherwise(1)
    requests = (
        answered.withColumn("begins", begins)
        .withColumn("request", F.sum("begins").over(in_turn))
        .groupBy(*lane, "request")
        .agg(F.min("sent").alias("sent"), F.max("answered").alias("answered"), F.sum("bytes").alias("bytes"))
    )
    return _classed(requests.withColumn("took_us", F.col("answered") - F.col("sent")))


def _observed_requests(observed: DataFrame) -> DataFrame:
    """The same of the clients' own requests: those whose time is that of one broker, with nothing in front of them.

    The others count as being under way, from when they came.
    """
    requests = (
        observed.where("error_code = 0 and leader >= 0")
        .groupBy("process", "connection", "number", "leader", (F.col("acks") == ALL_REPLICAS).alias("waits"))
        .agg(
            F.min("received_us").alias("sent"),
            F.max("time_us").alias("answered"),
            F.sum("bytes").alias("bytes"),
            F.min("took_us").alias("took_us"),
        )
        .withColumn("stretch", F.floor(F.col("answered") / STRETCH_US))
        .withColumnRenamed("number", "request")
    )
    return _classed(requests).where("took_us >= 0")


def _classed(requests: DataFrame) -> DataFrame:
    """Each request with whether others of its broker and acks were under way, and its size class."""
    lane = ("process", "leader", "waits", "stretch")
    earlier = Window.partitionBy(*lane).orderBy("sent", "request").rowsBetween(Window.unboundedPreceding, -1)
    return requests.select(
        "leader",
        "waits",
        F.coalesce(F.max("answered").over(earlier) > F.col("sent"), F.expr("false")).alias("busy"),
        sum((F.col("bytes") >= size).cast("int") for size in SIZES).alias("size"),  # type: ignore[union-attr]
        "took_us",
    )


def _broker(leader: int, kinds: Mapping[Kind, Mapping[int, int]]) -> BrokerTimes:
    def times(*, waits: bool, busy: bool) -> tuple[Times, ...]:
        return tuple(_nearest(Kind(leader, waits, busy, size), kinds) for size in range(len(SIZES) + 1))

    def acks(*, waits: bool) -> AcksTimes:
        return AcksTimes(alone=times(waits=waits, busy=False), busy=times(waits=waits, busy=True))

    return BrokerTimes(leader=acks(waits=False), followers=acks(waits=True))


def _nearest(wanted: Kind, kinds: Mapping[Kind, Mapping[int, int]]) -> Empirical:
    """The times of that kind, or of the nearest of its broker: first of another size, then alone for busy or the other
    way round, then of other acks, then all."""
    own = {kind: counts for kind, counts in kinds.items() if kind.leader == wanted.leader}

    def distance(kind: Kind) -> tuple[bool, bool, int]:
        return kind.waits != wanted.waits, kind.busy != wanted.busy, abs(kind.size - wanted.size)

    for kind in sorted(own, key=distance):
        if sum(own[kind].values()) >= FEW:
            return Empirical(own[kind])
    return Empirical(_added(own.values()))


def _added(spreads: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for spread in spreads:
        for bucket, count in spread.items():
            total[bucket] = total.get(bucket, 0) + count
    return total
