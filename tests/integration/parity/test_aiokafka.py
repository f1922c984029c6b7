"""aiokafka: AIOKafkaProducer, AIOKafkaConsumer and AIOKafkaAdminClient."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.admin import (  # type: ignore[import-untyped]
    AIOKafkaAdminClient,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
)
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]

from tests.integration.parity.librdkafka import fill
from tests.integration.parity.way import Way, again, both_ways, error_name

pytestmark = pytest.mark.integration

SECONDS = 90
CODECS = (None, "snappy", *(pytest.param(codec, marks=pytest.mark.whole) for codec in ("gzip", "lz4", "zstd")))


def consumer(way: Way, *topics: str, **settings: Any) -> Any:
    defaults = {"group_id": way.name("group"), "auto_offset_reset": "earliest", "enable_auto_commit": False}
    return AIOKafkaConsumer(*topics, bootstrap_servers=way.bootstrap, **{**defaults, **settings})


def producer(way: Way, **settings: Any) -> Any:
    return AIOKafkaProducer(bootstrap_servers=way.bootstrap, **settings)


def partitions_of(topic: str) -> list[Any]:
    return [TopicPartition(topic, partition) for partition in range(3)]


async def filled(way: Way, what: str = "topic") -> str:
    """A topic with `fill`'s 30 records."""
    topic = await asyncio.to_thread(way.topic, what)
    await asyncio.to_thread(fill, way, topic)
    return topic


