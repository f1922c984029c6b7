"""What keeps a session from being opened, before there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.jobs import session
from forebay_pipeline.jobs.session import (
    check_arrow,
    defaults,
    first_line,
    open_session,
    over,
    packages_of,
    submitted,
)


def test_without_java_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(CannotRun, match="Spark needs Java 17 or newer"):
        open_session("tests")


def test_a_folder_of_jars_has_some(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=f"There are no jars in {tmp_path}"):
        open_session("tests", jars=str(tmp_path))


def test_spark_submit_is_known_by_its_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert not submitted()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert submitted()


def test_it_may_be_installed_in_a_folder_with_a_blank(tmp_path: Path) -> None:
    """Java's options are parted by blanks."""
    folder = tmp_path / "My Projects"
    folder.mkdir()
    (folder / "forebay_pipeline").symlink_to(Path(session.__file__).parents[1])
    code = "from forebay_pipeline.jobs.session import _SETTINGS; print(_SETTINGS['spark.driver.extraJavaOptions'])"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    told = subprocess.run([sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True).stdout
    assert told.endswith("/My%20Projects/forebay_pipeline/jobs/log4j2.properties\n")
    assert " " not in told


def test_the_users_settings_win() -> None:
    """Over those of the job stand those of spark-submit, and over these --conf."""
    own = {"a": "own", "b": "own", "c": "own"}
    assert over(own, {"b": "submit", "c": "submit", "d": "submit"}, {"c": "conf"}) == {"a": "own", "c": "conf"}


DEFAULTS = """\
# of this cluster
! and another remark

spark.master                     local[1]
spark.sql.shuffle.partitions = 3
  spark.sql.session.timeZone:Europe/Berlin
spark.executorEnv.OPTIONS        -Da=b -Dc=d
spark.jars                       s3.jar
hive.something                   else
spark.nothing
"""


def test_spark_s_own_defaults_are_read(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS)
    assert defaults({"SPARK_CONF_DIR": str(tmp_path)}) == {
        "spark.master": "local[1]",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.executorEnv.OPTIONS": "-Da=b -Dc=d",
        "spark.jars": "s3.jar",
    }


def test_without_defaults_there_are_none(tmp_path: Path) -> None:
    assert defaults({"SPARK_CONF_DIR": str(tmp_path)}) == {}


def test_defaults_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_bytes(b"spark.a \xff")
    with pytest.raises(CannotRun, match=f"^Cannot read spark-defaults.conf in {tmp_path}: "):
        defaults({"SPARK_CONF_DIR": str(tmp_path)})


TELL = """\
from forebay_pipeline.jobs.session import open_session
spark = open_session("tests", settings={"spark.sql.shuffle.partitions": "8"}, conf={"spark.ui.enabled": "false"})
print(*map(spark.conf.get, ("spark.master", "spark.sql.shuffle.partitions", "spark.sql.session.timeZone")))
"""


@pytest.mark.whole  # it starts a Spark of its own
def test_spark_s_own_defaults_win_over_a_job_s(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS.replace("spark.jars ", "#"))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environ |= {"SPARK_CONF_DIR": str(tmp_path)}
    told = subprocess.run([sys.executable, "-c", TELL], env=environ, capture_output=True, text=True, timeout=280)
    assert told.stdout == "local[1] 3 Europe/Berlin\n", told.stderr


@pytest.mark.timeout(120, func_only=True)  # without the setting it would wait forever
def test_on_one_machine_no_task_waits_for_another_that_has_its_data(spark: SparkSession) -> None:
    """As over HDFS: blocks are on other machines, and what was shuffled is on this one."""
    jvm: Any = spark._jvm
    to_seq = jvm.PythonUtils.toSeq
    hosts = [jvm.org.apache.spark.util.Utils.localCanonicalHostName(), "elsewhere"]
    tasks = to_seq([jvm.scala.Tuple2(host, to_seq([host])) for host in hosts])
    of_any = getattr(jvm.scala.reflect, "ClassTag$").__getattr__("MODULE$").Any()
    jobs: Any = spark._jsc
    assert list(jobs.sc().makeRDD(tasks, of_any).collect()) == hosts


def test_jars_are_added_up() -> None:
    """A user's packages do not take the Kafka connector away."""
    packages = "spark.jars.packages"
    assert over({packages: "kafka"}, {}, {packages: "aws"}) == {packages: "kafka,aws"}
    assert over({packages: "kafka"}, {packages: "submit"}, {packages: "aws"}) == {packages: "submit,kafka,aws"}
    assert over({}, {}, {"spark.jars": "mine.jar"}) == {"spark.jars": "mine.jar"}


def test_the_python_of_executors_may_be_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    for conf, python in (({}, "mine"), ({"spark.pyspark.python": "./environment/bin/python"}, None)):
        monkeypatch.setenv("PYSPARK_PYTHON", "mine")
        with pytest.raises(CannotRun):
            open_session("tests", conf=conf)
        assert os.environ["PYSPARK_PYTHON"] == (python or conf["spark.pyspark.python"])


def test_each_spark_has_its_packages() -> None:
    """Only those that a job needs."""
    assert packages_of("4.0.5") == []
    (newest,) = packages_of("4.0.5", kafka=True)
    (oldest,) = packages_of("3.5.9", kafka=True)
    assert ("_2.13:4.0." in newest, "_2.12:3.5." in oldest) == (True, True)
    iceberg, delta = (
        packages_of("3.5.9", table_format="iceberg"),
        packages_of("4.0.5", kafka=True, table_format="delta"),
    )
    assert [each.rpartition(":")[0] for each in iceberg] == ["org.apache.iceberg:iceberg-spark-runtime-3.5_2.12"]
    assert [each.rpartition(":")[0] for each in delta[1:]] == ["io.delta:delta-spark_2.13"]


def test_extensions_are_added_up() -> None:
    """A user's do not take away what knows a table."""
    extensions = "spark.sql.extensions"
    assert over({extensions: "of.Delta"}, {}, {extensions: "of.Sedona"}) == {extensions: "of.Delta,of.Sedona"}


def test_the_oldest_spark_needs_an_older_arrow() -> None:
    with pytest.raises(CannotRun, match=r"^Spark 3.5.9 needs a PyArrow before 26, and this is 26.0.1: pip install"):
        check_arrow("3.5.9", "26.0.1")
    check_arrow("3.5.9", "25.0.0")
    check_arrow("4.0.5", "26.0.1")


def test_another_spark_is_refused() -> None:
    with pytest.raises(CannotRun, match=r"^This is Spark 4.3.0; the jobs run on 3.5 and 4.0.$"):
        packages_of("4.3.0")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("\n\n  what it is\n  and pages of it"), "what it is"),
        (ValueError("  \n"), "ValueError"),
        (KeyError(), "KeyError"),
        (
            ValueError(
                "It ended: Traceback (most recent call last):\n  File x\n    call()\nit.Failed: a lock\n\n  at it.run"
            ),
            "It ended: it.Failed: a lock",
        ),
        (
            ValueError(
                "It ended: Traceback (most recent call last):\n  File x\nit.Failed: o7.save\n: it.Broke: there\n\tat"
            ),
            "It ended: it.Broke: there",
        ),
        (ValueError("It ended: Traceback (most recent call last):"), "It ended: "),
    ],
)
def test_of_an_error_its_first_line(error: Exception, line: str) -> None:
    assert first_line(error) == line


