"""Brokers that do not answer, and why."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal import brokers
from forebay_pipeline.journal.brokers import CONNECT_S, BrokerClient, Brokers, reason
from forebay_pipeline.journal.security import Security

REFUSED = KafkaError(KafkaError._AUTHENTICATION, "The password is wrong")
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
NO_ANSWER = KafkaException(KafkaError(KafkaError._TRANSPORT, "Broker transport failure"))


class Metadata:
    """Of a cluster with two topics, of two partitions each."""

    def __init__(self) -> None:
        self.topics = {name: SimpleNamespace(partitions={0: None, 1: None}) for name in ("a", "b")}


class Client:
    """Answers with what it is given; `on_the_way`: what it tells when it is polled. Partition n ends at offset 10 n +
    `first`, or has no leader.
    """

    def __init__(self, answer: Metadata | KafkaException, *on_the_way: KafkaError) -> None:
        self._answer = answer
        self._on_the_way = on_the_way
        self._tell: Callable[[KafkaError], None] | None = None
        self.settings: dict[str, Any] = {}
        self.timeouts: list[float] = []
        self.leaderless: set[int] = set()
        self.first = 0

    def __call__(self, settings: dict[str, Any]) -> Client:
        self._tell = settings.pop("error_cb")
        self.settings = settings
        return self

    def list_topics(self, timeout: float) -> Metadata:
        self.timeouts.append(timeout)
        if isinstance(self._answer, KafkaException):
            raise self._answer
        return self._answer

    def list_offsets(self, asked: dict[TopicPartition, Any], request_timeout: float) -> dict[Any, Future[Any]]:
        futures = {}
        for each in asked:
            futures[each] = future = Future[Any]()
            if each.partition in self.leaderless:
                future.set_exception(KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "No leader")))
            else:
                future.set_result(SimpleNamespace(offset=10 * each.partition + self.first))
        return futures

    def poll(self, timeout: float) -> None:
        assert self._tell is not None
        for error in self._on_the_way:
            self._tell(error)


def asked(monkeypatch: pytest.MonkeyPatch, client: Client, security: Security) -> BrokerClient:
    monkeypatch.setattr(brokers, "AdminClient", client)
    return BrokerClient(Brokers("a:1", security))


def test_all_topics_are_asked_for_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(found := Metadata())
    assert asked(monkeypatch, client, Security()).topics() == found.topics
    assert client.timeouts == [CONNECT_S]
    assert client.settings == {"bootstrap.servers": "a:1", "log_level": 0}


def test_each_client_is_told_how_brokers_are_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    security = Security({"sasl.password": "p"}, {"sasl.jaas.config": "j"})
    client = Client(Metadata())
    asked(monkeypatch, client, security)
    assert client.settings["sasl.password"] == "p"
    cluster = Brokers("a:1", security)
    assert cluster.for_spark() == {"kafka.bootstrap.servers": "a:1", "kafka.sasl.jaas.config": "j"}
    assert (str(cluster), "jaas" in repr(cluster)) == ("a:1", False)


def test_a_topic_is_asked_for_the_ends_of_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(Metadata())
    assert asked(monkeypatch, client, Security()).ends("a") == {0: 0, 1: 10}
    assert asked(monkeypatch, client, Security()).begins("a", None) == {0: 0, 1: 10}
    client.first = -1
    assert asked(monkeypatch, client, Security()).begins("a", 5) == {1: 9}, "0 has nothing since then"
    client.leaderless = {1}
    with pytest.raises(CannotRun, match=r"^The brokers gave no answer about a-1: No leader\.$"):
        asked(monkeypatch, client, Security()).ends("a")


def test_a_topic_that_a_broker_does_not_know_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one may have known it, or it was deleted meanwhile."""
    there = asked(monkeypatch, Client(Metadata()), Security())
    for ask in (there.ends, there.partitions, lambda topic: there.begins(topic, None)):
        with pytest.raises(CannotRun, match=r"^There is no topic gone at a:1\.$"):
            ask("gone")


@pytest.mark.parametrize(
    ("on_the_way", "why"),
    [
        ([], "Broker transport failure"),
        ([REFUSED, ALL_DOWN], "The password is wrong"),
        ([ALL_DOWN], "Broker transport failure"),
    ],
)
def test_no_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch, on_the_way: list[KafkaError], why: str) -> None:
    with pytest.raises(CannotRun) as wrong:
        asked(monkeypatch, Client(NO_ANSWER, *on_the_way), Security()).topics()
    assert str(wrong.value) == f"No broker answers at a:1: {why}."


def test_a_timeout_has_no_words_of_its_own() -> None:
    assert reason(TimeoutError()) == "no answer in time"
    assert reason(TimeoutError("too slow")) == "too slow"
