"""One Spark for all tests that want one: it takes five seconds to start. A conftest imports the fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.jobs.session import open_session
from tests.kit.paths import JARS


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(
        "tests",
        "local[2]",
        jars=str(JARS / "spark-kafka"),
        settings={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
        },
    )
    yield session
    session.stop()
