"""The Spark session of a job: on this machine by default, on a cluster with `--master` or under spark-submit."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.tables import PARQUET, Format

KAFKA_CONNECTORS: Final[Mapping[str, str]] = {
    "3.5": "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7",
    "4.0": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
}
"""Of each Spark the newest version whose dependencies can all be resolved."""

TABLES: Final[Mapping[Format, Mapping[str, str]]] = {
    "iceberg": {
        "3.5": "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.0",
        "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    },
    "delta": {
        "3.5": "io.delta:delta-spark_2.12:3.3.2",
        "4.0": "io.delta:delta-spark_2.13:4.0.1",
    },
}

OF_TABLES: Final[Mapping[Format, Mapping[str, str]]] = {
    "iceberg": {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Each is a task, whenever a table's log is read, and when folders are looked through for what may be deleted;
        # the defaults of 50 and 10,000 suit tables of millions of files.
        "spark.databricks.delta.snapshotPartitions": "4",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    },
}
"""What Spark has to be told to know the format."""

# Spark ships these; excluding them halves the time to resolve the connector.
_HAS: Final = "org.slf4j:slf4j-api,org.xerial.snappy:snappy-java,org.lz4:lz4-java,org.apache.hadoop:hadoop-client-api"

_LISTS: Final = ("spark.jars", "spark.jars.packages", "spark.jars.excludes", "spark.sql.extensions")
"""Settings to which others add, instead of replacing what is there."""

_LOCAL: Final = "local[*]"
_OF_LOCAL: Final = {
    # Spark's default of 200 suits a cluster: on a few cores, empty tasks would take most of the time.
    "spark.sql.shuffle.partitions": "16",
    # Tasks would wait for a machine that has their data, and on a single one forever: Spark offers it to them again
    # only when another task ends. So hung `maintain` over tables in HDFS, whose blocks are on other machines.
    "spark.locality.wait": "0",
}

_TRACEBACK: Final = "Traceback (most recent call last):"
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties").as_uri()
"""As a URI, which has no blanks: Java's options are parted by them."""

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    # A journal file is read as one row: this bounds how much one task takes in at once.
    "spark.sql.files.maxPartitionBytes": "32m",
    # What opening a file costs, in bytes: by Spark's default, 4 MB, eight files of small topics, of a few KB each, make
    # a task, and a large topic's file another, which takes twenty times as long.
    "spark.sql.files.openCostInBytes": "256k",
    # Spark 4 looks at each row whether the batch for Python is full, which takes the longer the more lists are null in
    # it: 30 µs a row where there is one. A batch has 10,000 rows at most either way, as on Spark 3.5.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # A topic whose name looks like a number is still a name.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # journal.retention.bytes may delete a file between listing and reading it.
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.ui.showConsoleProgress": "false",
    # pandas warns about how Spark uses it.
    "spark.executorEnv.PYTHONWARNINGS": "ignore::FutureWarning",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS}",
}


def submitted() -> bool:
    """Whether spark-submit started this process; if so, it decides on master and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def open_session(
    name: str,
    master: str | None = None,
    *,
    kafka: bool = False,
    table_format: Format = PARQUET,
    jars: str | None = None,
    settings: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Open, or reuse, this process's Spark session.

    With `kafka` it has the Kafka connector, and with another `table_format` than Parquet what knows that, from Maven
    Central unless the folder `jars` holds them. `settings` are the
    job's, over the ones above; spark-submit's and those of Spark's spark-defaults.conf are over both, and `conf` over
    all. Raises CannotRun without Java, with a PyArrow that this Spark does not know, without jars in `jars`, or if
    Spark does not start.
    """
    conf = conf or {}
    if "spark.pyspark.python" in conf:
        os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]  # where PySpark looks for it
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    check_arrow(pyspark.__version__, pyarrow.__version__)
    if not submitted() and not _java():
        raise CannotRun("Spark needs Java 17 or newer: none was found in JAVA_HOME or on the PATH.")
    given = _of_submit() if submitted() else defaults(os.environ)
    builder = SparkSession.builder.appName(f"forebay {name}")
    if master is None and not submitted():
        master = given.get("spark.master", _LOCAL)
    if master is not None:
        builder = builder.master(master)
    brought = _brought(jars, kafka=kafka, table_format=table_format)
    own = {**_SETTINGS, **_where(master), **OF_TABLES.get(table_format, {}), **(settings or {}), **brought}
    for key, value in over(own, given, conf).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise CannotRun(f"Spark did not start: {first_line(error)}") from error


