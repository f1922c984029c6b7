"""n. The pipeline at scale: 1 M and 10 M journal rows and records through compact, partitions, audit and replay; then
1 M whose topics are of very different sizes; and a report of 90 days that are rolled up. BENCH_ROWS=1000000 leaves the
ten million out.
"""

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
from typing import Final, NamedTuple

from bench import stages
from bench.pipeline_journal import EVEN, SKEWED, Shape, produce_parts, write_journal
from bench.producer_performance import Load, fetch, produce
from bench.report import Section, Table
from bench.rig import KAFKA, NODES, shown
from bench.rollup_days import Busy, write_days
from forebay_pipeline.jobs.session import open_session
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.paths import JARS

MASTERS: Final = ("local[1]", "local[2]")
CLIENT: Final = "2.8.2"
PARTITIONS: Final = 6
_SAMPLE_S: Final = 0.2
_LONG_S: Final = 1.0
"""Where the median task is shorter, the longest is one in which Python starts, or the machine was busy."""
_MUCH: Final = 0.1
"""Stages that read fewer records for each row take no time."""
_DAYS: Final = 90
_REPORT_S: Final = 60.0
_SKEWED_CONF: Final = {
    "spark.driver.memory": "2g",
    # So that tasks are as many as with more rows: small ones would be put together.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1m",
    **stages.LOGGED,
}


class Cost(NamedTuple):
    seconds: float
    cpu: float
    peak_bytes: int


def run(short: bool) -> Section:
    fetch()
    sizes = (20_000, 60_000) if short else tuple(map(int, os.environ.get("BENCH_ROWS", "1000000,10000000").split(",")))
    shape = SKEWED._replace(partitions=2) if short else SKEWED
    rows: list[list[object]] = []
    found: dict[tuple[str, str, int], Cost] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster(KAFKA, NODES))
        for size in sizes:
            place = Path(folder, str(size))
            write_journal(place / "journal", size, EVEN)
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
        skewed = _skewed(cluster, sizes[0], shape, Path(folder, "skewed"))
        busy, days = (Busy(topics=4, partitions=5, clients=20), 3) if short else (Busy(), _DAYS)
        months = _months(Path(folder, "months"), days, busy)
    head = ["job", "rows or records", "wall, s", "CPU, s", "a second", "peak memory, MB"]
    return Section(
        "n",
        "The pipeline at scale",
        [
            _words(sizes),
            Table(head, rows),
            "How the time grows:",
            _growth(found, sizes),
            _skewed_words(sizes[0], shape),
            skewed,
            _months_words(days, busy),
            months,
        ],
    )


def _skewed(cluster: KafkaCluster, size: int, shape: Shape, place: Path) -> Table:
    """How evenly tasks share the work where topics do not."""
    write_journal(place / "journal", size, shape)
    produce_parts(cluster, place / "ledger", size, shape)
    rows: list[list[object]] = []
    for name, words in _jobs(place, place / "ledger", cluster.internal):
        logs = place / f"{name}.log"
        logs.mkdir()
        conf = [f"{key}={value}" for key, value in {**_SKEWED_CONF, "spark.eventLog.dir": str(logs)}.items()]
        cost = _run([*words, "--master", MASTERS[-1], *(word for pair in conf for word in ("--conf", pair))])
        found = stages.stages(logs)
        in_time = [stage.skew_in_time for stage in found if stage.median_s >= _LONG_S]
        in_records = [stage.skew_in_records for stage in found if stage.records >= size * _MUCH]
        rows.append(
            [
                name,
                shown(cost.cpu),
                f"{sum(len(stage.tasks) for stage in found):,}",
                _largest(in_time),
                _largest(in_records),
                shown(cost.peak_bytes / 1e6),
            ]
        )
    return Table(["job", "CPU, s", "tasks", "longest / median", "most records / average", "peak memory, MB"], rows)


def _months(place: Path, days: int, busy: Busy) -> Table:
    """A report of days that are rolled up."""
    session = open_session("bench", MASTERS[-1], conf={"spark.ui.enabled": "false", "spark.driver.memory": "2g"})
    try:
        write_days(session, place / "rollups", days, busy)
    finally:
        session.stop()
    words = ["report", "--rollups", str(place / "rollups"), "--output", str(place / "report.html")]
    rows: list[list[object]] = []
    for master in MASTERS:
        cost = _run([*words, "--master", master])
        verdict = "met" if cost.seconds <= _REPORT_S else "missed"
        told = [shown(cost.seconds), shown(cost.cpu), shown(cost.peak_bytes / 1e6), f"≤ {_REPORT_S:g} s: {verdict}"]
        rows.append([f"report --rollups, {master}", *told])
    return Table(["job", "wall, s", "CPU, s", "peak memory, MB", "target"], rows)


def _largest(ratios: Sequence[float]) -> str:
    """Of how many stages, and the largest ratio."""
    return f"{max(ratios):.1f} (of {len(ratios)} stages)" if ratios else "no such stage"


def _jobs(place: Path, ledger: Path, bootstrap_servers: str) -> list[tuple[str, list[str]]]:
    parquet = str(place / "parquet")
    kafka = ["--bootstrap-servers", bootstrap_servers, "--jars", str(JARS / "spark-kafka")]
    return [
        ("compact", ["compact", "--journal", str(place / "journal"), "--output", parquet]),
        ("partitions", ["partitions", "--journal", parquet]),
        ("audit", ["audit", "--journal", str(ledger), "--to", "2100-01-01", *kafka]),
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
        f"{numbers} rows of a journal as a proxy with 5,000 of them a second writes it ({EVEN.topics} topics with"
        f" {EVEN.partitions} partitions, two in five rows a ledger's, made up but for their form) for compact, and what"
        " it made of them for partitions and replay (one setting); as many records of 100 bytes, which kafka-clients"
        f" {CLIENT} really produced through Forebay to Kafka {KAFKA}, for audit, with their own journal. Each job is a"
        " process of its own, start of Spark included; memory is that of its JVM and Python workers together."
    )


def _months_words(days: int, busy: Busy) -> str:
    return (
        f"A report of {days} days that are rolled up: {busy.topics * busy.partitions:,} partitions of {busy.topics}"
        f" topics, each with {2 * busy.buckets} buckets of times and a size for each hour,"
        f" {busy.processes} processes and {busy.clients} clients; made up, and all days are alike."
    )


def _skewed_words(size: int, shape: Shape) -> str:
    return (
        f"Skew: {size:,} rows of the like in which every batch and part is one record, one of {shape.topics} topics"
        f" has half of them, and there are {shape.topics * shape.partitions:,} partitions; as many such records,"
        " straight in Kafka, with a ledger made up of where they are. A heap of 2 GB, two cores, and shuffles divided"
        " as those of far more rows would be. Longest / median: of a stage's tasks, where it is the largest, of the"
        f" stages whose median task takes {_LONG_S:g} s. Most records / average: what tasks read, of the stages that"
        " read a tenth as many records as there are rows. The target is 5 for both."
    )
