"""j. KIP-526's flood: old producers meet thousands of topics, directly and through Forebay; and what a hit costs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.report import Section, Table
from bench.rig import KAFKA, NODES, shown
from bench.wire_load import cpu_seconds
from bench.wired import codecs
from forebay_codecs.metadata_request import encode_metadata_request
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.paths import classpath
from tests.kit.ports import LOOPBACK, accepts, free_ports

CLIENT: Final = "2.3.1"
"""The last but one that asks for all its topics whenever it meets a new one."""
PARTITIONS: Final = 3
COUNTED: Final = 5
"""Producers whose Metadata is counted on its way: one asks as much as another."""
PREFIX: Final = "flood-"
TARGET: Final = 1 / 50
TOPICS: Final = int(os.environ.get("BENCH_TOPICS", "2000"))
"""Half an hour each way on two slow cores, which the clients take for reading answers; with half as many a quarter."""
HITS: Final = (1, 100, 2_000)
_PROGRAM: Final = Path(__file__).parent / "java" / "ManyTopics.java"
_FLAGS: Final = (
    "-Xms4g",
    "-Xmx4g",
    "-Xmn3g",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


class Flood(NamedTuple):
    """Of all records: seconds until the last was acknowledged, latencies in ms. `cpu`: the brokers', in seconds."""

    seconds: float
    p50: float
    p99: float
    longest: float
    cpu: float


class Asked(NamedTuple):
    requests: float
    bytes: float


def run(short: bool) -> Section:
    topics, producers = (200, 10) if short else (TOPICS, 50)
    with _cluster() as (cluster, counter):
        there = topics if short else max(topics, *HITS)
        _create(cluster, there)
        with counter:
            _flood(cluster, cluster.bootstrap, COUNTED, topics)
        counted = counter.counted
        by_hand = Asked(*(number * producers / COUNTED for number in counted))
        direct = _flood(cluster, cluster.internal, producers, topics)
        with ForebayProcess(cluster.internal, cluster.nodes) as proxy:
            before = _upstream(proxy)
            through = _flood(cluster, proxy.bootstrap, producers, topics)
            after = _upstream(proxy)
            asked = Asked(*(late - early for late, early in zip(after, before, strict=True)))
            hits = [_hit(proxy, number, there) for number in HITS if number <= there]
    return Section(
        "j",
        "Metadata of many topics",
        [_what(topics, producers), _table(direct, through, by_hand, asked), _hits_words(), Table(_HIT_HEAD, hits)],
    )


class _Counter:
    """wire_count before the brokers' CLIENT listeners while it is entered."""

    def __init__(self, ways: list[str]) -> None:
        self._ways = ways
        self.counted = Asked(0, 0)

    def __enter__(self) -> None:
        command = [sys.executable, "-m", "bench.wire_count", *self._ways]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while not all(accepts(int(way.partition(":")[0])) for way in self._ways):
            time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        said = self._process.communicate(timeout=30)[0]
        found = json.loads(said)
        self.counted = Asked(found["requests"], found["bytes"])


@contextmanager
def _cluster() -> Iterator[tuple[KafkaCluster, _Counter]]:
    own, counted = dict(enumerate(free_ports(NODES))), dict(enumerate(free_ports(NODES)))
    with KafkaCluster(KAFKA, NODES, ports=own, advertised=counted) as cluster:
        yield cluster, _Counter([f"{counted[node]}:{own[node]}" for node in own])


def _create(cluster: KafkaCluster, topics: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.internal})
    for first in range(0, topics, 100):
        wanted = [NewTopic(f"{PREFIX}{number}", PARTITIONS, 1) for number in range(first, min(topics, first + 100))]
        for made in admin.create_topics(wanted, operation_timeout=60).values():
            made.result(120)