def over(own: Mapping[str, str], given: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """What to tell Spark: `own` settings, but for those that are `given` to it already, and `conf` over all.

    Jars and packages are added up: a job that needs the Kafka connector has it beside those that a user asks for.
    """
    told = {key: value for key, value in own.items() if key not in given or key in _LISTS}
    for key, value in conf.items():
        told[key] = value if key not in _LISTS else _joined(told.get(key), value)
    return {key: _joined(given.get(key), value) if key in _LISTS else value for key, value in told.items()}


def _joined(first: str | None, second: str) -> str:
    return ",".join(part for part in (first, second) if part)


def _of_submit() -> dict[str, str]:
    """What spark-submit was told: its options and its spark-defaults.conf."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """What Spark would find in its spark-defaults.conf: `spark.sql.shuffle.partitions  40`, one a line.

    Read here, since what is told to Spark stands over it, and so would what a job sets itself.
    """
    folder = environ.get("SPARK_CONF_DIR") or Path(environ.get("SPARK_HOME") or pyspark.__path__[0], "conf")
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeError) as error:
        raise CannotRun(f"Cannot read spark-defaults.conf in {folder}: {first_line(error)}") from error
    pairs = (_PAIR.fullmatch(line.strip()) for line in lines if not line.lstrip().startswith(("#", "!")))
    return {pair["key"]: pair["value"] for pair in pairs if pair is not None and pair["key"].startswith("spark.")}


_PAIR: Final = re.compile(r"(?P<key>[^\s=:]+)(?:\s*[=:]\s*|\s+)(?P<value>.*)")
"""As in Java's properties: a space, an equals sign or a colon between the two."""


def _where(master: str | None) -> Mapping[str, str]:
    local = not submitted() and master is not None and master.startswith("local")
    return _OF_LOCAL if local else {}


def _brought(jars: str | None, *, kafka: bool, table_format: Format) -> dict[str, str]:
    if jars is not None:
        return {"spark.jars": ",".join(map(str, _jars(jars)))}
    packages = packages_of(pyspark.__version__, kafka=kafka, table_format=table_format)
    if not packages or submitted():
        return {}
    return {"spark.jars.packages": ",".join(packages), "spark.jars.excludes": _HAS}


def packages_of(spark: str, *, kafka: bool = False, table_format: Format = PARQUET) -> list[str]:
    """Where Maven has what is needed on that version of Spark. Raises CannotRun for one that is not known."""
    version = ".".join(spark.split(".")[:2])
    if version not in KAFKA_CONNECTORS:
        raise CannotRun(f"This is Spark {spark}; the jobs run on {' and '.join(KAFKA_CONNECTORS)}.")
    needed = ([KAFKA_CONNECTORS] if kafka else []) + ([TABLES[table_format]] if table_format in TABLES else [])
    return [artifacts[version] for artifacts in needed]


def check_arrow(spark: str, arrow: str) -> None:
    """Raises CannotRun for Spark 3.5 with PyArrow 26 or newer, on which its streams with a state fail."""
    if spark.startswith("3.5.") and int(arrow.partition(".")[0]) >= 26:
        raise CannotRun(f"Spark {spark} needs a PyArrow before 26, and this is {arrow}: pip install 'pyarrow<26'.")


def _java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return bool(home and Path(home, "bin", "java").exists()) or shutil.which("java") is not None


def _jars(folder: str) -> list[Path]:
    found = sorted(Path(folder).glob("*.jar"))
    if not found:
        raise CannotRun(f"There are no jars in {folder}.")
    return found


def first_line(error: BaseException) -> str:
    """The first line of its message that is not blank, else the name of its type: Spark's messages run to pages.

    Of Java's, that of the deepest cause that Spark has a name for (`[FAILED_READ_FILE]`, with the file), else of the
    deepest one. Where it goes on with a traceback of Python, what was raised there.
    """
    if isinstance(error, Py4JJavaError):
        causes = [_first_line(cause) for cause in _causes(error.java_exception)]
        return next((cause for cause in reversed(causes) if ": [" in cause), causes[-1])
    return _first_line(str(error)) or type(error).__name__


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    before, traceback, _ = lines[0].strip().partition(_TRACEBACK)
    if not traceback:
        return before
    # Calls are indented; behind the last stands what was raised, and behind that, if Java threw it, what that was.
    raised, *more = [line for line in lines[1:] if not line[0].isspace()] or [""]
    return before + (more[0][2:] if more and more[0].startswith(": ") else raised)


def _causes(thrown: Any) -> Iterator[str]:
    while thrown is not None:
        yield str(thrown.toString())
        thrown = thrown.getCause()
