"""Jobs on a cluster whose workers have no environment and no folder in common with the driver, by way of a pack.

The audit, and a secured Kafka: tests/integration/test_cluster_jobs.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.storage import Storage
from tests.kit.object_store import ObjectStore
from tests.kit.spark_cluster import SparkCluster, packed_cluster
from tests.pipeline import found_by_all
from tests.pipeline.command_line import run
from tests.pipeline.rollups import made_up
from tests.pipeline.rows import START_US, batch_row, write_journal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(900)]  # six JVMs: a minute of CPU, and on a busy machine long

HOUR_US = 3_600_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with packed_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Beside whatever a test puts there, `journal`: one in which each job finds something."""
    folder = tmp_path_factory.mktemp("journal")
    found_by_all.write(folder)
    with ObjectStore() as store:
        for name, value in store.settings.items():
            spark.conf.set(name, value)
        store.put_all(folder, "journal")
        yield store


@dataclass
class Both:
    """A job on the cluster, and in one process of this machine, over the same journal or what else it reads."""

    cluster: SparkCluster
    store: ObjectStore
    spark: SparkSession

    def __call__(self, job: str, *words: str, of: str = "--journal", at: str = "journal") -> tuple[str, str]:
        """Where the one and the other wrote what they found (--output), `of` what is there in the store."""
        outputs = self.store.at(f"{job}/cluster"), self.store.at(f"{job}/local")
        words = (of, self.store.at(at), *words)
        done = self.cluster.submit(job, *words, "--output", outputs[0], conf=self.store.of_command_line)
        assert done.returncode == 0, done.stdout + done.stderr
        here = run(job, *words, "--output", outputs[1])
        assert (here.exit_code, here.stderr) == (0, "")
        assert done.stdout.replace(*outputs) == here.stdout
        return outputs

    def read(self, job: str, *words: str, of: str = "--journal", at: str = "journal") -> tuple[str, str]:
        cluster, local = (Storage(self.spark).read(output) for output in self(job, *words, of=of, at=at))
        assert cluster is not None
        assert local is not None
        return cluster.decode(), local.decode()


@pytest.fixture
def both(cluster: SparkCluster, store: ObjectStore, spark: SparkSession) -> Both:
    cluster.clear()
    return Both(cluster, store, spark)


def test_executors_without_an_environment_run_a_job(cluster: SparkCluster, store: ObjectStore, tmp_path: Path) -> None:
    """Journal, output and checkpoint are in an object store; the pack is all that executors have."""
    for hour in range(4):
        write_journal(tmp_path, [batch_row(topic="a", time_us=START_US + hour * HOUR_US)], f"{hour}")
    store.put_all(tmp_path, "hours")
    where = store.at("hours"), store.at("parquet")
    done = cluster.submit("compact", "--journal", where[0], "--output", where[1], conf=store.of_command_line)
    assert done.stdout == f"4 rows written to {where[1]}\n", done.stderr
    assert done.returncode == 0
    both_took_part(cluster)


def both_took_part(cluster: SparkCluster) -> None:
    folders = [folder for folder, _ in cluster.executors()]
    assert len({folder.parents[2] for folder in folders}) == 2
    assert all((folder / "forebay" / "bin" / "python").exists() for folder in folders)


def test_without_the_pack_it_cannot_run(cluster: SparkCluster, store: ObjectStore) -> None:
    """So nothing else is what executors import."""
    where = store.at("journal"), store.at("none")
    done = cluster.submit(
        "compact", "--journal", where[0], "--output", where[1], conf=store.of_command_line, packed=False
    )
    assert done.returncode == 2
    assert "forebay-pipeline: Spark failed: " in done.stdout + done.stderr


def test_a_journal_that_only_the_driver_has_is_not_read_as_an_empty_one(cluster: SparkCluster, tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [batch_row()])
    journal, output = str(tmp_path / "journal"), str(tmp_path / "parquet")
    for words in (["compact", "--output", output], ["partitions"]):
        done = cluster.submit(*words, "--journal", journal)
        assert done.returncode == 2
        assert f", where an executor is, has no folder {journal}: " in done.stdout + done.stderr


def test_partitions_measures_the_same(both: Both) -> None:
    """A shuffle: each executor reads what the other one has sorted."""
    cluster, local = both.read("partitions", "--by", "topic,partition,leader")
    assert json.loads(cluster) == json.loads(local)
    assert [each["partition"] for each in json.loads(local)["runaways"]] == [0]
    both_took_part(both.cluster)


def test_runaways_sees_the_same(both: Both) -> None:
    """A stream with a state, of which each executor has a part in the checkpoint."""
    cluster, local = (
        sorted(row.value for row in both.spark.read.text(output).collect())
        for output in both("runaways", "--once", "--late", "0")
    )
    assert cluster == local
    assert {json.loads(line)["event"] for line in local} == {"runaway", "recovered"}


def test_replay_simulates_the_same(both: Both) -> None:
    cluster, local = both.read("replay", "--grid", "partitioner=adaptive,expected_wait", "--slice", "5")
    assert json.loads(cluster) == json.loads(local)
    assert json.loads(local)["recommended"] == 1


def test_report_is_the_same_page(both: Both) -> None:
    cluster, local = both.read("report")
    assert cluster == local
    assert "<!doctype html>" in local.lower()


def test_rollups_are_the_same(both: Both, tmp_path: Path) -> None:
    """Each executor writes files of a day, and reads those of the other one."""
    made_up.write(tmp_path, made_up.rows(3))
    both.store.put_all(tmp_path, "days")
    both("rollup", at="days")
    both_took_part(both.cluster)
    cluster, local = (both.read("report", of="--rollups", at=f"rollup/{where}") for where in ("cluster", "local"))
    assert cluster[0] == cluster[1]
    assert cluster[0].replace("rollup/cluster", "rollup/local") == local[0] == local[1]
