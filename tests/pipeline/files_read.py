"""What a query had to read, as Spark itself counts it."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, Row


class Read(NamedTuple):
    rows: list[Row]
    files: int
    size: int
    """Bytes of these files."""


def files_read(query: DataFrame) -> Read:
    """The result of a query that shuffles nothing, and the files of which something was read."""
    rows = query.collect()
    leaves = query._jdf.queryExecution().executedPlan().collectLeaves()
    counted = [leaves.apply(number).metrics() for number in range(leaves.size())]

    def total(*names: str) -> int:
        """Whatever it is called, by Spark and by Iceberg."""
        there = [each.apply(name) for each in counted for name in names if each.contains(name)]
        return sum(int(metric.value()) for metric in there)

    return Read(rows, total("numFiles", "resultDataFiles"), total("filesSize", "totalDataFileSize"))
