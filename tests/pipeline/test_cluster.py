"""A job on a cluster whose workers have no environment and no folder in common with the driver, by way of a pack.

All jobs, and a secured Kafka: tests/integration/test_cluster_jobs.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay_pipeline.pack import pack
from tests.kit.object_store import ObjectStore
from tests.kit.spark_cluster import SparkCluster
from tests.pipeline import rows as make
from tests.pipeline.rows import START_US, write_journal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(900)]  # six JVMs: a minute of CPU, and on a busy machine long

HOUR_US = 3_600_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    folder.chmod(0o755)
    archive = folder / "forebay.tar.gz"
    pack(archive)
    with SparkCluster(folder, archive) as cluster:
        yield cluster


def test_executors_without_an_environment_run_a_job(cluster: SparkCluster, tmp_path: Path) -> None:
    """Journal, output and checkpoint are in an object store; the pack is all that executors have."""
    for hour in range(4):
        write_journal(tmp_path, [make.batch_row(topic="a", time_us=START_US + hour * HOUR_US)])
    with ObjectStore() as store:
        store.put_all(tmp_path, "journal")
        where = store.at("journal"), store.at("parquet")
        done = cluster.submit("compact", "--journal", where[0], "--output", where[1], conf=store.of_command_line)
        assert done.stdout == f"4 rows written to {where[1]}\n", done.stderr
        assert done.returncode == 0
    folders = [folder for folder, _ in cluster.executors()]
    assert len({folder.parents[2] for folder in folders}) == 2
    assert all((folder / "forebay" / "bin" / "python").exists() for folder in folders)


def test_without_the_pack_it_cannot_run(cluster: SparkCluster, tmp_path: Path) -> None:
    """So nothing else is what executors import."""
    write_journal(tmp_path, [make.batch_row(topic="a")])
    with ObjectStore() as store:
        store.put_all(tmp_path, "journal")
        where = store.at("journal"), store.at("parquet")
        done = cluster.submit(
            "compact", "--journal", where[0], "--output", where[1], conf=store.of_command_line, packed=False
        )
    assert done.returncode == 2
    assert "forebay-pipeline: Spark failed: " in done.stdout + done.stderr
