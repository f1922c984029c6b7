"""Asks the brokers directly from the driver, before Spark does: Spark would wait for ever if none answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, TopicMetadata  # type: ignore[attr-defined]

from forebay_pipeline.errors import CannotRun

CONNECT_S: Final = 10


def admin(bootstrap_servers: str) -> AdminClient:
    """A client that does not log: its exceptions say the same."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


def topics(client: AdminClient, bootstrap_servers: str) -> Mapping[str, TopicMetadata]:
    """All topics by name: asking for a single one may create it. Raises CannotRun if no broker answers."""
    try:
        return client.list_topics(timeout=CONNECT_S).topics
    except KafkaException as error:
        raise CannotRun(f"No broker answers at {bootstrap_servers}: {reason(error)}.") from error


def reason(error: BaseException) -> str:
    """What went wrong, for people; a timeout has no text of its own."""
    return error.args[0].str() if isinstance(error, KafkaException) else str(error) or "no answer in time"
