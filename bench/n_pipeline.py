"""n. The pipeline at scale: 1 M and 10 M journal rows and records through compact, partitions, audit and replay."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from bench.producer_performance import Load, fetch, produce
from bench.report import Section, Table
from bench.rig import KAFKA, NODES, shown
from forebay_policies.journal_rows import LedgerPart, Row
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.paths import JARS
from tests.pipeline.rows import START_US, batch_row, choice_row, gauge_row, json_lines, ledger_row, write_lines

MASTERS: Final = ("local[1]", "local[2]")
CLIENT: Final = "2.8.2"
TOPICS: Final = 20
PARTITIONS: Final = 6
_FILE_ROWS: Final = 200_000
_STEP_US: Final = 200
"""5,000 rows a second."""
_SAMPLE_S: Final = 0.2


class Cost(NamedTuple):
    seconds: float
    cpu: float
    peak_bytes: int


def run(short: bool) -> Section:
    fetch()
    sizes = (20_000, 60_000) if short else tuple(map(int, os.environ.get("BENCH_ROWS", "1000000,10000000").split(",")))
    rows: list[list[object]] = []
    found: dict[tuple[str, str, int], Cost] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster(KAFKA, NODES))
        for size in sizes:
            place = Path(folder, str(size))
            _write_journal(place / "journal", size)
            ledger = _produce(cluster, size, place / "ledger")
            for master in MASTERS:
                for name, words in _jobs(place, ledger, cluster.internal):
                    found[name, master, size] = cost = _run([*words, "--master", master])
                    rows.append(
                        [
                            f"{name}, {master}",
                            f"{size:,}",
                            shown(cost.seconds),
                            shown(cost.cpu),
                            f"{size / cost.seconds:,.0f}",
                            shown(cost.peak_bytes / 1e6),
                        ]
                    )
                shutil.rmtree(place / "parquet")
    head = ["job", "rows or records", "wall, s", "CPU, s", "a second", "peak memory, MB"]
    return Section(
        "n", "The pipeline at scale", [_words(sizes), Table(head, rows), _growth_words(), _growth(found, sizes)]
    )


def _jobs(place: Path, ledger: Path, bootstrap_servers: str) -> list[tuple[str, list[str]]]:
    parquet = str(place / "parquet")
    kafka = ["--bootstrap-servers", bootstrap_servers, "--jars", str(JARS / "spark-kafka")]
    return [
        ("compact", ["compact", "--journal", str(place / "journal"), "--output", parquet]),
        ("partitions", ["partitions", "--journal", parquet]),
        ("audit", ["audit", "--journal", str(ledger), *kafka]),
        ("replay", ["replay", "--journal", parquet, "--grid", "partitioner=adaptive"]),
    ]


def _run(words: Sequence[str]) -> Cost:
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "forebay_pipeline.cli", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    watch = _Watch(process.pid)
    said = process.communicate(timeout=3_600)[1]
    seconds = time.monotonic() - began
    watch.end()
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}:\n{said.decode()[-2000:]}")
    return Cost(seconds, sum(watch.cpu.values()), watch.peak)


class _Watch:
    """What a session's processes, JVM and Python workers, take: CPU by process, the most memory they held together."""

    def __init__(self, session: int) -> None:
        self.cpu: dict[str, float] = {}
        self.peak = 0
        self._session = session
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            self.peak = max(self.peak, sum(map(self._look, Path("/proc").glob("[0-9]*"))))

    def _look(self, process: Path) -> int:
        """Its memory in bytes; what forked workers share is counted in each."""
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0
        if int(fields[3]) != self._session:
            return 0
        self.cpu[process.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return int(fields[21]) * resource.getpagesize()


# What there is to read


def _produce(cluster: KafkaCluster, records: int, folder: Path) -> Path:
    """So many records through Forebay to a topic of its own; the journal with their ledger."""
    topic = f"audited-{records}"
    cluster.create_topic(topic, PARTITIONS)
    settings = {"journal.dir": str(folder), "journal.ledger": "true", "journal.roll.ms": "60000"}
    with ForebayProcess(cluster.bootstrap, cluster.nodes, settings=settings) as proxy:
        produce(CLIENT, proxy.bootstrap, topic, Load(records, -1, 100))
    return folder


def _write_journal(folder: Path, count: int) -> None:
    """As a busy proxy writes it: two ledger rows and two batches to a choice, a gauge row a second."""
    rng = Random(7)
    for first in range(0, count, _FILE_ROWS):
        numbers = range(first, min(count, first + _FILE_ROWS))
        lines = json_lines(_row(number, rng) for number in numbers)
        write_lines(folder, lines, START_US + first * _STEP_US, f"bench-{first:010}")


def _row(number: int, rng: Random) -> Row:
    time_us = START_US + number * _STEP_US
    topic = f"topic-{number % TOPICS}"
    partition = int(rng.random() * PARTITIONS)
    wait = int(rng.random() * (20_000 if partition % NODES == 0 else 3_000))
    if number % 5_000 == 0:
        return gauge_row(time_us=time_us, queued_bytes=100_000, queued_batches=12, metadata_hits_total=number // 50)
    kind = number % 5
    if kind < 2:
        records = 1 + number % 9
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
        records = 1 + number % 60
        return batch_row(
            time_us=time_us,
            topic=topic,
            partition=partition,
            leader=partition % NODES,
            records=records,
            bytes=120 * records,
            runs=1 + number % 7,
            linger_us=wait // 2,
            upstream_us=wait,
            load=120 * records,
            base_offset=number,
        )
    return choice_row(
        time_us=time_us, topic=topic, partition=partition, loaded=1, loaded_partitions=[partition], loads=[4_000]
    )


# Words


def _growth(found: dict[tuple[str, str, int], Cost], sizes: Sequence[int]) -> Table:
    small, large = sizes[0], sizes[-1]
    rows: list[list[object]] = []
    for name, master, size in found:
        if size == small:
            ratio = found[name, master, large].seconds / found[name, master, small].seconds
            verdict = "met" if ratio <= large / small else "missed"
            rows.append([f"{name}, {master}", f"{ratio:.2f}", f"≤ {large / small:g}: {verdict}"])
    return Table(["", "wall, larger / smaller", "target: no worse than linear"], rows)


def _words(sizes: Sequence[int]) -> str:
    numbers = " and ".join(f"{size:,}" for size in sizes)
    return (
        f"{numbers} rows of a journal as a proxy with 5,000 of them a second writes it ({TOPICS} topics with"
        f" {PARTITIONS} partitions, two in five rows a ledger's, made up but for their form) for compact, and what"
        " it made of them for partitions and replay (one setting); as many records of 100 bytes, which kafka-clients"
        f" {CLIENT} really produced through Forebay to Kafka {KAFKA}, for audit, with their own journal. Each job is a"
        " process of its own, start of Spark included; memory is that of its JVM and Python workers together."
    )


def _growth_words() -> str:
    return "How the time grows:"
