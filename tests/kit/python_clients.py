"""The clients of Python programs behind kit's interface: confluent-kafka (librdkafka), aiokafka, kafka-python."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]

from tests.kit.spec import Ack, ClientFailed, Codec, ConsumedRecord, ProduceResult, ProduceSpec

_SECONDS = 60


class ConfluentClient:
    name = "confluent"

    def __init__(self, props: Mapping[str, Any] | None = None) -> None:
        """`props`: settings of everything that it starts, such as those of TLS. So with the others."""
        self._props = dict(props or {})

    def can(self, spec: ProduceSpec) -> bool:
        return not spec.rate

    def produce(self, bootstrap: str, spec: ProduceSpec) -> ProduceResult:
        acks: list[Ack] = []
        failures: dict[int, str] = {}
        producer = Producer(_librdkafka_settings(bootstrap, spec) | self._props)

        def send(seq: int) -> None:
            def delivered(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    failures[seq] = str(error)
                    return
                _, timestamp = message.timestamp()
                acks.append(Ack(seq, _known(message.partition()), _known(message.offset()), timestamp))

            optional: dict[str, Any] = {}
            if spec.timestamp_base is not None:
                optional["timestamp"] = spec.timestamp(seq)
            if spec.partition is not None:
                optional["partition"] = spec.partition
            headers: list[tuple[str, str | bytes | None]] = [*spec.record_headers(seq)]
            producer.produce(
                spec.topic, spec.value(seq), spec.key(seq), headers=headers, on_delivery=delivered, **optional
            )
            producer.poll(0)

        if spec.transactional_id is not None:
            producer.init_transactions(_SECONDS)
            producer.begin_transaction()
        for seq in range(spec.count):
            send(seq)
        if producer.flush(_SECONDS):
            raise ClientFailed(f"confluent: {len(acks)} of {spec.count} records acknowledged within {_SECONDS} s")
        if spec.transactional_id is not None:
            finish = producer.abort_transaction if spec.abort else producer.commit_transaction
            finish(_SECONDS)
        return ProduceResult(acks, failures)

    def consume(
        self, bootstrap: str, topic: str, group: str, count: int, read_committed: bool = False
    ) -> list[ConsumedRecord]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
                **self._props,
            }
        )
        consumer.subscribe([topic])
        records: list[ConsumedRecord] = []
        deadline = time.monotonic() + _SECONDS
        try:
            while len(records) < count:
                _check(deadline, self.name, len(records), count)
                records += map(librdkafka_record, consumer.consume(count - len(records), timeout=0.2))
            if records:
                consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return records

    def brokers(self, bootstrap: str, topic: str) -> set[str]:
        metadata = AdminClient({"bootstrap.servers": bootstrap, **self._props}).list_topics(topic, timeout=_SECONDS)
        return {f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}

    def close(self) -> None:
        pass


class AioKafkaClient:
    name = "aiokafka"

    def __init__(self, props: Mapping[str, Any] | None = None) -> None:
        self._props = dict(props or {})

    def can(self, spec: ProduceSpec) -> bool:
        return not spec.rate

    def produce(self, bootstrap: str, spec: ProduceSpec) -> ProduceResult:
        return asyncio.run(asyncio.wait_for(self._produce(bootstrap, spec), _SECONDS))

    async def _produce(self, bootstrap: str, spec: ProduceSpec) -> ProduceResult:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **_python_settings(spec), **self._props)
        result = ProduceResult([])
        async with producer:
            if spec.transactional_id is not None:
                await producer.begin_transaction()
            futures = [
                await producer.send(
                    spec.topic,
                    spec.value(seq),
                    spec.key(seq),
                    partition=spec.partition,
                    timestamp_ms=spec.timestamp(seq),
                    headers=list(spec.record_headers(seq)) or None,
                )
                for seq in range(spec.count)
            ]
            told = await asyncio.gather(*futures, return_exceptions=True)
            if spec.transactional_id is not None:
                await (producer.abort_transaction() if spec.abort else producer.commit_transaction())
        _sort_answers(told, result)
        return result

    def consume(
        self, bootstrap: str, topic: str, group: str, count: int, read_committed: bool = False
    ) -> list[ConsumedRecord]:
        return asyncio.run(asyncio.wait_for(self._consume(bootstrap, topic, group, count, read_committed), _SECONDS))

    async def _consume(
        self, bootstrap: str, topic: str, group: str, count: int, read_committed: bool
    ) -> list[ConsumedRecord]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            **_python_consumer_settings(read_committed),
            **self._props,
        )
        records: list[ConsumedRecord] = []
        async with consumer:
            while len(records) < count:
                for fetched in (await consumer.getmany(timeout_ms=200)).values():
                    records += map(_python_record, fetched)
            await consumer.commit()
        return records

    def brokers(self, bootstrap: str, topic: str) -> set[str]:
        return asyncio.run(self._brokers(bootstrap, topic))

    async def _brokers(self, bootstrap: str, topic: str) -> set[str]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, **self._props) as producer:
            await producer.partitions_for(topic)
            return {f"{broker.host}:{broker.port}" for broker in producer.client.cluster.brokers()}

    def close(self) -> None:
        pass


class KafkaPythonClient:
    name = "kafka-python"

    def __init__(self, props: Mapping[str, Any] | None = None) -> None:
        self._props = dict(props or {})

    # snappy would need one more package; it also refuses headers without a value
    codecs: tuple[Codec, ...] = ("none", "gzip", "lz4", "zstd")

    def can(self, spec: ProduceSpec) -> bool:
        null_header = spec.headers and spec.null_header
        return spec.compression in self.codecs and not spec.rate and not null_header

    def produce(self, bootstrap: str, spec: ProduceSpec) -> ProduceResult:
        producer = KafkaProducer(bootstrap_servers=bootstrap, **_python_settings(spec), **self._props)
        result = ProduceResult([])
        try:
            if spec.transactional_id is not None:
                producer.init_transactions()
                producer.begin_transaction()
            futures = [
                producer.send(
                    spec.topic,
                    spec.value(seq),
                    spec.key(seq),
                    headers=list(spec.record_headers(seq)) or None,
                    partition=spec.partition,
                    timestamp_ms=spec.timestamp(seq),
                )
                for seq in range(spec.count)
            ]
            producer.flush(_SECONDS)
            _sort_answers([_told(future) for future in futures], result)
            if spec.transactional_id is not None:
                finish = producer.abort_transaction if spec.abort else producer.commit_transaction
                finish()
        finally:
            producer.close(_SECONDS)
        return result

    def consume(
        self, bootstrap: str, topic: str, group: str, count: int, read_committed: bool = False
    ) -> list[ConsumedRecord]:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            **_python_consumer_settings(read_committed),
            **self._props,
        )
        records: list[ConsumedRecord] = []
        deadline = time.monotonic() + _SECONDS
        try:
            while len(records) < count:
                _check(deadline, self.name, len(records), count)
                # One that ends while the group is joined anew may be the last to look after it (3.0.12, directly).
                for fetched in consumer.poll(timeout_ms=10_000).values():
                    records += map(_python_record, fetched)
            consumer.commit()
        finally:
            consumer.close()
        return records

    def brokers(self, bootstrap: str, topic: str) -> set[str]:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, **self._props)
        try:
            consumer.partitions_for_topic(topic)
            return {f"{broker.host}:{broker.port}" for broker in consumer._client.cluster.brokers()}
        finally:
            consumer.close()

    def close(self) -> None:
        pass


def librdkafka_record(message: Message) -> ConsumedRecord:
    if message.error() is not None:
        raise ClientFailed(f"confluent: {message.error()}")
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    _, timestamp = message.timestamp()
    key, value, headers = message.key(), message.value(), message.headers()
    return ConsumedRecord(topic, partition, offset, timestamp, _bytes(key), _bytes(value), _headers(headers))


def _librdkafka_settings(bootstrap: str, spec: ProduceSpec) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "acks": spec.acks,
        "compression.type": spec.compression,
        "enable.idempotence": spec.kept,
        "linger.ms": spec.linger_ms,
        **spec.props,
    }
    if spec.transactional_id is not None:
        settings["transactional.id"] = spec.transactional_id
    return settings


def _python_settings(spec: ProduceSpec) -> dict[str, Any]:
    """aiokafka took kafka-python's names."""
    return {
        "acks": "all" if spec.acks == "all" else int(spec.acks),
        "compression_type": None if spec.compression == "none" else spec.compression,
        "enable_idempotence": spec.kept,
        "transactional_id": spec.transactional_id,
        "linger_ms": spec.linger_ms,
        **spec.props,
    }


