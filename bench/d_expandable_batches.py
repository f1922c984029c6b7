"""d. Expandable batches (KIP-782) against fixed ones, in a burst of ten times the load before it."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from bench.connections import Load, Outcome, Phase, offer
from bench.report import Section, Table
from bench.rig import KAFKA, TOPIC, Watch, brokers, forebay, leader_ports, median_of, shown
from bench.wire_frames import records_in
from bench.wired import codecs
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.memory import resident

TITLE: Final = "Expandable batches in a burst"
PARTITIONS: Final = 6
CONNECTIONS: Final = 200
DELAY_MS: Final = 20
SIZE: Final = 4_200
VALUE_SIZE: Final = 1_000
BASE: Final = 200
BURST: Final = 10 * BASE
"""Requests/s. Batches of 16 KB, one a partition away at a time, carry 50 × 6 × 16 KB/s = 4.9 MB/s; the burst is 8.1."""

BATCHES: Final[Mapping[str, Mapping[str, str]]] = {
    "16 KB, fixed": dict.fromkeys(("batch_initial_size", "batch_size", "batch_max_size"), "16384"),
    "4 → 16 → 256 KB": {"batch_initial_size": "4096", "batch_size": "16384", "batch_max_size": "262144"},
}


class Run(NamedTuple):
    """Memory in bytes: what the pool held, and by how much the process grew over what it was before the burst."""

    burst: Outcome
    bytes_a_batch: float
    requests: float
    base_pool: float
    peak_pool: float
    growth: float


def run(short: bool) -> Section:
    base, burst, rounds = (1.0, 1.5, 1) if short else (3.0, 4.0, 3)
    runs: dict[str, list[Run]] = defaultdict(list)
    with brokers(PARTITIONS, DELAY_MS) as cluster:
        _burst(cluster, {}, base, burst)  # the JVMs are slow at first
        for _ in range(rounds):
            for name, sizes in BATCHES.items():
                runs[name].append(_burst(cluster, sizes, base, burst))
    return Section("d", TITLE, [_what(burst, rounds), _table(runs)])


def _burst(cluster: KafkaCluster, sizes: Mapping[str, str], base: float, burst: float) -> Run:
    """By a new process, whose memory nothing has grown yet."""
    with forebay(cluster, **sizes) as proxy:
        load = Load(
            TOPIC, leader_ports(proxy, PARTITIONS), CONNECTIONS, (Phase(base, BASE),), size=SIZE, value_size=VALUE_SIZE
        )
        with Memory(proxy) as before:
            offer(load)
        phases = (Phase(1.0, BASE), Phase(burst, BURST), Phase(base, BASE))
        with Watch(proxy) as did, Memory(proxy) as during:
            outcomes = offer(msgspec.structs.replace(load, phases=phases))
    requests = sum(outcome.sent for outcome in outcomes)
    return Run(
        outcomes[1],
        did.bytes_a_batch,
        1000 * did.requests / (requests * records_in(SIZE, VALUE_SIZE)),
        sum(before.pool) / len(before.pool),
        max(during.pool),
        max(during.resident) - before.resident[-1],
    )


class Memory:
    """While it is entered, samples what Forebay's pool holds and how large the process is."""

    EVERY: Final = 0.1

    def __init__(self, proxy: ForebayProcess) -> None:
        self._proxy = proxy
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.pool: list[float] = []
        self.resident: list[int] = []

    def _run(self) -> None:
        while True:
            metrics = self._proxy.metrics()
            total, free = (metrics[f"forebay_buffer_memory_{which}_bytes"] for which in ("total", "available"))
            self.pool.append(total - free)
            self.resident.append(resident(self._proxy.pid))
            if self._stop.wait(self.EVERY):
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()


COLUMNS: Final[dict[str, Callable[[Run], float]]] = {
    "records/s acknowledged in the burst": lambda run: run.burst.rate * records_in(SIZE, VALUE_SIZE),
    "average ms": lambda run: run.burst.average,
    "p99 ms": lambda run: run.burst.p99,
    "all answered, ms after the burst": lambda run: 1000 * run.burst.absorbed,
    "KB a batch": lambda run: run.bytes_a_batch / 1000,
    "requests to brokers, per 1,000 records": lambda run: run.requests,
    "KB of the pool before": lambda run: run.base_pool / 1000,
    "KB of the pool, peak": lambda run: run.peak_pool / 1000,
    "KB by which the process grew": lambda run: run.growth / 1000,
}


def _table(runs: Mapping[str, Sequence[Run]]) -> Table:
    rows = [[name, *(shown(median_of(found, of)) for found in runs.values())] for name, of in COLUMNS.items()]
    return Table(["", *runs], rows)


def _what(burst: float, rounds: int) -> str:
    records = records_in(SIZE, VALUE_SIZE)
    return (
        f"{CONNECTIONS} connections send requests of {records} records of 1 KB without a key, acks=1, at random times:"
        f" {BASE * records:,} records/s, then {BURST * records:,} for {burst:g} s, then as before; through Forebay to"
        f" three brokers of Kafka {KAFKA}, all {DELAY_MS} ms away (toxiproxy), with {PARTITIONS} partitions. Fixed:"
        " `batch.initial.size`, `batch.size` and `batch.max.size` all 16,384; else the defaults. A new process each"
        f" time (codecs {codecs()}), medians of {rounds} in turns. Latency counts from when a request was due to its"
        " answer, for those of the burst."
    )
