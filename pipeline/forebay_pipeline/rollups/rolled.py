"""What some days that are rolled up tell: a Summary, and the Facts of advice, as their rows would.

In: a RollupStore and the days. Out: counts are those of the rows, percentiles within 1 %. What is about in Facts (a
client's addresses, requests) is, over days, about as much. Raises CannotRun if the days have neither batches nor
clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.advice import clients, counts
from forebay_pipeline.advice.facts import BatchUse, BrokerUse, Facts
from forebay_pipeline.advice.gather import MOST_TOPICS
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.clusters import clusters
from forebay_pipeline.partitions import batches as of_batches
from forebay_pipeline.partitions import workers
from forebay_pipeline.partitions.measures import runaways_of
from forebay_pipeline.partitions.runaway_detector import Change
from forebay_pipeline.partitions.runaway_windows import CHANGES, Watch, change_row
from forebay_pipeline.partitions.summary import NOTHING, Group, MetadataUse, RackUse, Summary
from forebay_pipeline.rollups import tables
from forebay_pipeline.rollups.days import before, missing_us, span_of_all, stretch
from forebay_pipeline.rollups.store import RollupStore
from forebay_pipeline.rollups.tables import Table
from forebay_pipeline.rollups.times import percentiles_of

_BY: Final = ["topic", "partition"]


class Rolled:
    """Some days of a store."""

    def __init__(self, spark: SparkSession, store: RollupStore, days: Sequence[str], batches: DataFrame) -> None:
        self._spark = spark
        self._store = store
        self._days = days
        self._found: dict[Table, DataFrame] = {}
        self.batches: Final = batches
        """The table BATCHES, with all days added up."""

    def read(self, table: Table) -> DataFrame:
        """The table of these days; its files are looked for once."""
        if table not in self._found:
            self._found[table] = self._store.read(table, self._days)
        return self._found[table]

    def gauges(self) -> DataFrame:
        """The table GAUGES, for workers.py: what was counted on days that are not there is of no time that is."""
        return self.read(tables.GAUGES).withColumn("stretch", stretch(self._days))

    def summary(self, max_rows: int) -> Summary:
        """With so many groups, and topics, at most.

        Raises CannotRun if there are neither batches nor clients. Where there are no batches, the time is that of the
        days.
        """
        ((first_us, last_us),) = self.read(tables.HOURS).agg(F.min("first_us"), F.max("last_us")).collect()
        if first_us is not None:
            total = self._total()
        elif self.read(tables.CLIENTS).isEmpty():
            raise CannotRun(f"There are no batches in the rollups in {self._store.folder}.")
        else:
            (first_us, last_us), total = span_of_all(self._days), NOTHING
        groups, groups_left_out = self._groups(total.bytes, max_rows)
        topics, topics_left_out = of_batches.topics(self.batches, max_rows)
        gauges = self.gauges()
        changes = self.read(tables.RUNAWAYS).where(F.col("watch").isNull()).select(*CHANGES.names)
        if cut_off := list(self._cut_off()):
            changes = changes.union(self._spark.createDataFrame(cut_off, CHANGES))
        runaways, changes_left_out = runaways_of(changes, self._lasting())
        return Summary(
            journal=f"rollups in {self._store.folder}",
            first_us=first_us,
            last_us=last_us,
            by=_BY,
            total=total,
            groups=groups,
            groups_left_out=groups_left_out,
            topics=topics,
            topics_left_out=topics_left_out,
            reasons=of_batches.reasons(self.batches),
            fates=of_batches.fates(self.batches),
            runaways=runaways,
            runaway_changes_left_out=changes_left_out,
            metadata=self._metadata(gauges),
            workers=workers.workers(gauges),
            racks=self._racks(gauges),
            torn=self._torn(),
            clusters=clusters(gauges),
            missing_us=missing_us(self._days, first_us, last_us),
        )

    def facts(self, known: Facts) -> Facts:
        """`known`, with all that the days tell."""
        found = clients.clients(self._clients(), self.batches)
        if found.clients:
            found = found._replace(missing_us=missing_us(self._days, found.first_us, found.last_us))
        return known._replace(
            batches=self._uses(),
            brokers=self._brokers(),
            topics=counts.topics(self.batches, MOST_TOPICS),
            topic_racks=counts.racks(self.read(tables.RACKS), MOST_TOPICS),
            clients=found,
        )

    def _total(self) -> Group:
        levels = percentiles_of(self.read(tables.HOUR_TIMES), [], of_batches.TIMES)
        (row,) = self.batches.agg(*of_batches.counts()).crossJoin(levels).collect()
        return of_batches.as_group(row.asDict(), [], 1.0)

    def _groups(self, whole_bytes: int, most: int) -> tuple[list[Group], int]:
        """Histograms are read only of the groups that are shown."""
        counted = self.batches.groupBy(*_BY).agg(*of_batches.counts())
        found, left_out = of_batches.largest(counted, _BY, whole_bytes, most)
        shown = self._spark.createDataFrame(
            [(row["topic"], row["partition"]) for row in found], "topic string, partition bigint"
        )
        # The topics again, as a filter that Parquet knows.
        of_topics = self.read(tables.BATCH_TIMES).where(F.col("topic").isin(sorted({row["topic"] for row in found})))
        levels = percentiles_of(of_topics.join(F.broadcast(shown), _BY), _BY, of_batches.TIMES)
        times = {(row["topic"], row["partition"]): row.asDict() for row in levels.collect()}
        groups = (row.asDict() | times[row["topic"], row["partition"]] for row in found)
        return [of_batches.as_group(row, _BY, row["share"]) for row in groups], left_out

    def _lasting(self) -> Iterator[tuple[str, Change]]:
        """Runaways that had begun before the first day, if that goes on from the one before."""
        earlier = before(self._days[0])
        if earlier not in self._store.days() or not self._store.mark(self._days[0]).follows:
            return
        for topic, watch in self._watches(earlier):
            yield from ((topic, change) for change in watch.open.values())

    def _cut_off(self) -> Iterator[dict[str, Any]]:
        """The ends of runaways that lasted when a day ended that the next one does not go on from: nobody knows of
        more."""
        for day, following in pairwise(self._days):
            if before(following) != day or not self._store.mark(following).follows:
                for topic, watch in self._watches(day):
                    yield from (change_row(topic, change) for change in watch.state.quiet())

    def _watches(self, day: str) -> Iterator[tuple[str, Watch]]:
        """Topics, and what was to be known of them when that day ended."""
        watches = self._store.read(tables.RUNAWAYS, [day]).where(F.col("watch").isNotNull())
        for row in watches.orderBy("topic").collect():
            yield row["topic"], msgspec.json.decode(row["watch"], type=Watch)

    def _metadata(self, gauges: DataFrame) -> MetadataUse:
        sums = (F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in tables.METADATA.values)
        levels = percentiles_of(self.read(tables.METADATA_TIMES), [], ["took_us"])
        (sent,) = self.read(tables.METADATA).agg(*sums).crossJoin(levels).collect()
        return workers.metadata_use(gauges, sent.asDict())

    def _racks(self, gauges: DataFrame) -> RackUse | None:
        use = workers.racks(gauges)
        if use is None:
            return None
        return msgspec.structs.replace(use, missing_us=missing_us(self._days, use.first_us, use.last_us))

    def _torn(self) -> int:
        most = self.read(tables.TORN).groupBy("error").agg(F.max("lines").alias("lines"))
        (row,) = most.agg(F.coalesce(F.sum("lines"), F.lit(0))).collect()
        return int(row[0])

    def _uses(self) -> BatchUse:
        names = ("requests", *counts.LINGERED)
        (row,) = self.read(tables.USES).agg(*(F.sum(name).alias(name) for name in names)).collect()
        return counts.sums(self.batches)._replace(requests=row["requests"], lingering=counts.lingered_as(row))

    def _brokers(self) -> list[BrokerUse]:
        levels = percentiles_of(self.read(tables.BROKER_TIMES), ["leader"], ["upstream_us"])
        medians = levels.select("leader", F.col("upstream_us")[0].alias("upstream_us"))
        return counts.as_brokers(self.batches.groupBy("leader").agg(*counts.broker_sums()).join(medians, "leader"))

    def _clients(self) -> clients.ClientTables:
        levels = percentiles_of(self.read(tables.CLIENT_TIMES), clients.CLIENT, ["took_us"])
        served = tables.CLIENT_REQUESTS.summed(self.read(tables.CLIENT_REQUESTS)).join(levels, clients.CLIENT, "left")
        *sums, most, first, last = tables.CLIENTS.values
        treated = self.read(tables.CLIENTS).groupBy(*tables.CLIENTS.keys)
        # Most clients use the same partitions every day: all of them.
        chosen = self.read(tables.CHOICES).groupBy(*tables.CHOICES.keys, "used").agg(F.sum("turns").alias("turns"))
        extremes = F.max(most).alias(most), F.min(first).alias(first), F.max(last).alias(last)
        counted = treated.agg(*(F.sum(name).alias(name) for name in sums), *extremes)
        return clients.ClientTables(counted, served, chosen)


@contextmanager
def rolled(spark: SparkSession, store: RollupStore, days: Sequence[str]) -> Iterator[Rolled]:
    """The days, all of which the store has; what most is made of stays in memory while the context lasts."""
    batches = tables.BATCHES.summed(store.read(tables.BATCHES, days)).persist()
    try:
        yield Rolled(spark, store, days, batches)
    finally:
        batches.unpersist()
