"""A Spark session for a job, with the least ceremony: a laptop by default, a cluster by `--master` or spark-submit.

Out: a SparkSession. Wrong: CannotRun, where there is no Java, or Spark does not start.
"""

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
"""The newest of its kind all of whose parts can be had."""

# Spark brings these itself; leaving them out of what is resolved halves the time that it takes.
_HAS: Final = "org.slf4j:slf4j-api,org.xerial.snappy:snappy-java,org.lz4:lz4-java,org.apache.hadoop:hadoop-client-api"

_LOCAL: Final = "local[*]"
_LOCAL_SHUFFLES: Final = "16"
"""Spark's 200 are for a cluster: on a few cores most of the time would go into tasks that have nothing to do."""

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    # A journal file is a row of the source that reads it: what one task takes in at once is bounded by this.
    "spark.sql.files.maxPartitionBytes": "32m",
    # Topics that look like numbers are still names.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # journal.retention.bytes may delete a file that was just listed.
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.ui.showConsoleProgress": "false",
    # Of pandas, about what Spark does with it.
    "spark.executorEnv.PYTHONWARNINGS": "ignore::FutureWarning",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
}


def submitted() -> bool:
    """Whether spark-submit started this process: then it decides about master and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def open_session(
    name: str,
    master: str | None = None,
    kafka: bool = False,
    jars: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """`kafka`: with the connector, from the folder `jars` where that is given, else from Maven Central."""
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
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
