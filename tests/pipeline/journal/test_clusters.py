"""Which clusters a journal's processes served."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.journal.clusters import clusters, mixed


def test_ids_that_nobody_told_do_not_count(spark: SparkSession) -> None:
    gauges = spark.createDataFrame([("b",), ("",), ("a",), (None,), ("b",)], "cluster_id string")
    assert clusters(gauges) == ["a", "b"]


@pytest.mark.parametrize("ids", [[], ["a"]])
def test_of_one_cluster_nothing_is_said(ids: list[str]) -> None:
    assert mixed(ids) is None


def test_of_several_it_is_said_what_becomes_one() -> None:
    told = "The journal is of 2 clusters (a, b): topics and brokers of one name are taken for the same."
    assert mixed(["a", "b"]) == told
