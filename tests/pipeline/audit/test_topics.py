"""What the brokers are asked of topics, beside an admin client that is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import ConfigResource, OffsetSpec  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from forebay_pipeline.audit.ranges import Claimed, Ends, TopicNow, ranges
from forebay_pipeline.audit.topics import KafkaTopics, _by_topic
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal import brokers
from forebay_pipeline.journal.brokers import Brokers


class _Named:
    def __init__(self, **fields: object) -> None:
        self.__dict__.update(fields)


class Admin:
    """Two topics, `a` with two partitions and `b` with one, compacted; `fails`: it does not tell their offsets, else
    only not those of `leaderless` ones; `refuses`: the user may not DescribeConfigs."""

    def __init__(self) -> None:
        self.fails = False
        self.refuses = False
        self.leaderless: set[tuple[str, int]] = set()

    def list_topics(self, timeout: float) -> _Named:
        return _Named(topics={"a": _Named(partitions={0: None, 1: None}), "b": _Named(partitions={0: None})})

    def describe_topics(self, asked: TopicCollection, request_timeout: float) -> dict[str, Future[Any]]:
        """`b` is at brokers too old to have ids."""
        ids = {"a": Uuid(-5, 7), "b": None}
        return _futures(ids, lambda name: _Named(topic_id=ids[name]))

    def list_offsets(self, asked: dict[TopicPartition, OffsetSpec], request_timeout: float) -> dict[Any, Future[Any]]:
        def offset(of: TopicPartition) -> _Named:
            if self.fails:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Timed out"))
            if (of.topic, of.partition) in self.leaderless:
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "Leader not available"))
            latest = isinstance(asked[of], type(OffsetSpec.latest()))  # type: ignore[no-untyped-call]
            return _Named(offset=10 * of.partition + (7 if latest else 2))

        return _futures(asked, offset)

    def describe_configs(self, asked: list[ConfigResource], request_timeout: float) -> dict[Any, Future[Any]]:
        def settings(of: ConfigResource) -> dict[str, _Named]:
            if self.refuses:
                raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Authorization failed"))
            return {"cleanup.policy": _Named(value="compact,delete" if of.name == "b" else "delete")}

        return _futures(asked, settings)


def _futures(asked: Iterable[Any], answer: Callable[[Any], Any]) -> dict[Any, Future[Any]]:
    futures = {}
    for each in asked:
        futures[each] = future = Future[Any]()
        try:
            future.set_result(answer(each))
        except KafkaException as error:
            future.set_exception(error)
    return futures


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    admin = Admin()
    monkeypatch.setattr(brokers, "AdminClient", lambda settings: admin)
    return admin


def test_topics_that_exist_are_told(admin: Admin) -> None:
    assert KafkaTopics(Brokers("a:1")).now(["a", "b", "gone"]) == {
        "a": TopicNow({0: Ends(2, 7), 1: Ends(12, 17)}, topic_id="__________sAAAAAAAAABw"),
        "b": TopicNow({0: Ends(2, 7)}, compacted=True),
    }
    assert KafkaTopics(Brokers("a:1")).now(["gone"]) == {}


def test_an_answer_that_does_not_come_is_one_sentence(admin: Admin) -> None:
    admin.fails = True
    with pytest.raises(CannotRun) as wrong:
        KafkaTopics(Brokers("a:1")).now(["b"])
    assert str(wrong.value) == "The brokers gave no answer about b-0: Timed out."


def test_a_partition_without_a_leader_costs_only_its_topic(admin: Admin) -> None:
    admin.leaderless = {("a", 1)}
    told, untold = KafkaTopics(Brokers("a:1")).told(["a", "b", "gone"], policies=True)
    assert told == {"b": TopicNow({0: Ends(2, 7)}, compacted=True)}
    why = "The brokers gave no answer about a-1: Leader not available."
    assert {name: str(error) for name, error in untold.items()} == {"a": why}
    with pytest.raises(CannotRun, match=f"^{why}$"):
        KafkaTopics(Brokers("a:1")).now(["a", "b"])


def test_who_may_not_know_policies_need_not_ask_for_them(admin: Admin) -> None:
    admin.refuses = True
    told, untold = KafkaTopics(Brokers("a:1")).told(["b"], policies=False)
    assert (told, untold) == ({"b": TopicNow({0: Ends(2, 7)})}, {})
    with pytest.raises(CannotRun, match=r"^The brokers gave no answer about b: Authorization failed\.$"):
        KafkaTopics(Brokers("a:1")).now(["b"])


def test_ranges_are_told_by_topic_and_looked_at_once() -> None:
    """There may be as many topics as ranges."""
    topics = {"b": {1: 3, 0: 2}, "a": {0: 5}, "c": {7: 1}}
    read = ranges([Claimed(topic, *each, 9) for topic, first in topics.items() for each in first.items()], {}, {})
    told = _by_topic(iter(read), lambda topic: {each.partition: each.settled for each in topic})
    assert msgspec.json.decode(told, type=dict[str, dict[int, int]]) == topics


def test_without_ranges_nothing_is_read(admin: Admin, spark: SparkSession) -> None:
    records = KafkaTopics(Brokers("a:1")).records(spark, [])
    assert (records.columns, records.count()) == (["topic", "partition", "offset", "key", "value"], 0)
