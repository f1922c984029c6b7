"""What is really in a topic, read from the brokers themselves and not through whatever stands before them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.kit.python_clients import librdkafka_record
from tests.kit.spec import ClientFailed, ConsumedRecord

_SECONDS = 60

Ends = Mapping[int, int]


class TopicLog:
    """Reads from given offsets to the end of each partition: what is read is all there is, no more to come."""

    def __init__(self, bootstrap: str) -> None:
        settings: dict[str, str | bool | int] = {
            "bootstrap.servers": bootstrap,
            "group.id": "the-test-itself",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            # The end of a partition is told by a fetch that found nothing: let the broker not wait for more.
            "fetch.wait.max.ms": 10,
        }
        self._uncommitted = Consumer({**settings, "isolation.level": "read_uncommitted"})
        self._committed = Consumer({**settings, "isolation.level": "read_committed"})

    def ends(self, topic: str) -> Ends:
        """The offset after the last record of each partition."""
        known = self._uncommitted.list_topics(topic, timeout=_SECONDS).topics[topic]
        if known.error is not None or not known.partitions:
            raise ClientFailed(f"the ends of {topic}: {known.error or 'no partitions'}")
        return {partition: self._end(topic, partition) for partition in known.partitions}

    def read(self, topic: str, since: Ends, *, at_least: int = 0, read_committed: bool = False) -> list[ConsumedRecord]:
        """All records from `since` on. Waits for `at_least` of them, for acks=0 says nothing of when they are there."""
        deadline = time.monotonic() + _SECONDS
        while True:
            records = self._read(topic, since, read_committed)
            if len(records) >= at_least or time.monotonic() > deadline:
                return records

    def _end(self, topic: str, partition: int) -> int:
        _, end = self._uncommitted.get_watermark_offsets(TopicPartition(topic, partition), _SECONDS)
        return end

    def _read(self, topic: str, since: Ends, read_committed: bool) -> list[ConsumedRecord]:
        consumer = self._committed if read_committed else self._uncommitted
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in since.items()])
        records: list[ConsumedRecord] = []
        unread = set(since)
        deadline = time.monotonic() + _SECONDS
        while unread:
            if time.monotonic() > deadline:
                raise ClientFailed(f"partitions {sorted(unread)} of {topic} were not read to their end")
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                records.append(librdkafka_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                raise ClientFailed(f"reading {topic}: {error}")
        consumer.unassign()
        return records

    def close(self) -> None:
        self._uncommitted.close()
        self._committed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
