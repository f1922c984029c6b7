"""Asks the brokers directly from the driver, before Spark does: Spark would wait for ever if none answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ClusterMetadata,
    OffsetSpec,
    TopicMetadata,
)

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.security import PLAINTEXT, Security

CONNECT_S: Final = 10
ANSWER_S: Final = 60


@dataclass(frozen=True)
class Brokers:
    """Where brokers are, which is its text, and how they are reached."""

    bootstrap_servers: str
    security: Security = PLAINTEXT

    def __str__(self) -> str:
        return self.bootstrap_servers

    def for_spark(self) -> dict[str, str]:
        """Options of Spark's Kafka source."""
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            **{f"kafka.{name}": value for name, value in self.security.java.items()},
        }


class BrokerClient:
    """Brokers that are asked. `admin` is the client for it; it does not log, its exceptions say the same."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._why: str | None = None
        self.admin = AdminClient(
            {
                **brokers.security.librdkafka,
                "bootstrap.servers": brokers.bootstrap_servers,
                "log_level": 0,
                "error_cb": self._failed,  # type: ignore[dict-item]
            }
        )

    def _failed(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._why = error.str()

    def topics(self) -> Mapping[str, TopicMetadata]:
        """All topics by name: asking for a single one may create it. Raises CannotRun if no broker answers."""
        return self._metadata().topics

    def partitions(self, topic: str) -> Collection[int]:
        """Raises CannotRun if there is no such topic, or no broker answers."""
        known = self.topics().get(topic)
        if known is None:
            raise CannotRun(f"There is no topic {topic} at {self._brokers}.")
        return known.partitions

    def ends(self, topic: str) -> dict[int, int]:
        """Partition → the offset of the next record. Raises CannotRun unless all are told."""
        return self._offsets(topic, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def begins(self, topic: str, since_ms: int | None) -> dict[int, int]:
        """Partition → the offset of its first record, or of the first since `since_ms` (since 1970) where there is one.

        Raises as `ends` does.
        """
        if since_ms is None:
            return self._offsets(topic, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        found = self._offsets(topic, OffsetSpec.for_timestamp(since_ms))
        return {number: offset for number, offset in found.items() if offset >= 0}

    def _offsets(self, topic: str, which: OffsetSpec) -> dict[int, int]:
        untold: dict[str, CannotRun] = {}
        found = self.offsets({topic: self.partitions(topic)}, which, untold)  # not each broker knows it, perhaps
        if untold:
            raise next(iter(untold.values()))
        return {number: offset for (_, number), offset in found.items()}

    def offsets(
        self, partitions: Mapping[str, Collection[int]], which: OffsetSpec, untold: dict[str, CannotRun]
    ) -> dict[tuple[str, int], int]:
        """Of partitions of topics that exist; the topics of those that are not told of are added to `untold`."""
        wanted = [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]
        if not wanted:
            return {}
        asked = self.admin.list_offsets(dict.fromkeys(wanted, which), request_timeout=ANSWER_S)
        told = answers({(each.topic, each.partition): offset for each, offset in asked.items()}, untold)
        return {each: answer.offset for each, answer in told.items()}

    def cluster_id(self) -> str:
        """Empty if the brokers tell none. Raises CannotRun if no broker answers."""
        return self._metadata().cluster_id or ""

    def _metadata(self) -> ClusterMetadata:
        try:
            return self.admin.list_topics(timeout=CONNECT_S)
        except KafkaException as error:
            self.admin.poll(0)  # tells of errors on the way
            raise CannotRun(f"No broker answers at {self._brokers}: {self._why or reason(error)}.") from error


_About = TypeVar("_About", bound=tuple[str, int | None])
"""A topic and, where a question is about one, a partition."""


def answers(asked: Mapping[_About, Future[Any]], untold: dict[str, CannotRun]) -> dict[_About, Any]:
    """Those that there are within ANSWER_S; the topics of all others are added to `untold`."""
    wait(asked.values(), ANSWER_S)
    told = {}
    for about, future in asked.items():
        try:
            told[about] = future.result(0)
        except (KafkaException, TimeoutError) as error:
            topic, partition = about
            what = topic if partition is None else f"{topic}-{partition}"
            untold.setdefault(topic, CannotRun(f"The brokers gave no answer about {what}: {reason(error)}."))
    return told


def reason(error: BaseException) -> str:
    """What went wrong, for people; a timeout has no text of its own."""
    return error.args[0].str() if isinstance(error, KafkaException) else str(error) or "no answer in time"
