"""Tables of Apache Iceberg in one folder, in a catalog.

The catalog is the session's `forebay`, if it has one by that name: then FOLDER/batch is `forebay.<last name of
FOLDER>.batch`. Else it is a Hadoop catalog: the folder is all there is.

A batch is appended once, also after a crash: each snapshot names its batch and the query that it is of.
"""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.journal.schema import DAY
from forebay_pipeline.storage import Storage

_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
_NAMED: Final = "spark.sql.catalog.forebay"
_QUERY: Final = "forebay.query"
_BATCH: Final = "forebay.batch"
_PROPERTIES: Final = {
    "write.spark.accept-any-schema": "true",  # with mergeSchema: a later version adds its columns
    "write.distribution-mode": "none",  # rows come in the order that they are to have
    "write.spark.fanout.enabled": "true",
    "write.target-file-size-bytes": str(256 << 20),
    "write.metadata.delete-after-commit.enabled": "true",
    "commit.retry.num-retries": "20",
}


class IcebergTables:
    """See tables.Tables."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        above, self._namespace = Storage(spark).split(folder)
        self._folder = f"{above.rstrip('/')}/{self._namespace}"
        self._catalog = _catalog(spark, above)
        self._appended: dict[tuple[str, str], int] = {}

    def read(self, name: str) -> DataFrame | None:
        return self._spark.table(self._table(name)) if self._exists(name) else None

    def append(self, name: str, rows: DataFrame, query: str, batch: int) -> None:
        if not self._exists(name):
            self._create(name, rows)
        if self.last(name, query) < batch:
            writer = rows.writeTo(self._table(name)).option("mergeSchema", "true")
            writer.option(f"snapshot-property.{_QUERY}", query).option(f"snapshot-property.{_BATCH}", batch).append()
        self._appended[name, query] = batch

    def last(self, name: str, query: str) -> int:
        if (name, query) not in self._appended:  # nobody else adds to a query's batches
            self._appended[name, query] = self._batches(name).get(query, -1) if self._exists(name) else -1
        return self._appended[name, query]

    def files(self, name: str) -> int:
        return self._spark.table(self._table(name, "files")).count() if self._exists(name) else 0

    def rewrite(self, name: str, order: Sequence[str]) -> None:
        by = ", ".join(f"{column} ASC NULLS LAST" for column in order)
        options = "options => map('min-input-files', '2')"
        self._call("rewrite_data_files", name, f"strategy => 'sort', sort_order => '{by}', {options}")

    def forget(self, name: str, days: int) -> None:
        before = _timestamp(days)
        self._keep_batches(name)
        self._call("expire_snapshots", name, f"older_than => {before}, retain_last => 1")
        # Iceberg refuses younger ones: they may be of a commit that is under way.
        self._call("remove_orphan_files", name, f"older_than => {_timestamp(max(days, 1))}")

    def _create(self, name: str, rows: DataFrame) -> None:
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._catalog}.{_quoted(self._namespace)}")
        writer = rows.limit(0).writeTo(self._table(name)).using("iceberg").partitionedBy(F.col(DAY))
        # A Hadoop catalog knows where a table is by its name, and wants to be told nothing.
        hadoop = self._spark.conf.get(f"spark.sql.catalog.{self._catalog}.type", None) == "hadoop"
        for key, value in {**_PROPERTIES, **({} if hadoop else {"location": f"{self._folder}/{name}"})}.items():
            writer = writer.tableProperty(key, value)
        writer.create()

    def _batches(self, name: str) -> dict[str, int]:
        """Query → its last batch that the table has: by snapshots, and by what was noted of those that are gone."""
        summary = [F.element_at("summary", F.lit(key)) for key in (_QUERY, _BATCH)]
        snapshots = self._spark.table(self._table(name, "snapshots"))
        found = snapshots.select(summary[0].alias("query"), summary[1].cast("long").alias("batch"))
        found = found.dropna().groupBy("query").agg(F.max("batch").alias("batch"))
        last = {row.query: row.batch for row in found.collect()}
        for row in self._spark.sql(f"SHOW TBLPROPERTIES {self._table(name)}").collect():
            if row.key.startswith(f"{_BATCH}."):
                query = row.key.removeprefix(f"{_BATCH}.")
                last[query] = max(int(row.value), last.get(query, -1))
        return last

    def _keep_batches(self, name: str) -> None:
        """Note which batches the table has: the snapshots that tell are about to go."""
        noted = ", ".join(f"'{_BATCH}.{query}' = '{batch}'" for query, batch in self._batches(name).items())
        if noted:
            self._spark.sql(f"ALTER TABLE {self._table(name)} SET TBLPROPERTIES ({noted})")

    def _exists(self, name: str) -> bool:
        return self._spark.catalog.tableExists(self._table(name))

    def _table(self, *names: str) -> str:
        return ".".join([self._catalog, *map(_quoted, (self._namespace, *names))])

    def _call(self, procedure: str, name: str, arguments: str) -> Any:
        table = self._table(name).replace("\\", "\\\\").replace("'", "\\'")
        return self._spark.sql(f"CALL {self._catalog}.system.{procedure}(table => '{table}', {arguments})").collect()


def _catalog(spark: SparkSession, above: str) -> str:
    """The name of the catalog of what is in the folder `above`."""
    if spark.conf.get(_NAMED, None) is not None:
        return _NAMED.rpartition(".")[2]
    name = f"forebay_{zlib.crc32(above.encode()):08x}"  # a session's catalog cannot be changed once it was used
    for key, value in {"": _CATALOG, ".type": "hadoop", ".warehouse": above, ".cache-enabled": "false"}.items():
        spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
    return name


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _timestamp(days_ago: int) -> str:
    at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days_ago)
    return f"TIMESTAMP '{at:%Y-%m-%d %H:%M:%S.%f}Z'"
