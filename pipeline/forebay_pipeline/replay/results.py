"""The result of a replay: the outcomes of all slices summed for each variant, and what the journal itself measured.

In: outcomes (slices.OUTCOMES), or ledger rows. Out: Result, Measured, ReplayReport; small, whatever the journal's size.
`--output` writes a ReplayReport.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from forebay_pipeline.jobs.histogram import bucket_column, percentile
from forebay_pipeline.jobs.skew import skews
from forebay_pipeline.replay.intervals import MOST_BLOCKS, Block, Intervals
from forebay_pipeline.replay.settings import Variant

FAR: Final = 0.25
"""A simulation that is off by more than this is good for ranking only."""


class Result(msgspec.Struct, frozen=True):
    """One variant. Latencies are from receive to acknowledgement, over records; skew and Gini over partitions."""

    settings: dict[str, str]
    """Name → value of each setting that was given or tried."""
    average_ms: float
    p50_ms: float
    p99_ms: float
    batch_bytes: float
    batch_records: float
    requests: int
    skew: float
    """Records of the largest partition ÷ those of the mean: 1 is even."""
    gini: float
    """0 is even; close to 1: all in one of many."""
    pool_peak_bytes: int
    """The most memory that was held at once."""
    records: int
    intervals: Intervals | None = None
    """95 %, over slices; None where there are too few slices, or too many better settings."""
    ranking_only: bool = False
    """It tells whether these settings are better or worse than others; the latencies may be off by more than FAR."""


class Measured(msgspec.Struct, frozen=True):
    """The same latencies as the proxy recorded them."""

    average_ms: float
    p50_ms: float
    p99_ms: float
    records: int


class Unmerged(msgspec.Struct, frozen=True):
    """What was only observed: as clients sent it and brokers took it, without merging. Latencies are over records of
    requests that were answered, as Result has them."""

    average_ms: float
    p50_ms: float
    p99_ms: float
    batch_bytes: float
    batch_records: float
    requests: int
    records: int


class ReplayReport(msgspec.Struct, frozen=True):
    """All results of a replay. `present` and `recommended` are indexes into `results`."""

    source: str
    """recorded or synthetic."""
    results: list[Result]
    present: int
    recommended: int
    reason: str
    assumed: list[str]
    """How the simulation differs from reality."""
    measured: Measured | None
    """Of what was merged; None without a ledger."""
    records: int
    seconds: float
    """From the first arrival to the last."""
    seed: int
    unmerged: Unmerged | None = None
    """None where nothing was only observed."""
    certainty: float | None = None
    """The part of resampled traffic that leads to the same recommendation; None without intervals."""

    @property
    def only_observed(self) -> bool:
        """Whether all that was replayed had only been observed, so that `unmerged` is of the same records."""
        return self.measured is None and self.unmerged is not None and self.unmerged.records == self.records

    def marks(self, index: int) -> list[str]:
        """Whether that result is the `present` one, the `recommended` one, or both."""
        return [name for name in ("present", "recommended") if getattr(self, name) == index]


class _Latencies(NamedTuple):
    """Of so many records."""

    records: int
    average_ms: float
    p50_ms: float
    p99_ms: float


def measured(ledger: DataFrame) -> Measured | None:
    """Latencies of the ledger's acknowledged requests, except those passed on untouched; None without any."""
    took = (F.col("time_us") - F.col("received_us")).alias("took_us")
    rows = ledger.where((F.size("parts") > 0) & (F.col("error_code") == 0)).select("records", took)
    counted = rows.groupBy(bucket_column(F.col("took_us")).alias("bucket")).agg(
        F.sum("records").alias("records"), F.sum(F.col("records") * F.col("took_us")).alias("latency_us")
    )
    found = counted.collect()
    buckets = {row["bucket"]: row["records"] for row in found}
    latencies = _latencies(buckets, sum(row["latency_us"] for row in found))
    if not latencies.records:
        return None
    return Measured(latencies.average_ms, latencies.p50_ms, latencies.p99_ms, latencies.records)


def unmerged(observed: DataFrame) -> Unmerged | None:
    """What was only observed, except what brokers refused; None without any."""
    taken = observed.where("coalesce(error_code, 0) = 0")
    answered = F.col("error_code") == 0
    took = F.col("time_us") - F.col("received_us")
    counted = taken.groupBy(F.when(answered, bucket_column(took)).alias("bucket")).agg(
        F.sum("records").alias("records"),
        F.sum(F.when(answered, F.col("records") * took)).alias("latency_us"),
        F.count("*").alias("batches"),
        F.sum("bytes").alias("bytes"),
    )
    found = counted.collect()
    if not found:
        return None
    buckets = {row["bucket"]: row["records"] for row in found if row["bucket"] is not None}
    latencies = _latencies(buckets, sum(row["latency_us"] or 0 for row in found))
    records, batches = sum(row["records"] for row in found), sum(row["batches"] for row in found)
    return Unmerged(
        average_ms=latencies.average_ms,
        p50_ms=latencies.p50_ms,
        p99_ms=latencies.p99_ms,
        batch_bytes=sum(row["bytes"] for row in found) / batches,
        batch_records=records / batches,
        requests=taken.select("process", "connection", "number").distinct().count(),
        records=records,
    )


