"""The job `watch` over the journal's topic of a real Forebay, with a real Kafka that loses a topic, or some of it."""

from __future__ import annotations

import datetime
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.paths import JARS
from tests.kit.server import Server
from tests.kit.spark import JVM_FLAGS
from tests.kit.waiting import wait_until
from tests.pipeline.watch.receiver import Receiver

# Of a minute, which must have passed, until half a minute after it: test_command.py has the same in files.
pytestmark = [pytest.mark.integration, pytest.mark.whole, pytest.mark.timeout(900)]

COUNT = 500
SECONDS = 300


@dataclass
class Job:
    """Told to everybody at once."""

    cluster: KafkaCluster
    receiver: Receiver
    folder: Path

    @property
    def output(self) -> Path:
        return self.folder / "told"

    @property
    def metrics(self) -> Path:
        return self.folder / "forebay.prom"

    def start(self) -> Server:
        command = [sys.executable, "-m", "forebay_pipeline.cli", "watch", "--every", "2"]
        command += ["--journal-topic", "journal", "--bootstrap-servers", self.cluster.internal]
        command += ["--output", str(self.output), "--to-topic", "told", "--prometheus", str(self.metrics)]
        command += ["--webhook", self.receiver.url, "--jars", str(JARS / "spark-kafka"), "--master", "local[2]"]
        conf = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": JVM_FLAGS,
        }
        command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        return Server("watch", command, self.folder / "watch.log")

    def commits(self) -> int:
        return len(list((self.output / "_checkpoint" / "commits").glob("[0-9]*")))

    def told(self) -> list[dict[str, Any]]:
        lines = b"".join(path.read_bytes() for path in self.output.glob("minutes-*.jsonl")).splitlines()
        return [json.loads(line) for line in lines]

    def seconds(self) -> float:
        """From the end of the newest minute until it was told."""
        newest = max(self.output.glob("minutes-*.jsonl"))
        began = datetime.datetime.fromisoformat(json.loads(newest.read_bytes().splitlines()[-1])["minute"])
        return newest.stat().st_mtime - began.timestamp() - 60

    def acknowledged(self, topic: str) -> int:
        return sum(told["acknowledged"] for told in self.told() if told["topic"] == topic)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def job(tmp_path: Path, receiver: Receiver) -> Iterator[Job]:
    with KafkaCluster("4.3.1", brokers=1) as cluster:
        for topic in ("kept", "lost", "journal", "told"):
            cluster.create_topic(topic, 1)
        yield Job(cluster, receiver, tmp_path)


def produce(bootstrap: str, topic: str, acks: str = "all") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks})
    for number in range(COUNT):
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0


def make_again(cluster: KafkaCluster, topic: str) -> None:
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1)


def in_topic(cluster: KafkaCluster, at_least: int) -> list[tuple[dict[str, Any], int]]:
    """What the topic `told` has, with the time of each, in milliseconds since 1970."""
    settings = {"bootstrap.servers": cluster.internal, "group.id": "g", "auto.offset.reset": "earliest"}
    found: list[tuple[dict[str, Any], int]] = []
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["told"])
        deadline = time.monotonic() + 60
        while len(found) < at_least and time.monotonic() < deadline:
            if (message := consumer.poll(1)) is not None:
                value = message.value()
                assert message.error() is None
                assert value is not None
                found.append((json.loads(value), message.timestamp()[1]))
    finally:
        consumer.close()
    return found


def test_a_planted_loss_is_told_once_by_a_job_that_is_killed_twice(
    job: Job, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """First after a batch, then when lines have been written and perhaps nothing else.

    How long it takes until they are is recorded: `--junitxml` tells.
    """
    settings = {"journal.topic": "journal", "journal.ledger": "true"}
    watch = job.start()
    try:
        with ForebayProcess(job.cluster.bootstrap, job.cluster.nodes, settings=settings) as forebay:
            for topic in ("kept", "lost"):
                produce(forebay.bootstrap, topic)
            make_again(job.cluster, "lost")
            watch.wait_until(lambda: job.commits() >= 1, SECONDS)
            watch.kill()
            before = len(job.told())
            watch = job.start()
            watch.wait_until(lambda: len(job.told()) > before, SECONDS)
            record_testsuite_property("seconds from a minute's end until it is told", job.seconds())
            watch.kill()
            watch = job.start()
            watch.wait_until(lambda: {"kept", "lost"} <= {told["topic"] for told in job.told()}, SECONDS)
            watch.wait_until(lambda: bool(job.receiver.got), SECONDS)
            commits = job.commits()
            watch.wait_until(lambda: job.commits() > commits, SECONDS)
        assert watch.terminate() == 0, watch.tail()
    finally:
        watch.kill()
    assert (job.acknowledged("kept"), job.acknowledged("lost")) == (COUNT, COUNT)
    told = job.told()
    assert len({(each["minute"], each["topic"], each["topic_id"]) for each in told}) == len(told)
    assert {each["lost"] for each in told if each["topic"] == "kept"} == {0}
    lost = [each for each in told if each["topic"] == "lost"]
    assert sum(each["lost"] for each in lost) == COUNT
    assert all(each["findings"] == ["lost", "made_again"] and each["cluster_id"] for each in lost)
    posted = [each for got in job.receiver.got for each in got["findings"]]
    assert {each["topic"] for each in posted} == {"lost"}
    assert posted[0] in lost
    sent = [each for each, _ in in_topic(job.cluster, len(told))]
    assert sorted({json.dumps(each) for each in sent}) == sorted(json.dumps(each) for each in told)
    assert 'forebay_watch_lost_records_total{cluster_id="' in job.metrics.read_text()


def test_what_an_unclean_election_lost_is_told(receiver: Receiver, tmp_path: Path) -> None:
    """Of what is acknowledged by the leader alone its follower, who was away, knows nothing when it has to lead."""
    with KafkaCluster("4.3.1") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.internal})
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        cluster.create_topic("truncated", assignment=[[0, 1]], config=config)
        for topic in ("kept", "journal", "told"):
            cluster.create_topic(topic, assignment=[[2]])

        def in_sync() -> list[int]:
            """None is known while the broker that is asked goes."""
            with suppress(KafkaException):
                return admin.list_topics("truncated", 10).topics["truncated"].partitions[0].isrs
            return []

        job = Job(cluster, receiver, tmp_path)
        settings = {"journal.topic": "journal", "journal.ledger": "true"}
        with ForebayProcess(cluster.bootstrap, cluster.nodes, settings=settings) as forebay:
            produce(forebay.bootstrap, "truncated")
            produce(forebay.bootstrap, "kept")
            cluster.kill(1)
            wait_until(lambda: in_sync() == [0], SECONDS, "the follower is out")
            produce(forebay.bootstrap, "truncated", acks="1")
            cluster.kill(0)
            cluster.start_node(1)
            wait_until(lambda: in_sync() == [1], SECONDS, "who knows nothing leads")
            watch = job.start()
            try:
                watch.wait_until(lambda: job.acknowledged("truncated") == 2 * COUNT, SECONDS)
                watch.wait_until(lambda: bool(job.receiver.got), SECONDS)
                assert watch.terminate() == 0, watch.tail()
            finally:
                watch.kill()
    told = job.told()
    assert {each["lost"] for each in told if each["topic"] == "kept"} == {0}
    truncated = [each for each in told if each["topic"] == "truncated"]
    assert sum(each["lost"] for each in truncated) == COUNT
    assert {tuple(each["findings"]) for each in truncated if each["lost"]} == {("lost",)}
    posted = [each for got in job.receiver.got for each in got["findings"]]
    assert posted == [each for each in truncated if each["lost"]]
