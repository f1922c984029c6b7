"""The DAG run by Airflow over the journal of a real Forebay: one with gaps, one with a loss, one without brokers."""

from __future__ import annotations

import os
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.deploy.files import DEPLOY
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.paths import AIRFLOW, JARS, ROOT
from tests.kit.spark import JVM_FLAGS

pytestmark = [pytest.mark.whole, pytest.mark.timeout(1_800)]  # eight Sparks, one after the other

COUNT = 100
WRAPPER = """\
#!/bin/bash
job=$1
shift
[ "$job" != audit ] || set -- "$@" --settle 0 --jars {jars}
export PYTHONPATH={rooms}
exec {python} -m forebay_pipeline.cli "$job" "$@" --master 'local[1]' {conf}
"""
"""`forebay-pipeline` as it may be installed: rows need not be ten minutes old, and the connector is at hand."""
QUICK = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": JVM_FLAGS,
}


class Stage:
    """A cluster, Forebay before it while it is needed, and an Airflow with nothing but the DAG."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self.cluster = cluster
        self.journal, self.results, self._home = folder / "journal", folder / "results", folder / "airflow"
        programs = folder / "bin"
        for path in (self.results, self._home, programs):
            path.mkdir()
        script = programs / "forebay-pipeline"
        rooms = ":".join(str(ROOT / room) for room in ("codecs", "policies", "proxy", "pipeline"))
        conf = shlex.join(word for name, value in QUICK.items() for word in ("--conf", f"{name}={value}"))
        script.write_text(WRAPPER.format(jars=JARS / "spark-kafka", rooms=rooms, python=sys.executable, conf=conf))
        script.chmod(0o755)
        self._environ = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "AIRFLOW_HOME": str(self._home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(DEPLOY / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "FOREBAY_JOURNAL": str(self.journal),
            "FOREBAY_RESULTS": str(self.results),
            "FOREBAY_BROKERS": cluster.internal,
        }
        migrated = self.airflow("db", "migrate")
        assert migrated.returncode == 0, migrated.stdout

    def airflow(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [AIRFLOW / "bin" / "airflow", *words],
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )

    def produce(self, topic: str, **settings: object) -> None:
        """Through a Forebay whose journal is closed afterwards."""
        journal = {"journal.dir": str(self.journal), "journal.ledger": "true"}
        with ForebayProcess(self.cluster.bootstrap, self.cluster.nodes, settings=journal) as forebay:
            producer = Producer({"bootstrap.servers": forebay.bootstrap, **settings})
            for number in range(COUNT):
                producer.produce(topic, str(number))
            assert producer.flush(60) == 0

    def make_again(self, topic: str) -> None:
        self.cluster.delete_topic(topic)
        self.cluster.create_topic(topic, 1)

    def without_brokers(self) -> None:
        """From now on they cannot be reached."""
        self._environ["FOREBAY_BROKERS"] = "127.0.0.1:1"

    def run(self, at: datetime) -> tuple[int, dict[str, str], str]:
        """Airflow's exit code, the state of each task, and what Airflow said, of the run of that time."""
        run = self.airflow("dags", "test", "forebay_journal", at.isoformat())
        with sqlite3.connect(self._home / "airflow.db") as database:
            states = database.execute(
                "select task_id, t.state from task_instance t join dag_run r using (run_id) where logical_date like ?",
                (f"{at:%Y-%m-%d %H}%",),
            ).fetchall()
        return run.returncode, dict(states), run.stdout


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with KafkaCluster("4.3.1", brokers=1) as cluster:
        for topic in ("kept", "lost"):
            cluster.create_topic(topic, 1)
        yield Stage(cluster, tmp_path)


def test_what_is_incomplete_is_no_failure_and_what_is_lost_is_one(stage: Stage) -> None:
    """Both are told, and reported on. Records of idempotent clients pass through, and are not followed."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    tomorrow = today + timedelta(days=1)
    report = stage.results / f"{today:%Y-%m-%d}.html"
    stage.produce("kept")
    stage.produce("kept", **{"enable.idempotence": True})
    code, states, said = stage.run(tomorrow)
    incomplete = {"compact": "success", "audit": "skipped", "report": "success", "done": "success"}
    assert (code, states) == (0, incomplete), said
    assert "audit needs a look (incomplete)" in said
    report.unlink()

    stage.produce("lost")
    stage.make_again("lost")
    code, states, said = stage.run(tomorrow + timedelta(hours=1))
    assert code != 0
    assert states == {"compact": "success", "audit": "failed", "report": "success", "done": "upstream_failed"}, said
    assert "audit needs a look (failed)" in said
    assert "was deleted" in report.read_text()
    report.unlink()

    stage.without_brokers()
    code, states, said = stage.run(tomorrow + timedelta(hours=2))
    assert code != 0
    assert states == {"compact": "success", "audit": "failed", "report": "success", "done": "upstream_failed"}, said
    assert "was deleted" not in report.read_text(), "the audit of another run"