async def told(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except Exception as error:
        return error_name(error)


async def read(client: Any, count: int) -> list[list[Any]]:
    """At least `count` records, by topic, partition and offset."""
    records: list[list[Any]] = []
    async with asyncio.timeout(SECONDS):
        while len(records) < count:
            for fetched in (await client.getmany(timeout_ms=200)).values():
                records += [[each.topic, each.partition, each.offset, each.key, each.value] for each in fetched]
    return sorted(records, key=lambda record: record[:3])


async def everything(way: Way, topic: str, count: int, **settings: Any) -> list[list[Any]]:
    async with consumer(way, group_id=None, **settings) as client:
        client.assign(partitions_of(topic))
        await client.seek_to_beginning()
        return await read(client, count)


async def send(client: Any, topic: str, records: list[dict[str, Any]]) -> list[Any]:
    """Of each record partition and offset, or the error's name."""

    async def answer(future: Awaitable[Any]) -> Any:
        metadata = await future
        return metadata and [metadata.partition, metadata.offset]

    futures = [await client.send(topic, **record) for record in records]
    return [await told(answer(future)) for future in futures]


@pytest.mark.parametrize("codec", CODECS)
@both_ways
async def test_records_with_keys(way: Way, codec: str | None) -> Any:
    topic = await asyncio.to_thread(way.topic)
    outcome: list[Any] = []
    records = [{"key": b"key-%d" % (seq % 7), "value": b"%d" % seq, "headers": [("a", b"b")]} for seq in range(40)]
    for settings in ({"acks": 1}, {"acks": "all"}, {"enable_idempotence": True}):
        async with producer(way, compression_type=codec, **settings) as client:
            outcome.append(await send(client, topic, records))
    return outcome, await everything(way, topic, 120)


@both_ways
async def test_records_without_keys(way: Way) -> Any:
    topic = await asyncio.to_thread(way.topic)
    for acks in (0, 1, "all"):
        async with producer(way, acks=acks) as client:
            answers = await send(client, topic, [{"value": b"value"}] * 20)
            assert not [answer for answer in answers if isinstance(answer, str)]
    return [record[4] for record in await everything(way, topic, 60)]


@both_ways
async def test_a_batch_of_ones_own(way: Way) -> Any:
    topic = await asyncio.to_thread(way.topic)
    async with producer(way) as client:
        batch = client.create_batch()
        for seq in range(10):
            batch.append(key=b"key", value=b"%d" % seq, timestamp=1_000 + seq)
        metadata = await (await client.send_batch(batch, topic, partition=1))
    return metadata.partition, metadata.offset, await everything(way, topic, 10)


@both_ways
async def test_transactions(way: Way) -> Any:
    topic = await asyncio.to_thread(way.topic)
    outcome: list[Any] = []
    async with producer(way, transactional_id=way.name("transaction")) as client:
        for run in (b"first", b"aborted", b"last"):
            await client.begin_transaction()
            outcome.append(await send(client, topic, [{"partition": seq % 3, "value": run} for seq in range(9)]))
            await (client.abort_transaction() if run == b"aborted" else client.commit_transaction())
        async with client.transaction():
            await client.send_offsets_to_transaction({TopicPartition(topic, 1): 3}, way.name("group"))
    async with consumer(way) as reader:
        for _ in again():  # it is told as committed before the group's coordinator has written it
            if (committed := await reader.committed(TopicPartition(topic, 1))) is not None:
                break
        outcome.append(committed)
    return outcome, await everything(way, topic, 18, isolation_level="read_committed")


@both_ways
async def test_a_group_reads_and_goes_on_where_it_was(way: Way) -> Any:
    topic = await filled(way)
    outcome: list[Any] = []
    for _ in range(2):
        async with consumer(way, topic) as client:
            outcome.append(await read(client, 30))
            await client.commit()
            outcome.append([await client.committed(partition) for partition in partitions_of(topic)])
        await asyncio.to_thread(fill, way, topic)
    return outcome


@both_ways
async def test_a_pattern(way: Way) -> Any:
    for what in ("wanted-1", "wanted-2", "other"):
        await filled(way, what)
    client = consumer(way)
    client.subscribe(pattern=f"^{re.escape(way.name('wanted'))}-.*")
    async with client:
        return await read(client, 60), client.subscription()


@both_ways
async def test_offsets(way: Way) -> Any:
    topic = await filled(way)
    outcome: list[Any] = []
    partitions = partitions_of(topic)
    async with consumer(way) as client:
        for offsets in (
            await client.beginning_offsets(partitions),
            await client.end_offsets(partitions),
            await client.offsets_for_times(dict.fromkeys(partitions, 1_015)),
            await client.offsets_for_times(dict.fromkeys(partitions, 5_000)),
        ):
            outcome.append(sorted(map(str, offsets.items())))
        client.assign(partitions)
        client.pause(partitions[0])
        outcome.append(await read(client, 20))
        outcome.append(sorted(map(str, client.paused())))
        client.resume(partitions[0])
        client.seek(partitions[0], 8)
        outcome.append(await read(client, 2))
        outcome.append([await client.position(partitions[0]), client.highwater(partitions[0])])
        await client.commit({partitions[1]: (4, "said")})
        outcome.append(await client.committed(partitions[1]))
    return outcome


@both_ways
async def test_list_topics(way: Way) -> Any:
    topic = await asyncio.to_thread(way.topic)
    async with consumer(way) as client, producer(way) as sender:
        return way.own(await client.topics()), await sender.partitions_for(topic)


async def administered(way: Way) -> Any:
    client = AIOKafkaAdminClient(bootstrap_servers=way.bootstrap)
    await client.start()
    return client


@both_ways
async def test_admin(way: Way) -> Any:
    client, topic, made = await administered(way), await filled(way), way.name("made")
    outcome: list[Any] = []
    try:
        new = NewTopic(made, 2, 1)
        for ask in (
            client.create_topics([new]),
            client.create_topics([new]),
            client.create_partitions({made: NewPartitions(4)}),
        ):
            outcome.append([errors(answer) for answer in [await told(ask)]])
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "100000"})
        outcome.append([errors(answer) for answer in await client.alter_configs([resource])])
        for _ in again():  # the broker that is asked may hear of it a moment later
            described = [errors(answer) for answer in await client.describe_configs([resource])]
            if "'100000'" in str(described):
                break
        outcome.append(described)
        async with consumer(way, topic) as member:
            await read(member, 30)
            await member.commit()
        offsets = await client.list_consumer_group_offsets(way.name("group"))
        outcome.append(sorted(map(str, offsets.items())))
        outcome.append([group for group in await client.list_consumer_groups() if group[0] == way.name("group")])
        outcome.append([errors(answer) for answer in await client.describe_consumer_groups([way.name("group")])])
        outcome.append(await client.find_coordinator(way.name("group")) in (0, 1, 2))
        records = {partition: RecordsToDelete(before_offset=5) for partition in partitions_of(topic)}
        outcome.append(sorted(map(str, (await client.delete_records(records)).items())))
        for _ in again():
            if made in (topics := way.own(await client.list_topics())):
                break
        outcome.append(topics)
        cluster = await client.describe_cluster()
        outcome.append([cluster["brokers"], cluster["cluster_id"]])
        (partitions,) = [each["partitions"] for each in await client.describe_topics([topic])]
        outcome.append(sorted(part["leader"] for part in partitions))
        outcome.append(errors(await client.delete_topics([made])))
    finally:
        await client.close()
    return outcome


def errors(answer: Any) -> Any:
    """The protocol's answer as what it holds, or an error's name."""
    if isinstance(answer, str):
        return answer
    fields = answer.to_object()
    fields.pop("throttle_time_ms", None)
    return fields
