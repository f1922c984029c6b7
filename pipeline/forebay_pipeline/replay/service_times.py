"""How long each broker takes for a Produce request: fitted to the journal's batches, drawn from in the simulation.

In: batch rows (the columns of journal_rows.BatchRow). Out: for each broker the distribution of its times, by size, and
separately for requests that found it idle and those that queued behind another.

`upstream_us` is not that time: a broker serves a connection's requests one after the other, so it includes the wait for
earlier ones. Requests are put together again from their batches (sent and answered at the same time), and only the time
after the previous answer counts:

    sent       0    1    50 ms
    answered  20   40    51 ms      upstream 20, 39, 1 ms
    took      20   20     1 ms      the second one from 20 on, behind the first

A request that finds the broker idle also takes the way there and back, which for one that queued is over by then: hence
the two kinds. A process has several connections to a broker, one for each request that it has under way; they are taken
for one all the same, since the broker that serves them is one.
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
from forebay_pipeline.replay.histogram import bucket_column, start_of

SIZES: Final = (16_384, 65_536, 262_144)
"""Bounds, in bytes, between the four size classes of requests."""

FEW: Final = 30
"""A kind with fewer requests has no distribution of its own: that of the nearest kind stands in."""

_TOGETHER_US: Final = 200
"""Batches of one request are sent, and answered, this close to each other."""

_STRETCH_US: Final = 600_000_000
"""Requests are ordered within stretches of ten minutes, so that a broker's requests need not all be in one task."""


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


class BrokerTimes(NamedTuple):
    """A broker's times by size class, smallest first, for requests that find it idle and for those that queue."""

    idle: tuple[Times, ...]
    queued: tuple[Times, ...]

    def draw(self, size: int, rng: Random, *, queued: bool) -> float:
        """What a request of `size` bytes takes, in seconds."""
        times = self.queued if queued else self.idle
        return times[bisect_right(SIZES, size)].draw(rng)


def constant(seconds: float) -> BrokerTimes:
    """A broker that takes the same time for each request."""
    times = (Constant(seconds),) * (len(SIZES) + 1)
    return BrokerTimes(times, times)


class Kind(NamedTuple):
    """Requests whose times are taken to be alike."""

    leader: int
    queued: bool
    size: int
    """Size class: 0 to len(SIZES)."""


def fit(batches: DataFrame) -> dict[int, BrokerTimes]:
    """Broker → its times. Raises CannotRun if no batch was answered."""
    took = _requests(batches).withColumn("bucket", bucket_column(F.col("took_us")))
    counted = took.groupBy("leader", "queued", "size", "bucket").agg(F.count("*").alias("requests"))
    kinds: dict[Kind, dict[int, int]] = {}
    for row in counted.collect():
        kinds.setdefault(Kind(row["leader"], row["queued"], row["size"]), {})[row["bucket"]] = row["requests"]
    if not kinds:
        raise CannotRun("There are no answered batches in the journal, so the brokers' service times are unknown.")
    return {leader: _broker(leader, kinds) for leader in sorted({kind.leader for kind in kinds})}


def _requests(batches: DataFrame) -> DataFrame:
    """A row for each request that was answered: leader, queued, size (class), took_us."""
    lane = ("process", "leader", "stretch")
    answered = batches.where(F.col("fate") != "unknown").select(
        "process",
        "leader",
        "bytes",
        F.col("time_us").alias("answered"),
        (F.col("time_us") - F.col("upstream_us")).alias("sent"),
        F.floor(F.col("time_us") / _STRETCH_US).alias("stretch"),
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
    before = F.lag("answered").over(Window.partitionBy(*lane).orderBy("answered", "request"))
    return requests.withColumn("before", before).select(
        "leader",
        F.coalesce(F.col("before") > F.col("sent"), F.expr("false")).alias("queued"),
        sum((F.col("bytes") >= size).cast("int") for size in SIZES).alias("size"),  # type: ignore[union-attr]
        (F.col("answered") - F.greatest("sent", "before")).alias("took_us"),
    )


def _broker(leader: int, kinds: Mapping[Kind, Mapping[int, int]]) -> BrokerTimes:
    def times(*, queued: bool) -> tuple[Times, ...]:
        return tuple(_nearest(Kind(leader, queued, size), kinds) for size in range(len(SIZES) + 1))

    return BrokerTimes(idle=times(queued=False), queued=times(queued=True))


def _nearest(wanted: Kind, kinds: Mapping[Kind, Mapping[int, int]]) -> Empirical:
    """The times of that kind, or of the nearest of its broker: first of another size, then idle for queued or the other
    way round, then all."""
    own = {kind: counts for kind, counts in kinds.items() if kind.leader == wanted.leader}
    for kind in sorted(own, key=lambda kind: (kind.queued != wanted.queued, abs(kind.size - wanted.size))):
        if sum(own[kind].values()) >= FEW:
            return Empirical(own[kind])
    return Empirical(_added(own.values()))


def _added(spreads: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for spread in spreads:
        for bucket, count in spread.items():
            total[bucket] = total.get(bucket, 0) + count
    return total
