"""g. Many connections that send little: 200 of one 200-byte record a request, directly and through Forebay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final, NamedTuple

import msgspec

from bench.connections import Load, Outcome, Phase, offer
from bench.report import Section, Table
from bench.rig import KAFKA, TOPIC, Watch, broker_pids, brokers, forebay, leader_ports, median_of, shown
from bench.wired import codecs
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster

TITLE: Final = "Many connections that send little"
PARTITIONS: Final = 6
CONNECTIONS: Final = 200
REPLICAS: Final = (1, 2, 4)
JVM_WARM_UP: Final = 0.75
"""Of a run's time, before the first: brokers that have just started take four times the CPU for a request."""


class Run(NamedTuple):
    """One load. `requests` and `batches`: what the brokers saw for each of its records."""

    outcome: Outcome
    requests: float
    batches: float

    def cpu(self, name: str) -> float:
        """µs a record."""
        return 1e6 * self.outcome.cpu[name] / self.outcome.answered


def run(short: bool) -> Section:
    warm_up, seconds, rounds = (1.0, 3.0, 1) if short else (4.0, 16.0, 3)
    phases = (Phase(warm_up), Phase(seconds))
    with (
        brokers(PARTITIONS) as cluster,
        forebay(cluster) as proxy,
        forebay(cluster, enable_idempotence="false") as plain,
    ):
        pids = broker_pids(cluster)
        direct = Load(TOPIC, leader_ports(cluster, PARTITIONS), CONNECTIONS, phases, pids={"brokers": pids})
        through, without = (
            msgspec.structs.replace(
                direct, ports=leader_ports(each, PARTITIONS), pids={"brokers": pids, "forebay": (each.pid,)}
            )
            for each in (proxy, plain)
        )
        offer(msgspec.structs.replace(direct, phases=(Phase(JVM_WARM_UP * seconds),)))
        runs = [(_offered(direct), _watched(through, proxy), _watched(without, plain)) for _ in range(rounds)]
        apart = {replicas: _replicas(cluster, replicas, direct) for replicas in REPLICAS}
    tables = _table(*zip(*runs, strict=True)), _shared_out(apart)
    return Section("g", TITLE, [_what(seconds, rounds), tables[0], _replicas_words(seconds), tables[1]])


def _offered(load: Load) -> Run:
    return Run(offer(load)[-1], 1, 1)


def _watched(load: Load, proxy: ForebayProcess) -> Run:
    with Watch(proxy) as did:
        outcomes = offer(load)
    records = sum(outcome.sent for outcome in outcomes)
    return Run(outcomes[-1], did.requests / records, did.batches / records)


def _replicas(cluster: KafkaCluster, replicas: int, load: Load) -> tuple[float, float, float]:
    """Records a second, a batch and a request of so many Forebays that share the connections of `load`."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(forebay(cluster)) for _ in range(replicas)]
        loads = [
            msgspec.structs.replace(
                load, ports=leader_ports(proxy, PARTITIONS), connections=load.connections // replicas, pids={}
            )
            for proxy in proxies
        ]
        with ExitStack() as watched:
            did = [watched.enter_context(Watch(proxy)) for proxy in proxies]
            with ThreadPoolExecutor(replicas) as pool:
                outcomes = list(pool.map(offer, loads))
        records = sum(outcome.sent for each in outcomes for outcome in each)
        rate = sum(each[-1].rate for each in outcomes)
        return rate, records / sum(each.batches for each in did), records / sum(each.requests for each in did)


def _replicas_words(seconds: float) -> str:
    return (
        "The same connections shared out among several Forebays, as a balancer does. Each merges only what it gets:"
        f" {seconds:g} s each."
    )


def _shared_out(apart: Mapping[int, tuple[float, float, float]]) -> Table:
    rows = [[str(replicas), *map(shown, measured)] for replicas, measured in apart.items()]
    return Table(["Forebays", "records/s", "records a batch", "records a request to brokers"], rows)


def _table(direct: Sequence[Run], through: Sequence[Run], plain: Sequence[Run]) -> Table:
    rows = []
    for name, of in LINES.items():
        within, without = median_of(through, of), median_of(plain, of)
        straight = None if name == OURS else median_of(direct, of)  # directly it has nothing to do
        rows.append(
            [
                name,
                "–" if straight is None else shown(straight),
                shown(within),
                "" if straight is None else f"{within / straight:.2f}",
                shown(without),
                f"{within / without:.2f}",
            ]
        )
    head = ["", "directly", "through Forebay", "ratio", "without enable.idempotence", "ratio"]
    return Table(head, rows)


OURS: Final = "CPU of Forebay, µs a record"
LINES: Final[dict[str, Callable[[Run], float]]] = {
    "records/s": lambda run: run.outcome.rate,
    "requests that the brokers see, per 1,000 records": lambda run: 1000 * run.requests,
    "records a batch": lambda run: 1 / run.batches,
    "CPU of the brokers, µs a record": lambda run: run.cpu("brokers"),
    OURS: lambda run: run.cpu("forebay"),
    "CPU of the load, µs a record": lambda run: 1e6 * run.outcome.own_cpu / run.outcome.answered,
    "latency p50, ms": lambda run: run.outcome.p50,
    "latency p99, ms": lambda run: run.outcome.p99,
}


def _what(seconds: float, rounds: int) -> str:
    return (
        f"{CONNECTIONS} connections send Produce v7 requests of one 200-byte record without a key, acks=1, each as soon"
        f" as the one before is answered, to three brokers of Kafka {KAFKA} with {PARTITIONS} partitions: straight to "
        f"the leaders, through one Forebay process with its defaults (codecs {codecs()}), and through one without"
        f" enable.idempotence, in turns; medians of {rounds} × {seconds:g} s. Brokers, Forebay and the load share the"
        " machine. Targets: as many records/s as directly, a tenth of the requests."
    )
