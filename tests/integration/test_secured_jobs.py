"""Jobs that read their journal, and the topics themselves, from a Kafka that takes nobody without TLS and a login."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from click.testing import Result
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from forebay_pipeline.journal import brokers
from forebay_proxy.security import pem
from tests.kit.children import children
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.paths import JARS
from tests.kit.sasl import PASSWORD, Secured
from tests.kit.server import Server
from tests.kit.spark import JVM_FLAGS
from tests.kit.topic_log import TopicLog
from tests.pipeline.command_line import run
from tests.pipeline.rows import gauge_row

# Two Sparks on two cores, and more beside them where tests run two at once.
pytestmark = [pytest.mark.integration, pytest.mark.whole, pytest.mark.timeout(600)]  # test_journal.py has jobs

COUNT = 500
WRONG = "canary-wrong-8c2"
SECONDS = 180
EVERYTHING_IS_TOLD = """\
rootLogger.level = warn
rootLogger.appenderRef.all.ref = all
logger.apache.name = org.apache
logger.apache.level = info
appender.all.type = File
appender.all.name = all
appender.all.fileName = {file}
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %p %c: %m%n%throwable
"""
"""Of a shell, which a job is to Spark, it changes the root's level, and what goes to the terminal."""


@dataclass
class Stage:
    """Records and their journal, in topics of one cluster."""

    secured: Secured
    cluster: KafkaCluster
    folder: Path

    def words(self, mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD, **more: str) -> list[str]:
        """Where the journal is, and a file that says how it is reached: with dots in its names for underscores."""
        lines = {**self.secured.forebay_settings(mechanism, password), "ssl.truststore.type": "PEM"}
        lines |= {name.replace("_", "."): value for name, value in more.items()}
        path = self.folder / f"{mechanism}-{len(password)}-{len(lines)}.properties"
        path.touch(mode=0o600)
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        where = ["--journal-topic", "journal", "--bootstrap-servers", self.cluster.bootstrap]
        return [*where, "--command-config", str(path)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("secured")
    secured = Secured(folder)
    with ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster("4.3.1", brokers=1, settings=secured.broker_settings()))
        secured.add_users(cluster)
        for topic in ("records", "journal"):
            cluster.create_topic(topic, 2)
        settings = {"journal.topic": "journal", "journal.ledger": "true", **secured.forebay_settings("PLAIN")}
        forebay = ForebayProcess(cluster.bootstrap, cluster.nodes, settings=settings)
        with forebay, Producer({"bootstrap.servers": forebay.bootstrap}) as producer:
            for number in range(COUNT):
                producer.produce("records", str(number))
        yield Stage(secured, cluster, folder)


def test_audit_and_runaways_of_a_secured_cluster(stage: Stage, spark: SparkSession) -> None:
    """They read a topic as a batch, and as a stream; the audit asks for its offsets and settings, too."""
    audited = run("audit", *stage.words(), "--settle", "0")
    assert (audited.exit_code, audited.stderr) == (0, "")
    assert f"Clean: {COUNT} of {COUNT}" in audited.stdout
    watched = run("runaways", *stage.words("PLAIN"), "--once")
    assert (watched.exit_code, watched.stderr, watched.stdout) == (0, "", "")


def test_watch_of_a_secured_cluster(stage: Stage, spark: SparkSession, tmp_path: Path) -> None:
    """What it tells goes to a topic there, too."""
    for topic in ("told", "again"):
        stage.cluster.create_topic(topic, 1)
    settings = {"journal.topic": "again", "journal.ledger": "true", **stage.secured.forebay_settings("PLAIN")}
    forebay = ForebayProcess(stage.cluster.bootstrap, stage.cluster.nodes, settings=settings)
    with forebay, Producer({"bootstrap.servers": forebay.bootstrap}) as producer:
        producer.produce("records", "one more")
    with Producer({"bootstrap.servers": stage.cluster.internal}) as producer:  # an hour later nothing has happened
        later = gauge_row(time_us=int(time.time() * 1e6) + 3600 * 1_000_000)
        producer.produce("again", msgspec.json.encode(later))
    words = [*stage.words(), "--journal-topic", "again", "--once", "--output", tmp_path / "told", "--to-topic", "told"]
    done = run("watch", *words)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    (line,) = (path.read_bytes() for path in (tmp_path / "told").glob("minutes-*.jsonl"))
    told = msgspec.json.decode(line)
    assert (told["topic"], told["acknowledged"], told["lost"]) == ("records", 1, 0)
    with TopicLog(stage.cluster.internal) as log:
        (sent,) = log.read("told", {0: 0}, at_least=1)
    assert sent.value is not None
    assert msgspec.json.decode(sent.value) == told


def test_compact_reads_a_secured_cluster_and_says_no_secret(stage: Stage, tmp_path: Path) -> None:
    """In a process of its own, that logs all there is to log, and writes an event log: all of Spark's web pages."""
    key = stage.secured.authority.issue("own", "client.example")
    words = stage.words(ssl_keystore_location=str(key))
    logging, events, output = tmp_path / "log4j2.properties", tmp_path / "events", tmp_path / "parquet"
    log = tmp_path / "spark.log"
    logging.write_text(EVERYTHING_IS_TOLD.format(file=log))
    events.mkdir()
    conf = {
        "spark.driver.extraJavaOptions": f"{JVM_FLAGS} -Dlog4j2.configurationFile={logging}",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    command = [sys.executable, "-m", "forebay_pipeline.cli", "compact", *words, "--output", str(output), "--every", "1"]
    command += ["--jars", str(JARS / "spark-kafka"), "--master", "local[2]"]
    command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    job = Server("compact", command, tmp_path / "compact.log")
    try:
        job.wait_until((output / "_checkpoint" / "commits" / "0").exists, SECONDS)
        lines = command_lines(job.pid)
        assert "java" in lines
        assert job.terminate(SECONDS) == 0, job.tail()
    finally:
        job.kill()
    said = job.log.read_text()
    assert f"rows written to {output}" in said
    assert f"0 rows written to {output}" not in said
    logged = log.read_text()
    assert "sasl.jaas.config = [hidden]" in logged
    told = "".join(path.read_text(errors="replace") for path in events.rglob("*") if path.is_file())
    assert "StreamingQueryListener" in told
    kept = "".join(path.read_text(errors="replace") for path in (output / "_checkpoint").rglob("*") if path.is_file())
    secret = [PASSWORD, *pem.private_key("", key.read_text()).splitlines()[1:-1]]
    for text in (said, logged, lines, told, kept):
        assert [each for each in secret if each in text] == []


def command_lines(pid: int) -> str:
    """Of a process and all that it has started."""
    return Path(f"/proc/{pid}/cmdline").read_text() + "".join(map(command_lines, children(pid)))


def one_line(result: Result) -> str:
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert WRONG not in line
    return line


def test_brokers_that_refuse_and_brokers_that_are_refused_are_one_sentence(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong password; none at all; a certificate that nobody trusts. Spark, which would wait on, is never asked."""
    monkeypatch.setattr(brokers, "CONNECT_S", 1)
    wrong = stage.words(password=WRONG)
    strangers = stage.words(ssl_truststore_location="", ssl_enabled_protocols="TLSv1.3")
    for words, why in (
        (wrong, "Authentication failed"),
        (wrong[:-2], ""),
        (strangers, "certificate verify failed"),
    ):
        line = one_line(run("runaways", *words, "--once"))
        assert line.startswith(f"forebay-pipeline: No broker answers at {stage.cluster.bootstrap}: ")
        assert why in line
