"""Asks the brokers directly from the driver, before Spark does: Spark would wait for ever if none answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

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


class Asked:
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

    def ends(self, topic: str) -> dict[int, int]:
        """Partition → the offset of the next record, of a topic that exists. Raises CannotRun unless all are told."""
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
        partitions = [TopicPartition(topic, number) for number in self.topics()[topic].partitions]
        asked = self.admin.list_offsets(dict.fromkeys(partitions, which), request_timeout=ANSWER_S)
        found = {}
        for each, future in asked.items():
            try:
                found[each.partition] = future.result(ANSWER_S).offset
            except (KafkaException, TimeoutError) as error:
                raise CannotRun(
                    f"The brokers gave no answer about {topic}-{each.partition}: {reason(error)}."
                ) from error
        return found

    def cluster_id(self) -> str:
        """Empty if the brokers tell none. Raises CannotRun if no broker answers."""
        return self._metadata().cluster_id or ""

    def _metadata(self) -> ClusterMetadata:
        try:
            return self.admin.list_topics(timeout=CONNECT_S)
        except KafkaException as error:
            self.admin.poll(0)  # tells of errors on the way
            raise CannotRun(f"No broker answers at {self._brokers}: {self._why or reason(error)}.") from error


def reason(error: BaseException) -> str:
    """What went wrong, for people; a timeout has no text of its own."""
    return error.args[0].str() if isinstance(error, KafkaException) else str(error) or "no answer in time"