def _python_consumer_settings(read_committed: bool) -> dict[str, Any]:
    return {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": "read_committed" if read_committed else "read_uncommitted",
    }


def _sort_answers(told: Iterable[Any], result: ProduceResult) -> None:
    """aiokafka's and kafka-python's record metadata, or exception, by seq. acks=0 is told nothing or offset −1."""
    for seq, answer in enumerate(told):
        if isinstance(answer, BaseException):
            result.failures[seq] = repr(answer)
        elif answer is None:
            result.acks.append(Ack(seq))
        else:
            result.acks.append(Ack(seq, answer.partition, _known(answer.offset), _known(answer.timestamp)))


def _told(future: Any) -> Any:
    return future.exception if future.failed() else future.value


def _python_record(record: Any) -> ConsumedRecord:
    headers = tuple(record.headers)
    return ConsumedRecord(
        record.topic, record.partition, record.offset, record.timestamp, record.key, record.value, headers
    )


def _known(number: int | None) -> int:
    """−1 for what is not known, librdkafka's −1001 included."""
    return number if number is not None and number >= 0 else -1


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _headers(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, _bytes(value)) for name, value in headers or ())


def _check(deadline: float, name: str, seen: int, count: int) -> None:
    if time.monotonic() > deadline:
        raise ClientFailed(f"{name}: timed out with {seen} of {count} records")
