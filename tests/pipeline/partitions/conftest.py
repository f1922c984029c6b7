from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.partitions.journal import Journal


@pytest.fixture
def journal(spark: SparkSession, tmp_path: Path) -> Journal:
    return Journal(spark, tmp_path / "journal")