def _flood(cluster: KafkaCluster, bootstrap: str, producers: int, topics: int) -> Flood:
    jars = ":".join(map(str, classpath(f"clients-{CLIENT}")))
    command = ["java", *_FLAGS, "-cp", jars, str(_PROGRAM), bootstrap, str(producers), str(topics), PREFIX]
    pids = tuple(cluster.pid(node) for node in cluster.nodes)
    cpu = cpu_seconds(pids)
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=3_000)
    cpu = cpu_seconds(pids) - cpu
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    found = json.loads(ended.stdout)
    if found.pop("failed"):
        raise RuntimeError(f"records were refused:\n{ended.stderr[-2000:]}")
    return Flood(**found, cpu=cpu)


def _upstream(proxy: ForebayProcess) -> Asked:
    now = proxy.metrics()
    moved = [now[f'forebay_metadata_upstream_bytes_total{{direction="{way}"}}'] for way in ("request", "response")]
    return Asked(now["forebay_metadata_upstream_requests_total"], sum(moved))


def _table(direct: Flood, through: Flood, counted: Asked, asked: Asked) -> Table:
    def row(name: str, without: float, within: float, target: float | None = None) -> list[object]:
        ratio = within / without
        told = "" if target is None else f"≤ {target:g}: {'met' if ratio <= target else 'missed'}"
        return [name, shown(without), shown(within), f"{ratio:.3f}", told]

    rows = [
        row("Metadata requests to brokers", counted.requests, asked.requests, TARGET),
        row("MB of them and their responses", counted.bytes / 1e6, asked.bytes / 1e6, TARGET),
        row("seconds until the last record is acknowledged", direct.seconds, through.seconds, 1),
        row("p50 from send to acknowledgement, ms", direct.p50, through.p50),
        row("p99, ms", direct.p99, through.p99),
        row("longest, ms", direct.longest, through.longest),
        row("CPU of the brokers, s", direct.cpu, through.cpu),
    ]
    return Table(["", "directly", "through Forebay", "ratio", "target"], rows)


_HIT_HEAD: Final = ["topics in a request", "µs of Forebay's CPU", "µs until it is answered, p50", "KB of the answer"]


def _hit(proxy: ForebayProcess, number: int, topics: int) -> list[object]:
    """Two questions in turn, since one that is asked again is not answered from the cache."""
    questions = []
    for first in (0, 1):
        names = [f"{PREFIX}{(first + each) % topics}" for each in range(number)]
        request = encode_metadata_request(1, f"bench-{first}", 9, names)
        questions.append(len(request).to_bytes(4, "big") + request)
    requests = max(50, 20_000 // number)
    waits = []
    size = 0
    with socket.create_connection((LOOPBACK, proxy.port), 30) as connection, connection.makefile("rb") as answers:

        def ask(turn: int) -> int:
            connection.sendall(questions[turn % 2])
            length = int.from_bytes(answers.read(4), "big")
            answers.read(length)
            return length

        for turn in range(10):
            ask(turn)
        cpu = cpu_seconds((proxy.pid,))
        for turn in range(requests):
            began = time.perf_counter()
            size = ask(turn)
            waits.append(1e6 * (time.perf_counter() - began))
        cpu = cpu_seconds((proxy.pid,)) - cpu
    waits.sort()
    return [f"{number:,}", shown(1e6 * cpu / requests), shown(waits[len(waits) // 2]), shown(size / 1000)]


def _hits_words() -> str:
    return "What a hit costs, asked for by one client, one request after the other:"


def _what(topics: int, producers: int) -> str:
    return (
        f"{producers} producers of {CLIENT} in one JVM, each of which sends one record to each of {topics:,} topics"
        f" with {PARTITIONS} partitions, in an order of its own, all at once; acks=1, else the client's defaults. Three"
        f" brokers of Kafka {KAFKA}, directly, then through one Forebay process with its defaults (codecs {codecs()}),"
        f" new producers each time. Metadata directly is counted by a relay while {COUNTED} producers do the same, and"
        f" multiplied by {producers // COUNTED}; through Forebay it is what Forebay sent. All share the machine."
    )
