"""Jobs that log in with tokens (OAUTHBEARER): both of their clients get them of an issuer, and brokers take them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from forebay_pipeline.journal import brokers
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.token_cluster import Tokens
from tests.pipeline.command_line import run
from tests.pipeline.rows import batch_row

# Logins by SCRAM go the same way in `make test` (test_secured_jobs.py).
pytestmark = [pytest.mark.integration, pytest.mark.whole, pytest.mark.timeout(600)]

COUNT = 20
SECRET = "canary-7f1"


@dataclass
class Stage:
    tokens: Tokens
    cluster: KafkaCluster

    def words(self, **settings: str) -> list[str]:
        """Where the journal is, and a file that says how it is reached; dots in names are underscores here."""
        told = {name.replace("_", "."): value for name, value in settings.items()}
        where = ["--journal-topic", "journal", "--bootstrap-servers", self.cluster.bootstrap]
        return [*where, "--command-config", str(self.tokens.client_file("jobs", SECRET, told))]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Tokens(tmp_path_factory.mktemp("tokens")) as tokens, tokens.cluster() as cluster:
        cluster.create_topic("journal", 2)
        with Producer({"bootstrap.servers": cluster.internal}) as producer:
            for number in range(COUNT):
                producer.produce("journal", msgspec.json.encode(batch_row(partition=number)))
        yield Stage(tokens, cluster)


def test_compact_reads_a_topic_for_which_it_needs_tokens(stage: Stage, spark: SparkSession, tmp_path: Path) -> None:
    """Both clients trust the endpoint's certificate by what the login line says."""
    output = tmp_path / "parquet"
    done = run("compact", *stage.words(), "--output", output)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"{COUNT} rows written to {output}\n"
    kept = "".join(path.read_text(errors="replace") for path in output.rglob("*") if path.is_file())
    assert SECRET not in kept


def test_a_token_that_nobody_gives_is_one_sentence(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark, which would wait on, is never asked."""
    monkeypatch.setattr(brokers, "CONNECT_S", 3)
    nowhere = f"http://{LOOPBACK}:{free_port()}/token"
    done = run("runaways", *stage.words(sasl_oauthbearer_token_endpoint_url=nowhere), "--once")
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"forebay-pipeline: No broker answers at {stage.cluster.bootstrap}: ")
    assert "Failed to acquire SASL OAUTHBEARER token: " in line
    assert SECRET not in line
