"""Brokers that do not answer, and why."""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.brokers import CONNECT_S, reason, topics


class Metadata:
    """Of a cluster with two topics."""

    def __init__(self) -> None:
        self.topics = {"a": object(), "b": object()}


class Client:
    """Answers with what it is given."""

    def __init__(self, answer: Metadata | KafkaException) -> None:
        self._answer = answer
        self.timeouts: list[float] = []

    def list_topics(self, timeout: float) -> Metadata:
        self.timeouts.append(timeout)
        if isinstance(self._answer, KafkaException):
            raise self._answer
        return self._answer


def test_all_topics_are_asked_for_and_not_for_ever() -> None:
    found = Metadata()
    client = Client(found)
    assert topics(cast(AdminClient, client), "a:1") == found.topics
    assert client.timeouts == [CONNECT_S]


def test_no_answer_is_one_sentence() -> None:
    client = Client(KafkaException(KafkaError(KafkaError._TRANSPORT, "Connection refused")))
    with pytest.raises(CannotRun) as wrong:
        topics(cast(AdminClient, client), "a:1")
    assert str(wrong.value) == "No broker answers at a:1: Connection refused."


def test_a_timeout_has_no_words_of_its_own() -> None:
    assert reason(TimeoutError()) == "no answer in time"
    assert reason(TimeoutError("too slow")) == "too slow"
