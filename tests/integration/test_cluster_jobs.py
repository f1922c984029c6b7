"""Jobs on a cluster whose executors have no file and no environment of the driver's, and that read a secured Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from forebay_pipeline.journal.source import JournalPlace, read_rows
from tests.integration.test_secured_jobs import COUNT, Stage, stage
from tests.kit.object_store import ObjectStore
from tests.kit.paths import JARS
from tests.kit.spark_cluster import SparkCluster, packed_cluster
from tests.kit.token_cluster import Tokens
from tests.pipeline.command_line import run
from tests.pipeline.rows import batch_row

__all__ = ["stage"]

# Eight JVMs, and half a gigabyte unpacked for each executor: minutes on two cores.
pytestmark = [pytest.mark.integration, pytest.mark.whole, pytest.mark.timeout(900)]

SECRET = "canary-9d3"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with packed_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def store(spark: SparkSession) -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        for name, value in store.settings.items():
            spark.conf.set(name, value)
        yield store


def conf(store: ObjectStore) -> dict[str, str]:
    """The jars for the store, and for Kafka."""
    of_store = store.of_command_line
    jars = (of_store["spark.jars"], *map(str, (JARS / "spark-kafka").glob("*.jar")))
    return {**of_store, "spark.jars": ",".join(jars)}


def nothing_of_the_driver(cluster: SparkCluster, stage_folder: Path) -> bool:
    """Executors were told no path that only the driver has."""
    said = [text for _, text in cluster.executors()]
    return len(said) == 2 and not any(str(stage_folder) in text for text in said)


def test_executors_read_journal_and_topics_of_a_secured_kafka(
    cluster: SparkCluster, store: ObjectStore, stage: Stage, spark: SparkSession
) -> None:
    """`compact` as a stream, `audit` as a batch, the same as in one process: by SCRAM, and an authority of its own."""
    words, where = stage.words(), store.at("parquet")
    done = cluster.submit("compact", *words, "--output", where, conf=conf(store))
    assert done.returncode == 0, done.stdout + done.stderr
    assert nothing_of_the_driver(cluster, stage.folder)
    kept = read_rows(spark, JournalPlace(where)).count()
    assert done.stdout == f"{kept} rows written to {where}\n"
    cluster.clear()
    words += ["--to", "2100-01-01"]  # younger than --settle, too
    done = cluster.submit("audit", *words, conf=conf(store))
    here = run("audit", *words)
    assert done.returncode == here.exit_code == 0, done.stdout + done.stderr + here.stderr
    assert done.stdout == here.stdout
    assert f"Clean: {COUNT} of {COUNT}" in done.stdout
    assert nothing_of_the_driver(cluster, stage.folder)


def test_executors_get_tokens_themselves(cluster: SparkCluster, store: ObjectStore, tmp_path: Path) -> None:
    """By an endpoint whose certificate is of an own authority, too."""
    cluster.clear()
    with Tokens(tmp_path) as tokens, tokens.cluster() as kafka:
        kafka.create_topic("journal", 2)
        with Producer({"bootstrap.servers": kafka.internal}) as producer:
            for number in range(COUNT):
                producer.produce("journal", msgspec.json.encode(batch_row(partition=number)))
        words = ["--journal-topic", "journal", "--bootstrap-servers", kafka.bootstrap]
        words += ["--command-config", str(tokens.client_file("jobs", SECRET)), "--output", store.at("tokens")]
        done = cluster.submit("compact", *words, conf=conf(store))
    assert done.stdout == f"{COUNT} rows written to {store.at('tokens')}\n", done.stderr
    assert done.returncode == 0
    assert nothing_of_the_driver(cluster, tmp_path)
    assert not any(SECRET in text for _, text in cluster.executors())
