"""Who reads a topic while it is written, from the brokers themselves, and tells each record to its account.

with Follower(cluster.internal, topic, partitions, accounts) as follower:
    …
    follower.read_to(ends)         # everything that is there has been told
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.chaos.long_account import LongAccount, account_of
from tests.kit.python_clients import librdkafka_record
from tests.kit.spec import ClientFailed, ConsumedRecord
from tests.kit.waiting import wait_until

_AT_ONCE: Final = 1000
_POLL_SECONDS: Final = 0.2
_TO_THE_END_SECONDS: Final = 300


class Follower:
    """Each partition is read once, from its beginning, in the order of its offsets."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: Iterable[int], accounts: Mapping[str, LongAccount]
    ) -> None:
        settings: dict[str, str | bool | int] = {
            "bootstrap.servers": bootstrap,
            "group.id": "follower",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        self._accounts = accounts
        self._next: dict[int, int] = {}
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def read_to(self, ends: Mapping[int, int]) -> None:
        """Returns when each partition has been read to that offset. Raises what ended the reading."""
        wait_until(lambda: self._has_read(ends), _TO_THE_END_SECONDS, f"the topic is read to {ends}")

    def check(self) -> None:
        """Raises what ended the reading."""
        if self._error is not None:
            raise AssertionError("the topic is not read any more") from self._error

    def _has_read(self, ends: Mapping[int, int]) -> bool:
        self.check()
        return all(self._next.get(partition, 0) >= end for partition, end in ends.items())

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                for message in self._consumer.consume(_AT_ONCE, _POLL_SECONDS):
                    error = message.error()
                    if error is None:
                        self._tell(librdkafka_record(message))
                    elif error.code() == KafkaError._AUTO_OFFSET_RESET or error.fatal():
                        raise ClientFailed(str(error))
        except BaseException as error:
            self._error = error

    def _tell(self, record: ConsumedRecord) -> None:
        due = self._next.get(record.partition, 0)
        if record.offset < due:
            raise ClientFailed(f"partition {record.partition} was read to {due}, and then {record}")
        self._next[record.partition] = record.offset + 1
        found = account_of(record, self._accounts)
        if found is None:
            raise ClientFailed(f"nobody sent {record}")
        account, seq = found
        account.found(seq, record)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()
