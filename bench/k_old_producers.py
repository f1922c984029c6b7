"""k. Producers of before Kafka 0.11: what turning their messages into record batches costs, and what they get."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Final

from bench.report import Section, Table
from bench.rig import KAFKA, NODES, shown
from bench.wire_frames import Kind, records_in
from bench.wire_load import Load, offer
from bench.wired import codecs, forebay, sink
from forebay_codecs import message_set, record_batch
from tests.codecs.message_oracle import messages, wrapper
from tests.codecs.record_oracle import NOW, Record, encode_batch
from tests.kit.forebay import ForebayProcess
from tests.kit.java import AncientJavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.spec import ProduceSpec

CLIENT: Final = "0.9.0.1"
OLD_KAFKA: Final = "3.9.2"
TARGET: Final = 1.5
_LIMIT: Final = 1 << 24
_SIZES: Final = (1, 10, 100)
_VALUE: Final = 100
_KINDS: Final[tuple[Kind, Kind]] = ("produce", "old_produce")
_REQUESTS: Final = (1, 1_200, 12_000)
"""Bytes of a batch: one record, ten, a hundred."""


def run(short: bool) -> Section:
    return Section(
        "k",
        "Old producers",
        [
            _path_words(short),
            _path(short),
            _opening_words(),
            _opening(short),
            _run_words(),
            _runs(short),
        ],
    )


# What a record costs on the whole of its way


def _path(short: bool) -> Table:
    rows: list[list[object]] = []
    with sink() as broker, forebay(broker) as proxy:
        for size in _REQUESTS:
            new, old = (_cpu_a_record(proxy, kind, size, short) for kind in _KINDS)
            verdict = "met" if old / new <= TARGET else "missed"
            count = records_in(size, _VALUE)
            rows.append([f"{count} in a request", shown(new), shown(old), f"{old / new:.2f}", verdict])
    return Table(["", "v2 batch, µs a record", "message set, µs a record", "ratio", f"≤ {TARGET}"], rows)


def _cpu_a_record(proxy: ForebayProcess, kind: Kind, size: int, short: bool) -> float:
    rounds = []
    for _ in range(1 if short else 3):
        load = Load(proxy.node_port(0), kind, size, 10, 5, 1.0 if short else 6.0, _VALUE, 1.0, (proxy.pid,))
        outcome = offer(load)
        rounds.append(1e6 * outcome.cpu / outcome.requests / records_in(size, _VALUE))
    return median(rounds)


def _path_words(short: bool) -> str:
    return (
        f"What a record costs Forebay in all, from the client's frame to the broker's and back: Produce v9 with batches"
        f" of format v2, and Produce v1 with messages of format v0, {_VALUE} bytes a record, no key, 10 connections"
        f" with 5 requests under way, before a sink; CPU of the process, codecs {codecs()}, medians of"
        f" {1 if short else 3}."
    )


# What opening it costs


def _opening(short: bool) -> Table:
    rows: list[list[object]] = []
    for codec, name in enumerate(("none", "gzip", "snappy", "lz4")):
        for count in _SIZES:
            records = [Record(b"key-%d" % each, bytes(_VALUE), (), NOW + each) for each in range(count)]
            batch = _cost(short, count, partial(_open_batch, encode_batch(records, codec)))
            for magic in (0, 1):
                plain = messages(records, magic)
                old = wrapper(plain, codec, magic) if codec else plain
                cost = _cost(short, count, partial(_open_message_set, old))
                what = f"{name}, {count:,} in a set, v{magic}"
                rows.append([what, shown(batch), shown(cost), f"{cost / batch:.2f}"])
    return Table(["", "v2 batch, µs a record", "message set, µs a record", "ratio"], rows)


def _open_message_set(data: bytes) -> object:
    return message_set.open_message_set(data, 0, len(data), _LIMIT, NOW)


def _open_batch(data: bytes) -> object:
    header = record_batch.read_header(data, 0, len(data))
    assert header is not None
    return record_batch.open_batch(data, header, _LIMIT)


def _cost(short: bool, count: int, work: Callable[[], object]) -> float:
    """µs a record, the median of rounds."""
    times = max(10, (2_000 if short else 20_000) // count)
    rounds = []
    for _ in range(3 if short else 9):
        began = time.process_time()
        for _ in range(times):
            work()
        rounds.append(1e6 * (time.process_time() - began) / times / count)
    return median(rounds)


def _opening_words() -> str:
    return (
        f"Of that, opening what a client sent, for the accumulator: checksum, decompression, every record checked; of a"
        f" message set each message's own checksum, and every record written anew in format v2. Records of {_VALUE}"
        f" bytes with a short key; CPU time of this process, codecs {codecs()}."
    )


# What they get


def _runs(short: bool) -> Table:
    count, rounds = (5_000, 1) if short else (200_000, 5)
    client = AncientJavaClient(CLIENT)
    direct: list[dict[str, float]] = []
    through: list[dict[str, float]] = []
    with (
        KafkaCluster(OLD_KAFKA, NODES) as old,
        KafkaCluster(KAFKA, NODES) as new,
        ForebayProcess(new.internal, new.nodes) as proxy,
    ):
        for cluster in (old, new):
            cluster.create_topic("load", 6)
        for number in range(-1, rounds):  # the first warms all of them up
            for bootstrap, kept in ((old.bootstrap, direct), (proxy.bootstrap, through)):
                fast = client.produce(bootstrap, _spec(count, 0)).stats
                paced = client.produce(bootstrap, _spec(count // 20, 2_000)).stats
                if number >= 0:
                    kept.append(
                        {
                            "records/s": fast["acknowledged"] / fast["seconds"],
                            "p50": paced["p50_ms"],
                            "p99": paced["p99_ms"],
                        }
                    )
    client.close()

    def row(name: str, of: str) -> list[object]:
        without, within = (median(each[of] for each in kept) for kept in (direct, through))
        spread = f"{min(each[of] for each in through):,.3g} to {max(each[of] for each in through):,.3g}"
        return [name, shown(without), shown(within), f"{within / without:.2f}", spread]

    return Table(
        ["median", f"directly to {OLD_KAFKA}", f"through Forebay to {KAFKA}", "ratio", "Forebay's rounds"],
        [
            row("records/s, as fast as it goes", "records/s"),
            row("p50 at 2,000 records/s, ms", "p50"),
            row("p99 at 2,000 records/s, ms", "p99"),
        ],
    )


def _spec(count: int, rate: int) -> ProduceSpec:
    return ProduceSpec("load", "bench", count=count, keys="null", acks="1", size=200, linger_ms=0, rate=rate)


def _run_words() -> str:
    return (
        f"kafka-clients {CLIENT} (Produce v1, message format v0), one producer, acks=1, 200-byte records without a key,"
        f" six partitions on three brokers: directly to Kafka {OLD_KAFKA}, and through one Forebay process to Kafka"
        f" {KAFKA}, which refuses it directly. Rounds alternate; all share the machine, both clusters included."
    )