def results_of(outcomes: DataFrame, variants: Sequence[Variant], of_records: int | None = None) -> list[Result]:
    """A Result for each variant, in the same order. Reads `outcomes` three times: persist it.

    Where only a sample was simulated, requests are for `of_records`, as many as there are in all.
    """
    sums = ("records", "latency_us", "requests", "batches", "batch_bytes", "batch_records")
    totals = outcomes.groupBy("variant").agg(
        *(F.sum(name).alias(name) for name in sums), F.max("pool_peak").alias("pool_peak")
    )
    found = {row["variant"]: row for row in totals.collect()}
    buckets: dict[int, dict[int, int]] = {}
    for row in _buckets(outcomes).collect():
        buckets.setdefault(row["variant"], {})[row["bucket"]] = row["records"]
    skews = {row["variant"]: row for row in _skews(outcomes).collect()}
    results = []
    for index, variant in enumerate(variants):
        total, skew = found[index], skews[index]
        latencies = _latencies(buckets.get(index, {}), total["latency_us"])
        batches = max(1, total["batches"])
        results.append(
            Result(
                settings=dict(variant.named),
                average_ms=latencies.average_ms,
                p50_ms=latencies.p50_ms,
                p99_ms=latencies.p99_ms,
                batch_bytes=total["batch_bytes"] / batches,
                batch_records=total["batch_records"] / batches,
                requests=_scaled(total["requests"], total["records"], of_records),
                skew=skew["skew"],
                gini=skew["gini"],
                pool_peak_bytes=total["pool_peak"],
                records=total["records"],
            )
        )
    return results


def _scaled(requests: int, records: int, of_records: int | None) -> int:
    return requests if of_records is None or not records else round(requests / records * of_records)


def blocks_of(outcomes: DataFrame, slices: Sequence[int], variants: Sequence[int]) -> list[list[Block]]:
    """For each of these variants what was simulated in each block of these `slices`, which are ascending."""
    count = min(MOST_BLOCKS, len(slices))
    block_of = [(number, place * count // len(slices)) for place, number in enumerate(slices)]
    blocks = outcomes.sparkSession.createDataFrame(block_of, "slice long, block long")
    wanted = outcomes.where(F.col("variant").isin(list(variants))).join(F.broadcast(blocks), "slice")
    sums = ("records", "latency_us", "requests")
    found = {
        (row["variant"], row["block"]): row
        for row in wanted.groupBy("variant", "block").agg(*(F.sum(name).alias(name) for name in sums)).collect()
    }
    buckets: dict[tuple[int, int], dict[int, int]] = {}
    spread = wanted.select("variant", "block", F.inline("latencies")).groupBy("variant", "block", "bucket")
    for row in spread.agg(F.sum("records").alias("records")).collect():
        buckets.setdefault((row["variant"], row["block"]), {})[row["bucket"]] = row["records"]
    return [
        [_block(found.get((variant, block)), buckets.get((variant, block), {})) for block in range(count)]
        for variant in variants
    ]


def _block(row: Row | None, buckets: dict[int, int]) -> Block:
    if row is None:
        return Block(0, 0, 0, {})
    return Block(row["records"], row["latency_us"], row["requests"], buckets)


def _latencies(buckets: dict[int, int], latency_us: int) -> _Latencies:
    records = sum(buckets.values())
    average_ms = latency_us / 1000 / records if records else 0.0
    return _Latencies(records, average_ms, percentile(buckets, 0.5) / 1000, percentile(buckets, 0.99) / 1000)


def _buckets(outcomes: DataFrame) -> DataFrame:
    return (
        outcomes.select("variant", F.inline("latencies"))
        .groupBy("variant", "bucket")
        .agg(F.sum("records").alias("records"))
    )


def _skews(outcomes: DataFrame) -> DataFrame:
    """A row for each variant: variant, skew, gini; the mean over topics, weighted by their records."""
    partitions = (
        outcomes.select("variant", F.inline("shares"))
        .groupBy("variant", "topic", "partition")
        .agg(F.sum("records").alias("records"))
    )
    topics = skews(partitions, ["variant", "topic"], "records")
    weighted = {"skew": F.col("max_to_mean"), "gini": F.col("gini")}
    return topics.groupBy("variant").agg(
        *((F.sum(value * F.col("records")) / F.sum("records")).alias(name) for name, value in weighted.items())
    )
