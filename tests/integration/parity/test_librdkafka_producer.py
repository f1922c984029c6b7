"""confluent-kafka's Producer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from tests.integration.parity.librdkafka import SECONDS, consumer, content, everything, fill, producer, read, send
from tests.integration.parity.way import Way, both_ways, told
from tests.kit.spec import CODECS

pytestmark = pytest.mark.integration

ACKS = ("1", "all")
HEADERS = [("name", b"value"), ("empty", b""), ("none", None), ("name", b"again")]


def keyed(count: int) -> list[dict[str, Any]]:
    return [
        {"key": f"key-{seq % 7}", "value": f"value-{seq}", "timestamp": 1_700_000_000_000 + seq, "headers": HEADERS}
        for seq in range(count)
    ]


def without_key(count: int) -> list[dict[str, Any]]:
    return [{"value": f"value-{seq}", "headers": HEADERS} for seq in range(count)]


@pytest.mark.parametrize("codec", CODECS)
@both_ways
def test_records_with_keys(way: Way, codec: str) -> Any:
    topic = way.topic()
    outcome: list[Any] = []
    for acks in ACKS:
        outcome.append(send(producer(way, acks=acks, compression_type=codec), topic, keyed(40)))
    return outcome, everything(way, topic, 80)


@pytest.mark.parametrize("codec", CODECS)
@both_ways
def test_records_without_keys(way: Way, codec: str) -> Any:
    topic = way.topic()
    outcome: list[Any] = []
    for acks in ACKS:
        answers = send(producer(way, acks=acks, compression_type=codec), topic, without_key(40))
        outcome.append([answer for answer in answers if isinstance(answer, str)])
    return outcome, sorted(found[2:] for found in everything(way, topic, 80))


@both_ways
def test_no_acknowledgement(way: Way) -> Any:
    """The client lives until everything is read: one that closes with something to read resets what it has written."""
    topic = way.topic()
    client = producer(way, acks=0)
    answers = send(client, topic, keyed(40))
    return [answer for answer in answers if isinstance(answer, str)], everything(way, topic, 40)


@both_ways
def test_a_partition_by_name(way: Way) -> Any:
    topic = way.topic()
    records = [{"partition": seq % 3, "key": "one", "value": str(seq)} for seq in range(30)]
    return send(producer(way), topic, records), everything(way, topic, 30)


@both_ways
def test_idempotent(way: Way) -> Any:
    topic = way.topic()
    records = [{"partition": seq % 3, "value": str(seq)} for seq in range(90)]
    return send(producer(way, enable_idempotence=True), topic, records), everything(way, topic, 90)


@both_ways
def test_transactions(way: Way) -> Any:
    """Two committed, one aborted between them; offsets tell of the markers."""
    topic = way.topic()
    outcome: list[Any] = []
    client = producer(way, transactional_id=way.name("transaction"))
    client.init_transactions()
    for run in ("first", "aborted", "last"):
        client.begin_transaction()
        records = [{"partition": seq % 3, "value": f"{run}-{seq}"} for seq in range(9)]
        outcome.append(send(client, topic, records))
        (client.abort_transaction if run == "aborted" else client.commit_transaction)()
    committed = everything(way, topic, 18, isolation_level="read_committed")
    return outcome, committed, everything(way, topic, 27, isolation_level="read_uncommitted")


@both_ways
def test_offsets_in_a_transaction(way: Way) -> Any:
    source, sink = way.topic("source"), way.topic("sink")
    fill(way, source)
    client = producer(way, transactional_id=way.name("transaction"))
    client.init_transactions()
    partitions = [TopicPartition(source, partition) for partition in range(3)]
    with consumer(way, enable_auto_commit=False, isolation_level="read_committed") as reader:
        reader.subscribe([source])
        for commit in (False, True):
            messages = read(reader, 15)
            client.begin_transaction()
            records = [{"partition": 0, "key": each.key(), "value": each.value()} for each in messages]
            answers = send(client, sink, records)
            client.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata())
            (client.commit_transaction if commit else client.abort_transaction)()
        committed = sum(each.offset for each in reader.committed(partitions, timeout=SECONDS))
    return answers, committed, len(everything(way, sink, 15, isolation_level="read_committed"))


@both_ways
def test_the_second_producer_of_a_transactional_id_fences_the_first(way: Way) -> Any:
    topic, settings = way.topic(), {"transactional_id": way.name("transaction")}
    first, second = producer(way, **settings), producer(way, **settings)
    first.init_transactions()
    first.begin_transaction()
    send(first, topic, [{"partition": 0, "value": "fenced"}])
    second.init_transactions()
    fenced = told(first.commit_transaction)
    second.begin_transaction()
    send(second, topic, [{"partition": 0, "value": "kept"}])
    second.commit_transaction()
    return fenced, everything(way, topic, 1, isolation_level="read_committed")


@both_ways
def test_a_topic_that_is_not_there_is_made(way: Way) -> Any:
    topic = way.name("made")
    answers = send(producer(way), topic, keyed(3))
    return answers, sorted(found[2:] for found in everything(way, topic, 3, partitions=1))


@both_ways
def test_what_the_broker_refuses(way: Way) -> Any:
    """One record of each kind: with a key, without, and from an idempotent producer."""
    small = way.topic("small", config={"max.message.bytes": "1000"})
    compacted = way.topic("compacted", config={"cleanup.policy": "compact"})
    of_today = way.topic("of-today", config={"message.timestamp.before.max.ms": "3600000"})
    outcome = []
    for idempotent in (False, True):
        client = producer(way, enable_idempotence=idempotent)
        for key in (None, "key"):
            outcome.append(send(client, small, [{"key": key, "value": "x" * 5_000}]))
            refused = [{"key": key, "value": "x", "timestamp": 1_000}]
            outcome.append([answer for answer in send(client, of_today, refused) if isinstance(answer, str)])
        outcome.append(send(client, compacted, [{"value": "x"}]))
        outcome.append(send(client, way.name("not a topic"), [{"value": "x"}]))
    large = producer(way, message_max_bytes=3_000_000)
    outcome.append(send(large, small, [{"key": "key", "value": "x" * 2_000_000}]))
    return outcome


@both_ways
def test_times_of_the_log(way: Way) -> Any:
    topic = way.topic(config={"message.timestamp.type": "LogAppendTime"})
    send(producer(way), topic, keyed(10))
    with consumer(way) as client:
        client.subscribe([topic])
        messages = read(client, 10)
    return sorted([*content(message), message.timestamp()[0]] for message in messages)


@both_ways
def test_list_topics(way: Way) -> Any:
    topic = way.topic()
    everywhere = producer(way).list_topics(timeout=SECONDS)
    one = producer(way).list_topics(topic, timeout=SECONDS)
    return way.own(everywhere.topics), sorted(one.topics), set(map(str, one.brokers.values()))


@both_ways
def test_statistics(way: Way) -> Any:
    """Brokers that the client knows and has spoken to, leaders of the topic, and what was acknowledged."""
    topic = way.topic()
    statistics: list[dict[str, Any]] = [{}]
    client = producer(way, statistics_interval_ms=100, stats_cb=lambda text: statistics.append(json.loads(text)))
    send(client, topic, [{"partition": seq % 3, "key": "key", "value": "value"} for seq in range(30)])
    while statistics[-1].get("txmsgs") != 30:
        client.poll(0.1)
    told = statistics[-1]
    brokers = {
        (broker["nodename"], broker["state"], broker["txerrs"], broker["rxerrs"], broker["req"]["Produce"] > 0)
        for broker in told["brokers"].values()
        if broker["nodeid"] >= 0
    }
    leaders = {number: part["leader"] for number, part in told["topics"][topic]["partitions"].items() if number != "-1"}
    return brokers, leaders, told["type"]
