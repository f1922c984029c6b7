"""Journals for bench n: made up, and written as a busy proxy writes them; and topics that one tells of."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from bench.rig import NODES
from forebay_policies.journal_rows import LedgerPart, Row
from tests.kit.kafka import KafkaCluster
from tests.pipeline.rows import (
    START_US,
    batch_row,
    choice_row,
    gauge_row,
    json_lines,
    ledger_part,
    ledger_row,
    write_lines,
)

_FILE_ROWS: Final = 200_000
_STEP_US: Final = 200
"""5,000 rows a second."""
_PROCESS: Final = f"here-1-0-{START_US:x}"


class Shape(NamedTuple):
    """What traffic looks like."""

    topics: int = 20
    partitions: int = 6
    """Of each."""
    hot: float = 0.0
    """The first topic's share, beyond what it has as one of them."""
    most_records: int = 60
    """Of a batch; a part of a request has a sixth at most."""

    def topic(self, number: int, rng: Random) -> str:
        """Where the row of that number goes."""
        return f"topic-{0 if rng.random() < self.hot else number % self.topics}"


EVEN: Final = Shape()
SKEWED: Final = Shape(topics=100, partitions=50, hot=0.5, most_records=1)


def write_journal(folder: Path, count: int, shape: Shape) -> None:
    """Two ledger rows and two batches to a choice, a gauge row a second."""
    rng = Random(7)
    for first in range(0, count, _FILE_ROWS):
        numbers = range(first, min(count, first + _FILE_ROWS))
        lines = json_lines(_row(number, shape, rng) for number in numbers)
        write_lines(folder, lines, START_US + first * _STEP_US, f"bench-{first:010}")


def _row(number: int, shape: Shape, rng: Random) -> Row:
    time_us = START_US + number * _STEP_US
    topic = shape.topic(number, rng)
    partition = int(rng.random() * shape.partitions)
    wait = int(rng.random() * (20_000 if partition % NODES == 0 else 3_000))
    if number % 5_000 == 0:
        return gauge_row(time_us=time_us, queued_bytes=100_000, queued_batches=12, metadata_hits_total=number // 50)
    kind = number % 5
    if kind < 2:
        records = 1 + number % max(shape.most_records // 6 - 1, 1)
        part = LedgerPart(partition, number, records, 120 * records, True, number & 0xFFFFFFFF, number & 0xFFFFFFFF)
        return ledger_row(
            [part],
            time_us=time_us + wait,
            received_us=time_us,
            number=number,
            connection=number % 100,
            client_id=f"producer-{number % 40}",
            topic=topic,
        )
    if kind < 4:
        records = 1 + number % shape.most_records
        return batch_row(
            time_us=time_us,
            topic=topic,
            partition=partition,
            leader=partition % NODES,
            records=records,
            bytes=120 * records,
            runs=1 + number % min(shape.most_records, 7),
            linger_us=wait // 2,
            upstream_us=wait,
            load=120 * records,
            base_offset=number,
        )
    return choice_row(
        time_us=time_us, topic=topic, partition=partition, loaded=1, loaded_partitions=[partition], loads=[4_000]
    )


def produce_parts(cluster: KafkaCluster, folder: Path, count: int, shape: Shape) -> None:
    """So many records, each of which is a part by itself, straight to topics of their own, and the ledger of them."""
    for number in range(shape.topics):
        cluster.create_topic(f"topic-{number}", shape.partitions)
    rng = Random(7)
    producer = Producer(
        {
            "bootstrap.servers": cluster.internal,
            "enable.idempotence": True,  # a request that times out is sent again, and there once
            "linger.ms": 500,
            "queue.buffering.max.messages": _FILE_ROWS,
        }
    )
    for first in range(0, count, _FILE_ROWS):
        rows = _sent(producer, range(first, min(count, first + _FILE_ROWS)), shape, rng)
        if first + _FILE_ROWS >= count:
            last_us = START_US + count * _STEP_US
            rows.append(gauge_row(time_us=last_us, process=_PROCESS, seq=1, ledger_rows_total=count, last=True))
        write_lines(folder, json_lines(rows), START_US + first * _STEP_US, f"bench-{first:010}")


def _sent(producer: Producer, numbers: range, shape: Shape, rng: Random) -> list[Row]:
    """The ledger's rows of so many records, once they are there."""
    rows: list[Row] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is not None or value is None:
            raise RuntimeError(f"{message.topic()}: {error}")
        number = int(value)
        time_us = START_US + number * _STEP_US
        part = ledger_part([(None, value)], partition=message.partition(), base_offset=message.offset())
        rows.append(
            ledger_row(
                [part],
                time_us=time_us,
                received_us=time_us - 1_000,
                process=_PROCESS,
                number=number,
                seq=number + 1,
                connection=number % 100,
                client_id=f"producer-{number % 40}",
                topic=message.topic(),
            )
        )

    for number in numbers:
        partition = int(rng.random() * shape.partitions)
        producer.produce(shape.topic(number, rng), b"%0100d" % number, partition=partition, on_delivery=on_delivery)
        producer.poll(0)
    producer.flush()
    return rows
