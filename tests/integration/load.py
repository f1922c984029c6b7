"""Records without end over one way, from producers of several kinds, and what became of each.

with Load(forebay.bootstrap, "orders") as load:
    … wait_until(lambda: load.acknowledged > 100, …)
assert load.failures == []                      # once it has ended: every record was acknowledged
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from types import TracebackType
from typing import Self

from confluent_kafka import Producer

from tests.kit.spec import ConsumedRecord

SECONDS = 60
PACE_S = 0.01


def values(found: Sequence[ConsumedRecord]) -> list[str]:
    """Of what was found in a topic, to be compared with what was sent, in order."""
    return sorted(record.value.decode() for record in found if record.value)


class Load:
    """One producer stays, and its records are merged; one stays and is idempotent, so that its records go on a
    connection of its own; others of that kind come and go.

    `also`: what else is to be done again and again; an OSError of it is a failure, too.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        props: Mapping[str, str] | None = None,
        also: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.topic = topic
        self.sent: list[str] = []
        self.acknowledged = 0
        self.failures: list[str] = []
        self._props = {
            "bootstrap.servers": bootstrap,
            "linger.ms": 0,
            "message.timeout.ms": SECONDS * 1000,
            **(props or {}),
        }
        self._stop = Event()
        self._threads = [Thread(target=self._until_told, args=(work,)) for work in (*also, self._come_and_go)]
        self._threads += [Thread(target=self._stay, args=(key,)) for key in (None, b"k")]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _until_told(self, work: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                work()
            except OSError as error:
                self.failures.append(str(error))

    def _producer(self, key: bytes | None) -> Producer:
        return Producer({**self._props, "enable.idempotence": key is not None})

    def _come_and_go(self) -> None:
        producer = self._producer(b"k")
        for _ in range(3):
            self._send(producer, b"k")
        self._flush(producer)

    def _stay(self, key: bytes | None) -> None:
        producer = self._producer(key)
        while not self._stop.wait(PACE_S):
            self._send(producer, key)
        self._flush(producer)

    def _send(self, producer: Producer, key: bytes | None) -> None:
        value = f"{'merged' if key is None else 'own'}-{id(producer)}-{time.monotonic_ns()}"
        self.sent.append(value)
        producer.produce(self.topic, value, key, on_delivery=self._told)
        producer.poll(0)

    def _told(self, error: object, _: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(str(error))

    def _flush(self, producer: Producer) -> None:
        if producer.flush(SECONDS):
            self.failures.append("not all records were acknowledged")
