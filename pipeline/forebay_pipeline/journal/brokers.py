"""Brokers, asked directly from the driver, before Spark is: it waits for ever where a person wants a sentence.

In: bootstrap servers. Out: an AdminClient, and the topics that there are. Wrong: CannotRun, where no broker answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, TopicMetadata  # type: ignore[attr-defined]

from forebay_pipeline.errors import CannotRun

CONNECT_S: Final = 10


def admin(bootstrap_servers: str) -> AdminClient:
    """It says nothing by itself: what it would log is in its exceptions, too."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


def topics(client: AdminClient, bootstrap_servers: str) -> Mapping[str, TopicMetadata]:
    """All of them, since asking for one by name may create it."""
    try:
        return client.list_topics(timeout=CONNECT_S).topics
    except KafkaException as error:
        raise CannotRun(f"No broker answers at {bootstrap_servers}: {reason(error)}.") from error


def reason(error: BaseException) -> str:
    return error.args[0].str() if isinstance(error, KafkaException) else str(error) or "no answer in time"
