"""Which clusters a journal's processes served.

Most jobs know topics by their names and brokers by their numbers, so those of two clusters become one. In: gauge rows,
which alone tell. Out: the clusters, and what is to be said of several.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame


def clusters(gauges: DataFrame) -> list[str]:
    """The ids that brokers told, in order."""
    found = gauges.where("cluster_id != ''").select("cluster_id").distinct().collect()
    return sorted(row["cluster_id"] for row in found)


def mixed(ids: Sequence[str]) -> str | None:
    """A sentence if there are several."""
    if len(ids) < 2:
        return None
    named = ", ".join(ids)
    return f"The journal is of {len(ids)} clusters ({named}): topics and brokers of one name are taken for the same."
