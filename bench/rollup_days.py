"""Days of rollups for bench n, made up: what a busy cluster's would have, of as many days as wanted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.advice.counts import LINGERED
from forebay_pipeline.journal.schema import DAY
from forebay_pipeline.journal.span import DAY_US, HOUR_US
from forebay_pipeline.partitions.workers import TOTALS
from forebay_pipeline.rollups import tables
from forebay_pipeline.rollups.days import day_at, span_of
from forebay_pipeline.rollups.store import Mark, RollupStore
from forebay_pipeline.rollups.tables import TABLES, VERSION

FIRST: Final = "2026-08-24"
_TIMES: Final = ("time_us", "first_us", "last_us")


class Busy(NamedTuple):
    """How much there is of a day."""

    topics: int = 100
    partitions: int = 50
    """Of each."""
    buckets: int = 150
    """Of each histogram: three quarters of it within a factor of ten."""
    processes: int = 10
    clients: int = 200
    """Each sends to ten topics from five addresses."""


def write_days(spark: SparkSession, folder: Path, days: int, busy: Busy) -> list[str]:
    """The days. What has no time in it is a copy of the first day's."""
    store = RollupStore(spark, str(folder))
    first = _first_day(spark, busy)
    store.write(FIRST, {table: first[table.name] for table in TABLES}, Mark(0, 0, follows=False))
    start_us = span_of(FIRST).first
    assert start_us is not None
    names = [day_at(start_us + number * DAY_US) for number in range(days)]
    for table in TABLES:
        place = folder / f"v{VERSION}" / table.name
        if not table.columns.keys().isdisjoint(_TIMES):
            _shifted(spark, store.read(table, [FIRST]), days).write.mode("append").partitionBy(DAY).parquet(str(place))
            continue
        for name in names[1:]:
            shutil.copytree(place / f"{DAY}={FIRST}", place / f"{DAY}={name}")
    mark = folder / f"v{VERSION}" / "days" / f"{FIRST}.json"
    for name in names[1:]:
        shutil.copy(mark, mark.with_name(f"{name}.json"))
    return names


def _shifted(spark: SparkSession, rows: DataFrame, days: int) -> DataFrame:
    """The other days, of the first one."""
    later = rows.crossJoin(F.broadcast(spark.range(1, days).withColumnRenamed("id", "later")))
    times = {name: F.col(name) + F.col("later") * DAY_US for name in rows.columns if name in _TIMES}
    dated = (
        later.withColumns(times).withColumn(DAY, F.expr(f"string(date_add(DATE'{FIRST}', int(later)))")).drop("later")
    )
    return dated.repartition(DAY).sortWithinPartitions(*rows.columns[:2])


