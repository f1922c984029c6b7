"""The Spark session of a job: on this machine by default, on a cluster with `--master` or under spark-submit."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun

KAFKA_CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
"""The newest version whose dependencies can all be resolved."""

# Spark ships these; excluding them halves the time to resolve the connector.
_HAS: Final = "org.slf4j:slf4j-api,org.xerial.snappy:snappy-java,org.lz4:lz4-java,org.apache.hadoop:hadoop-client-api"

_LOCAL: Final = "local[*]"
_LOCAL_SHUFFLES: Final = "16"
"""Spark's default of 200 suits a cluster: on a few cores, empty tasks would take most of the time."""

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    # A journal file is read as one row: this bounds how much one task takes in at once.
    "spark.sql.files.maxPartitionBytes": "32m",
    # A topic whose name looks like a number is still a name.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # journal.retention.bytes may delete a file between listing and reading it.
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.ui.showConsoleProgress": "false",
    # pandas warns about how Spark uses it.
    "spark.executorEnv.PYTHONWARNINGS": "ignore::FutureWarning",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
}


def submitted() -> bool:
    """Whether spark-submit started this process; if so, it decides on master and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def open_session(
    name: str,
    master: str | None = None,
    *,
    kafka: bool = False,
    jars: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Open, or reuse, this process's Spark session.

    With `kafka` it has the Kafka connector, from Maven Central unless the folder `jars` holds it. `settings` override
    the ones above. Raises CannotRun without Java, without jars in `jars`, or if Spark does not start.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not submitted() and not _java():
        raise CannotRun("Spark needs Java 17 or newer: none was found in JAVA_HOME or on the PATH.")
    builder = SparkSession.builder.appName(f"forebay {name}")
    if master is not None or not submitted():
        builder = builder.master(master or _LOCAL)
    wanted = dict(_SETTINGS)
    if not submitted() and (master or _LOCAL).startswith("local"):
        wanted["spark.sql.shuffle.partitions"] = _LOCAL_SHUFFLES
    if jars is not None:
        wanted["spark.jars"] = ",".join(map(str, _jars(jars)))
    elif kafka and not submitted():
        wanted["spark.jars.packages"] = KAFKA_CONNECTOR
        wanted["spark.jars.excludes"] = _HAS
    for key, value in {**wanted, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise CannotRun(f"Spark did not start: {first_line(error)}") from error


def _java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return bool(home and Path(home, "bin", "java").exists()) or shutil.which("java") is not None


def _jars(folder: str) -> list[Path]:
    found = sorted(Path(folder).glob("*.jar"))
    if not found:
        raise CannotRun(f"There are no jars in {folder}.")
    return found


def first_line(error: BaseException) -> str:
    """The first line of its message that is not blank, else the name of its type: Spark's messages run to pages."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
