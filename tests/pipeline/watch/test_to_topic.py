"""A topic that is not there; one that takes minutes is in tests/integration/test_watch.py."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.brokers import Brokers
from forebay_pipeline.journal.security import Security
from forebay_pipeline.watch import to_topic
from forebay_pipeline.watch.to_topic import ToTopic
from tests.pipeline.watch.made_up import minute


class BrokerClient:
    def __init__(self, brokers: Brokers) -> None:
        pass

    def topics(self) -> dict[str, object]:
        return {"there": object()}


class Producer:
    """Refuses `refuses` of the records; its queue is full at the first try of each."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.sent: list[tuple[str, bytes, str]] = []
        self.refuses: list[bytes] = []
        self._waiting: list[Any] = []
        self._full = True

    def __call__(self, settings: dict[str, Any]) -> Producer:
        self.settings = settings
        return self

    def produce(self, topic: str, value: bytes, key: str, on_delivery: Any) -> None:
        if self._full:
            raise BufferError
        self._full = True
        self._waiting.append((topic, value, key, on_delivery))

    def poll(self, seconds: float) -> None:
        self._full = False

    def flush(self) -> None:
        for topic, value, key, on_delivery in self._waiting:
            refused = value in self.refuses
            if not refused:
                self.sent.append((topic, value, key))
            on_delivery(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Not yours") if refused else None, None)
        self._waiting.clear()


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    producer = Producer({})
    monkeypatch.setattr(to_topic, "BrokerClient", BrokerClient)
    monkeypatch.setattr(to_topic, "Producer", producer)
    return producer


def test_a_topic_that_is_not_there_is_not_made(producer: Producer) -> None:
    with pytest.raises(CannotRun, match=r"^There is no topic nowhere at a:1\.$"):
        ToTopic(Brokers("a:1"), "nowhere")


def test_each_minute_is_sent_by_its_topic(producer: Producer) -> None:
    topic = ToTopic(Brokers("a:1", Security({"sasl.password": "p"})), "there")
    topic.tell(0, [minute(), minute(topic="other")])
    assert [(to, key) for to, _, key in producer.sent] == [("there", "t"), ("there", "other")]
    assert b'"p99_ms":20.0' in producer.sent[0][1]
    assert (producer.settings["sasl.password"], producer.settings["enable.idempotence"]) == ("p", True)


def test_what_is_refused_ends_the_batch_and_only_that_one(producer: Producer) -> None:
    topic = ToTopic(Brokers("a:1"), "there")
    topic.tell(0, [minute(topic="other")])
    producer.refuses = [producer.sent[0][1]]
    with pytest.raises(CannotRun, match=r"^Topic there did not take what was watched: Not yours\.$"):
        topic.tell(1, [minute(topic="other"), minute()])
    producer.refuses = []
    topic.tell(1, [minute(topic="other"), minute()])
    assert [key for _, _, key in producer.sent] == ["other", "t", "other", "t"]
