"""Minutes as records of a Kafka topic: the topic that is watched is the key, the minute as JSON the value.

Each at least once: a batch that is done again after a crash is sent again. Raises CannotRun if the topic does not
exist, or does not take them within a minute; then the batch is not done, and the next run begins with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from confluent_kafka import KafkaError, Message, Producer

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.brokers import BrokerClient, Brokers
from forebay_pipeline.watch.verdict import Minute

_SENT_S: Final = 60


class ToTopic:
    """Sends to `topic` with acks=all."""

    def __init__(self, brokers: Brokers, topic: str) -> None:
        if topic not in BrokerClient(brokers).topics():
            raise CannotRun(f"There is no topic {topic} at {brokers}.")
        self._topic = topic
        self._refused: KafkaError | None = None
        self._producer = Producer(
            {
                **brokers.security.librdkafka,
                "bootstrap.servers": brokers.bootstrap_servers,
                "enable.idempotence": True,
                "message.timeout.ms": _SENT_S * 1000,
                "log_level": 0,
            }
        )

    def tell(self, batch: int, minutes: Sequence[Minute]) -> None:
        """Send the minutes of a batch, and wait until they are there."""
        self._refused = None
        for minute in minutes:
            # Room in its queue is made by delivery, which takes a while where there is much to catch up with.
            while True:
                try:
                    self._producer.produce(
                        self._topic, msgspec.json.encode(minute), minute.topic, on_delivery=self._delivered
                    )
                    break
                except BufferError:
                    self._producer.poll(1)
        self._producer.flush()
        if self._refused is not None:
            raise CannotRun(f"Topic {self._topic} did not take what was watched: {self._refused.str()}.")

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self._refused = self._refused or error
