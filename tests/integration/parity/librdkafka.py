"""confluent-kafka in few words, for the scenarios: what it is told, as plain values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.integration.parity.way import Way

SECONDS = 90
"""How long a scenario waits for what is certain to come. The clients' own timeouts are those that users have."""


@contextmanager
def consumer(way: Way, **settings: Any) -> Iterator[Consumer]:
    """A group of the way's own unless one is named."""
    opened = Consumer(_settings(way, {"group_id": way.name("group"), "auto_offset_reset": "earliest", **settings}))
    try:
        yield opened
    finally:
        opened.close()


def producer(way: Way, **settings: Any) -> Producer:
    return Producer(_settings(way, settings))


def admin(way: Way) -> Any:
    return AdminClient(_settings(way, {}))


def _settings(way: Way, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Underscores stand for dots, but in callbacks' names."""
    dotted = {name if name.endswith("_cb") else name.replace("_", "."): settings[name] for name in settings}
    return {"bootstrap.servers": way.bootstrap, **dotted}


def send(client: Producer, topic: str, records: Iterable[dict[str, Any]]) -> list[Any]:
    """Of each record, in the order of sending, partition and offset, or the error's name."""
    answers: dict[int, Any] = {}

    def listener(number: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            answers[number] = error.name() if error else [message.partition(), message.offset()]

        return delivered

    for number, record in enumerate(records):
        client.produce(topic, on_delivery=listener(number), **record)
    assert client.flush(SECONDS) == 0, f"{len(answers)} records answered"
    return [answers[number] for number in sorted(answers)]


def fill(way: Way, topic: str, count: int = 30, partitions: int = 3) -> None:
    """`count` records, the same for every client: over all partitions in turn, with keys and known timestamps."""
    records = [
        {"partition": seq % partitions, "key": f"key-{seq}", "value": f"value-{seq}", "timestamp": 1_000 + seq}
        for seq in range(count)
    ]
    assert not [answer for answer in send(producer(way), topic, records) if isinstance(answer, str)]


def read(client: Consumer, count: int) -> list[Message]:
    """At least `count` messages; errors raise."""
    messages: list[Message] = []
    deadline = time.monotonic() + SECONDS
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} records"
        messages += client.consume(count - len(messages), timeout=0.2)
        assert not [str(message.error()) for message in messages if message.error()]
    return messages


def until(client: Consumer, ready: Callable[[], bool]) -> None:
    """Polls until something has happened to the client; records that come meanwhile are dropped."""
    deadline = time.monotonic() + SECONDS
    while not ready():
        assert time.monotonic() < deadline
        client.poll(0.1)


def whole(message: Message) -> list[Any]:
    return [message.partition(), message.offset(), *content(message)]


def content(message: Message) -> list[Any]:
    return [message.key(), message.value(), message.headers()]


def places(partitions: Iterable[TopicPartition]) -> list[Any]:
    """Sorted: clients tell partitions in no order."""
    return sorted([each.topic, each.partition, each.offset, each.error and each.error.name()] for each in partitions)


def everything(way: Way, topic: str, count: int, partitions: int = 3, **settings: Any) -> list[list[Any]]:
    """The topic from its start, by partition and offset."""
    with consumer(way, **settings) as client:
        client.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        messages = read(client, count)
        assert client.poll(0.3) is None, "more than was sent"
    return sorted(map(whole, messages), key=lambda found: found[:2])
