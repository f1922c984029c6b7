"""Which tables a day is rolled up to: by which keys, and what is kept of each.

Values add up over days, but for those that say otherwise. `time_us` is the start of an hour. A table whose name ends in
`_times` has histograms: of each `measure` the batches by `bucket` (jobs.histogram). VERSION grows whenever a table
changes; days that another version rolled up are not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from forebay_pipeline.advice.counts import LINGERED
from forebay_pipeline.partitions.runaway_windows import WATCHED
from forebay_pipeline.partitions.workers import TOTALS

VERSION: Final = 3

_LONG: Final = "bigint"
_TEXT: Final = "string"
_TOPIC: Final = {"topic": _TEXT}
_PARTITION: Final = {**_TOPIC, "partition": _LONG}
_HOUR: Final = {"time_us": _LONG}
_CLIENT: Final = {"client_id": _TEXT, "principal": _TEXT}
_BUCKET: Final = {"measure": _TEXT, "bucket": "int"}


@dataclass(frozen=True, eq=False)
class Table:
    """Columns are name → type in SQL. Files of a day are sorted by the keys."""

    name: str
    keys: Mapping[str, str]
    values: Mapping[str, str]

    @property
    def columns(self) -> dict[str, str]:
        """All of them."""
        return {**self.keys, **self.values}

    @property
    def schema(self) -> str:
        """The same as Spark reads it."""
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())

    def summed(self, rows: DataFrame) -> DataFrame:
        """A row for each of the keys, with its values added up."""
        return rows.groupBy(*self.keys).agg(*(F.sum(name).alias(name) for name in self.values))


def _longs(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, _LONG)


BATCHES: Final = Table(
    "batches",
    {**_PARTITION, "leader": _LONG, "movable": "boolean", "reason": _TEXT, "fate": _TEXT, "error_code": _LONG},
    _longs("batches", "records", "bytes", "runs", "linger_us", "latency_us"),
)
"""As partitions.batches.tallied has them."""
BATCH_TIMES: Final = Table("batch_times", {**_PARTITION, **_BUCKET}, _longs("batches"))
"""linger_us, upstream_us"""
BROKER_TIMES: Final = Table("broker_times", {"leader": _LONG, **_BUCKET}, _longs("batches"))
"""upstream_us"""
HOURS: Final = Table("hours", _HOUR, _longs("batches", "bytes", "records", "failed", "first_us", "last_us"))
"""first_us, last_us: of the hour's batches."""
HOUR_TIMES: Final = Table("hour_times", {**_HOUR, **_BUCKET}, _longs("batches"))
"""linger_us, upstream_us, wait_us, and `bytes`"""
PARTITION_HOURS: Final = Table("partition_hours", {**_PARTITION, **_HOUR}, _longs("batches", "bytes"))
USES: Final = Table("uses", {}, {**_longs("requests"), **dict.fromkeys(LINGERED, "double")})
"""One row: requests that carried batches, and how many batches there would have been, had each lingered for so long."""
RUNAWAYS: Final = Table("runaways", {field.name: field.dataType.simpleString() for field in WATCHED}, {})
"""As runaway_windows.watched has them: changes, and how to go on at the end of the day."""
GAUGES: Final = Table(
    "gauges",
    {**_HOUR, "process": _TEXT, "worker": _LONG, "started_us": _LONG, "cluster_id": _TEXT},
    _longs(
        *("first_us", "last_us", "seconds", "seconds_waited"),
        *(
            "pool_bytes",
            "pool_used_bytes",
            "pool_available_bytes",
            "queued_bytes",
            "queued_batches",
            "in_flight_requests",
        ),
        *TOTALS,
        *(f"first_{name}" for name in TOTALS),
    ),
)
"""As partitions.workers.standing has them: extremes, and only seconds add up."""
METADATA: Final = Table("metadata", {}, _longs("requests", "failed", "request_bytes", "response_bytes"))
"""One row: Metadata requests to brokers."""
METADATA_TIMES: Final = Table("metadata_times", _BUCKET, _longs("batches"))
"""took_us, of requests"""
RACKS: Final = Table("racks", _TOPIC, _longs("same_bytes", "other_bytes", "unknown_bytes"))
CLIENTS: Final = Table(
    "clients",
    {**_CLIENT, **_TOPIC, "reason": _TEXT, "version": _LONG},
    _longs("batches", "records", "errors", "opens", "partitions", "first_us", "last_us"),
)
"""advice.clients.ClientTables.treated; `partitions` is a maximum."""
CLIENT_REQUESTS: Final = Table("client_requests", _CLIENT, _longs("requests"))
CLIENT_TIMES: Final = Table("client_times", {**_CLIENT, **_BUCKET}, _longs("batches"))
"""took_us"""
CHOICES: Final = Table("choices", {**_CLIENT, "host": _TEXT, **_TOPIC}, {"used": "array<int>", **_longs("turns")})
"""advice.clients.ClientTables.choices"""
TORN: Final = Table("torn", {"error": _LONG}, _longs("lines"))
"""What could not be read, by a hash of what is said of it. It has no time: days may have read the same lines, so that
the most that a day has counts."""

TABLES: Final = (
    BATCHES,
    BATCH_TIMES,
    BROKER_TIMES,
    HOURS,
    HOUR_TIMES,
    PARTITION_HOURS,
    USES,
    RUNAWAYS,
    GAUGES,
    METADATA,
    METADATA_TIMES,
    RACKS,
    CLIENTS,
    CLIENT_REQUESTS,
    CLIENT_TIMES,
    CHOICES,
    TORN,
)
