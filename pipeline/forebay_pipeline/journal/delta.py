"""Tables of Delta Lake in one folder.

A batch is appended once, also after a crash: each commit names its batch and the query that it is of (txnVersion,
txnAppId), and Delta leaves out one that it has already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from forebay_pipeline.journal.schema import DAY
from forebay_pipeline.storage import Storage

_FILE_BYTES: Final = 256 << 20
_SMALL: Final = _FILE_BYTES * 3 // 4
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
_CHECKED_DAYS: Final = 7
"""Delta itself refuses to forget younger files, unless it is told not to look."""


class DeltaTables:
    """See tables.Tables."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._storage = Storage(spark)
        self._folder = folder.rstrip("/")

    def read(self, name: str) -> DataFrame | None:
        return self._spark.read.format("delta").load(self._path(name)) if self._exists(name) else None

    def append(self, name: str, rows: DataFrame, query: str, batch: int) -> None:
        writer = rows.write.format("delta").mode("append").partitionBy(DAY).option("mergeSchema", "true")
        writer.option("txnAppId", query).option("txnVersion", batch).save(self._path(name))

    def last(self, name: str, query: str) -> int:
        if not self._exists(name):
            return -1
        delta: Any = self._spark._jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]
        state = delta.DeltaLog.forTableWithSnapshot(self._spark._jsparkSession, self._path(name))._2()
        found = state.transactions().get(query)
        return int(found.get()) if found.isDefined() else -1

    def files(self, name: str) -> int:
        table = self.read(name)
        return len(table.inputFiles()) if table is not None else 0

    def rewrite(self, name: str, order: Sequence[str]) -> None:
        days = self._scattered(name)
        if not days:
            return
        self._spark.conf.set("spark.databricks.delta.optimize.maxFileSize", _FILE_BYTES)
        within = " OR ".join(f"{DAY} IS NULL" if day == _NO_DAY else f"{DAY} = '{day}'" for day in days)
        # By the first column alone: by several, it would be a compromise between them.
        self._spark.sql(f"OPTIMIZE {self._quoted(name)} WHERE {within} ZORDER BY ({order[0]})").collect()

    def forget(self, name: str, days: int) -> None:
        if days < _CHECKED_DAYS:
            self._spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        self._spark.sql(f"VACUUM {self._quoted(name)} RETAIN {24 * days} HOURS").collect()

    def _scattered(self, name: str) -> list[str]:
        """Days with two small files or more."""
        table = self.read(name)
        files: dict[str, set[str]] = defaultdict(set)
        for path in table.inputFiles() if table is not None else ():
            folder, _, file = path.rpartition("/")
            files[folder.rpartition("/")[2]].add(file)
        return [
            folder.partition("=")[2]
            for folder in sorted(files)
            if sum(size < _SMALL for size in self._sizes(name, folder, files[folder])) > 1
        ]

    def _sizes(self, name: str, folder: str, files: set[str]) -> list[int]:
        there = self._storage.sizes(f"{self._path(name)}/{folder}")
        return [size for file, size in there.items() if file in files]

    def _exists(self, name: str) -> bool:
        return self._storage.is_folder(f"{self._path(name)}/_delta_log")

    def _quoted(self, name: str) -> str:
        return "delta.`" + self._path(name).replace("`", "``") + "`"

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