class Thrown:
    """One of Java's, and what caused it."""

    _target_id = ""

    def __init__(self, *said: str) -> None:
        self._said, *self._causes = said

    def toString(self) -> str:  # noqa: N802
        return self._said

    def getCause(self) -> Thrown | None:  # noqa: N802
        return Thrown(*self._causes) if self._causes else None


@pytest.mark.parametrize(
    ("thrown", "line"),
    [
        (("it.Failed: at 7\n  at it.run",), "it.Failed: at 7"),
        (("it.Failed: null", "it.Broke: there"), "it.Broke: there"),
        (
            ("it.Failed: null", "it.Failed: [CANNOT_READ] file 7\n\tat", "it.Broke: at its end"),
            "it.Failed: [CANNOT_READ] file 7",
        ),
    ],
)
def test_of_javas_errors_that_of_the_cause(thrown: tuple[str, ...], line: str) -> None:
    assert first_line(Py4JJavaError("An error occurred while calling o7.count.\n", Thrown(*thrown))) == line


@pytest.mark.whole
def test_a_large_file_does_not_make_a_task_many_times_as_long_as_others(spark: SparkSession, tmp_path: Path) -> None:
    """Half of the rows are in one file, as those of a large topic are, the others in a hundred."""
    spark.range(100_000, numPartitions=1).write.parquet(str(tmp_path / "topic=large"))
    spark.range(100_000, numPartitions=100).write.parquet(str(tmp_path / "topic=small"))
    rows = spark.read.parquet(str(tmp_path)).groupBy(F.spark_partition_id()).count().collect()
    counts = sorted(row["count"] for row in rows)
    assert counts[-1] <= 5 * median(counts)


@pytest.mark.whole
def test_rows_for_python_take_no_longer_where_their_list_is_null(spark: SparkSession) -> None:
    """They took ten times as long where Spark added up a batch's size at each row."""

    def seconds(of_each: Column) -> float:
        rows = spark.range(50_000, numPartitions=1).withColumn("list", of_each)
        began = monotonic()
        assert rows.mapInArrow(lambda batches: batches, rows.schema).count() == 50_000
        return monotonic() - began

    ways = [F.array("id"), F.lit(None).cast("array<long>")]
    full, null = (min(each) for each in zip(*(map(seconds, ways) for _ in range(3)), strict=True))
    assert null < 4 * full
