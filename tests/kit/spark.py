"""One Spark for all tests that want one: it takes five seconds to start. A conftest imports fixture and hook."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy
import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from forebay_pipeline.jobs.session import OF_TABLES, open_session
from forebay_pipeline.journal.tables import Format
from tests.kit.object_store import s3_jars
from tests.kit.paths import JARS, OLDEST_SPARK_KAFKA_JARS

vars(numpy).setdefault("NaN", numpy.nan)
"""For pyspark.testing of Spark 3.5, of which nothing else asks NumPy for that name: 2.0 has it no more."""

OLDEST: Final = pyspark.__version__.startswith("3.5.")
"""Whether `make oldest-spark-test` put that one before the environment's."""

TABLE_FORMATS: Final[tuple[Format, ...]] = ("iceberg", "delta")
EITHER_TABLE: Final = pytest.mark.parametrize(
    "table_format", ["iceberg", pytest.param("delta", marks=pytest.mark.whole)]
)
"""For what both do by the same code of ours; journal/test_tables.py has what is each one's own."""


def table_jar_folder(table_format: Format) -> Path:
    """What this Spark needs to know such tables."""
    return JARS / f"spark-{table_format}{'-3.5' if OLDEST else ''}"


KAFKA_JARS: Final = OLDEST_SPARK_KAFKA_JARS if OLDEST else JARS / "spark-kafka"
JVM_FLAGS: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m -XX:+UseSerialGC -XX:-UsePerfData"
"""For a driver that lives for seconds, or for minutes: where its cache is full, it compiles again and again."""

_QUICK: Final[Mapping[str, str]] = (
    {}
    if os.environ.get("WHOLE")
    else {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }
)
"""Queries over a handful of rows: compiling their plans, and planning each stage anew, takes a third of all the work.
`make test-all` (WHOLE=1) has them as users have."""


_EXTENSIONS: Final = {
    # Iceberg's last: on Spark 3.5 its parser has to be the outer one.
    "spark.sql.extensions": ",".join(OF_TABLES[each]["spark.sql.extensions"] for each in reversed(TABLE_FORMATS)),
    "spark.sql.catalog.spark_catalog": OF_TABLES["delta"]["spark.sql.catalog.spark_catalog"],
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}


def _table_jars() -> list[Path]:
    """Without Scala, which Spark has itself."""
    found = [jar for each in TABLE_FORMATS for jar in sorted(table_jar_folder(each).glob("*.jar"))]
    return [jar for jar in found if not jar.name.startswith("scala-library")]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(
        "tests",
        "local[2]",
        jars=str(KAFKA_JARS),
        conf={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.driver.memory": "1g",
            "spark.jars": ",".join(map(str, [*([] if OLDEST else s3_jars()), *_table_jars()])),
            **_EXTENSIONS,
            **_QUICK,
            "spark.driver.extraJavaOptions": JVM_FLAGS,
        },
    )
    yield session
    session.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that runs out of time costs those behind it nothing."""
    report = yield
    why = call.excinfo.value if call.excinfo is not None else None
    if isinstance(why, pytest.fail.Exception) and str(why).startswith("Timeout"):
        _ask_anew()
    return report


def _ask_anew() -> None:
    """Over another connection to the JVM: on the old one comes what was not waited for. Nothing goes on there."""
    if SparkContext._gateway is None or SparkContext._active_spark_context is None:
        return
    connection = SparkContext._gateway._gateway_client.get_thread_connection()
    if connection is not None:
        connection.close()
    session = SparkSession.getActiveSession()
    for query in session.streams.active if session is not None else ():
        query.stop()
    SparkContext._active_spark_context.cancelAllJobs()