def _first_day(spark: SparkSession, busy: Busy) -> dict[str, DataFrame]:
    places = spark.range(busy.topics * busy.partitions).selectExpr(
        f"concat('topic-', id div {busy.partitions}) AS topic", f"id % {busy.partitions} AS partition", "id AS place"
    )
    start_us = span_of(FIRST).first
    assert start_us is not None
    hours = spark.range(24).selectExpr(f"{start_us} + id * {HOUR_US} AS time_us", "id AS hour")

    def histogram(keys: DataFrame, *measures: str) -> DataFrame:
        of = ", ".join(f"'{measure}'" for measure in measures)
        each = keys.selectExpr("*", f"explode(array({of})) AS measure")
        last = 250 + busy.buckets
        return each.selectExpr("*", f"explode(sequence(250, {last - 1})) AS bucket").selectExpr(
            "*", f"1 + abs(hash(*)) % ({last} - bucket) AS batches"
        )

    sent = "20000 AS batches, 400000 AS records, 40000000 + abs(hash(place)) % 1000000 AS bytes, 60000 AS runs"
    clients = spark.range(busy.clients).selectExpr(
        "concat('producer-', id) AS client_id", "'' AS principal", "id AS client"
    )
    theirs = clients.selectExpr(
        "*", f"explode(transform(sequence(0, 9), n -> concat('topic-', (client + n) % {busy.topics}))) AS topic"
    )
    gauges = hours.crossJoin(spark.range(busy.processes).withColumnRenamed("id", "worker")).selectExpr(
        "time_us",
        "concat('here-', worker) AS process",
        "worker",
        f"{start_us} - 1000000000 AS started_us",
        "'' AS cluster_id",
        "time_us AS first_us",
        f"time_us + {HOUR_US - 1} AS last_us",
        "3600 AS seconds",
        "hour AS seconds_waited",
        "33554432 AS pool_bytes",
        "1000000 * hour AS pool_used_bytes",
        "33554432 - 1000000 * hour AS pool_available_bytes",
        *(f"100 * hour AS {name}" for name in ("queued_bytes", "queued_batches", "in_flight_requests")),
        *(f"time_us div 1000000 AS {name}" for name in TOTALS),
        *(f"time_us div 1000000 - 3600 AS first_{name}" for name in TOTALS),
    )
    whole = busy.topics * busy.partitions * 20_000
    return {
        tables.BATCHES.name: places.selectExpr(
            "*",
            "partition % 12 AS leader",
            "true AS movable",
            "explode(array('linger', 'full')) AS reason",
            "'acknowledged' AS fate",
            "0 AS error_code",
            *sent.split(", "),
            "40000000 AS linger_us",
            "4000000000 AS latency_us",
        ),
        tables.BATCH_TIMES.name: histogram(places.drop("place"), "linger_us", "upstream_us"),
        tables.BROKER_TIMES.name: histogram(spark.range(12).withColumnRenamed("id", "leader"), "upstream_us"),
        tables.HOURS.name: hours.selectExpr(
            "time_us",
            f"{whole} AS batches",
            f"{40 * whole} AS bytes",
            f"{20 * whole} AS records",
            "0 AS failed",
            "time_us AS first_us",
            f"time_us + {HOUR_US - 1} AS last_us",
        ),
        tables.HOUR_TIMES.name: histogram(hours.drop("hour"), "linger_us", "upstream_us", "wait_us", "bytes"),
        tables.PARTITION_HOURS.name: places.crossJoin(hours).selectExpr(
            "topic", "partition", "time_us", "900 AS batches", "1800000 + place AS bytes"
        ),
        tables.USES.name: spark.range(1).selectExpr(f"{whole} AS requests", *(f"1e6 AS {name}" for name in LINGERED)),
        tables.RUNAWAYS.name: spark.createDataFrame([], tables.RUNAWAYS.schema),
        tables.GAUGES.name: gauges,
        tables.METADATA.name: spark.range(1).selectExpr(
            "9000 AS requests", "3 AS failed", "900000 AS request_bytes", "9000000 AS response_bytes"
        ),
        tables.METADATA_TIMES.name: histogram(spark.range(1).select(), "took_us"),
        tables.RACKS.name: places.where("partition = 0").selectExpr(
            "topic", "1000000000 AS same_bytes", "2000000000 AS other_bytes", "0 AS unknown_bytes"
        ),
        tables.CLIENTS.name: theirs.selectExpr(
            "client_id",
            "principal",
            "topic",
            "'null_key' AS reason",
            "7 AS version",
            "50000 + client AS batches",
            "500000 AS records",
            "0 AS errors",
            "0 AS opens",
            "null AS partitions",
            f"{start_us} AS first_us",
            f"{start_us + DAY_US - 1} AS last_us",
        ),
        tables.CLIENT_REQUESTS.name: clients.selectExpr("client_id", "principal", "400000 AS requests"),
        tables.CLIENT_TIMES.name: histogram(clients.drop("client"), "took_us"),
        tables.CHOICES.name: theirs.selectExpr(
            "client_id",
            "principal",
            "explode(transform(sequence(0, 4), n -> concat('10.0.', client, '.', n))) AS host",
            "topic",
            f"sequence(0L, {busy.partitions}L - 1) AS used",
            "2000 AS turns",
        ),
        tables.TORN.name: spark.createDataFrame([], tables.TORN.schema),
    }
