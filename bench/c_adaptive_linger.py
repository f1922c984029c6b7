"""c. `linger.ms` −1, adaptive, against fixed ones, from a few records a second to as many as go through."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from bench.connections import Load, Outcome, Phase, offer
from bench.report import Section, Table
from bench.rig import KAFKA, TOPIC, Watch, broker_pids, brokers, forebay, leader_ports, median_of, shown
from bench.wired import codecs
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster

TITLE: Final = "Adaptive linger against fixed ones"
PARTITIONS: Final = 6
CONNECTIONS: Final = 200
ADAPTIVE: Final = -1
LINGERS: Final = (ADAPTIVE, 0, 5, 20)
RATES: Final = (100, 1_000, 5_000, 10_000, 0)
"""Records/s; 0: as fast as answers come."""

OVERLOADED: Final = 0.25
"""Seconds after a load's end until it is answered, beyond which more was offered than goes through."""


class Run(NamedTuple):
    """What became of one load, all but `cpu` as bench.connections and Watch say it."""

    outcome: Outcome
    records_a_batch: float
    requests: float

    @property
    def cpu(self) -> float:
        """Of Forebay, in cores."""
        return self.outcome.cpu["forebay"] / self.outcome.seconds


Runs = dict[tuple[int, int], list[Run]]
"""By (rate, linger)."""


def run(short: bool) -> Section:
    warm_up, seconds, rounds = (0.5, 1.5, 1) if short else (0.7, 3.0, 5)
    runs: Runs = defaultdict(list)
    with ExitStack() as stack:
        cluster = stack.enter_context(brokers(PARTITIONS))
        proxies = {linger: stack.enter_context(forebay(cluster, linger_ms=str(linger))) for linger in LINGERS}
        for proxy in proxies.values():  # JVMs and Forebay alike are slow at first
            _load(cluster, proxy, 0, warm_up, 2 * warm_up)
        for number in range(rounds):
            for rate in RATES:
                for linger, proxy in _turned(list(proxies.items()), number):
                    runs[rate, linger].append(_load(cluster, proxy, rate, warm_up, seconds))
    return Section("c", TITLE, [_what(seconds, rounds), _table(runs), _verdict(runs)])


def _turned(proxies: list[tuple[int, ForebayProcess]], by: int) -> list[tuple[int, ForebayProcess]]:
    """In another order each round: what runs first meets another machine than what runs last."""
    by %= len(proxies)
    return proxies[by:] + proxies[:by]


def _load(cluster: KafkaCluster, proxy: ForebayProcess, rate: int, warm_up: float, seconds: float) -> Run:
    load = Load(
        TOPIC,
        leader_ports(proxy, PARTITIONS),
        CONNECTIONS,
        (Phase(warm_up, rate), Phase(seconds, rate)),
        pids={"forebay": (proxy.pid,), "brokers": broker_pids(cluster)},
    )
    with Watch(proxy) as did:
        outcomes = offer(load)
    records = sum(outcome.sent for outcome in outcomes)
    return Run(outcomes[-1], did.records_a_batch, 1000 * did.requests / records)


LATENCIES: Final[dict[str, Callable[[Run], float]]] = {
    "average ms": lambda run: run.outcome.average,
    "p50 ms": lambda run: run.outcome.p50,
    "p99 ms": lambda run: run.outcome.p99,
}
COLUMNS: Final[dict[str, Callable[[Run], float]]] = {
    "records/s": lambda run: run.outcome.rate,
    **LATENCIES,
    "records a batch": lambda run: run.records_a_batch,
    "requests to brokers, per 1,000 records": lambda run: run.requests,
    "CPU of Forebay, cores": lambda run: run.cpu,
}


def _table(runs: Runs) -> Table:
    rows = [
        [_offered(rate), _named(linger), *(shown(median_of(of_both, of)) for of in COLUMNS.values())]
        for (rate, linger), of_both in sorted(runs.items(), key=lambda item: RATES.index(item[0][0]))
    ]
    return Table(["offered records/s", "linger.ms", *COLUMNS], rows)


def _verdict(runs: Runs) -> str:
    """Where adaptive misses the target, with what the rounds found."""
    parts = []
    for rate in RATES:
        if any(_overloaded(rate, runs[rate, linger]) for linger in LINGERS):
            parts.append(f"{rate:,} records/s are more than went through: how long a growing queue waits says nothing.")
        else:
            parts += [_missed(rate, runs, name) for name in LATENCIES]
    return " ".join(filter(None, parts)) or "Adaptive is nowhere worse than that, in average, p50 or p99."


def _missed(rate: int, runs: Runs, name: str) -> str:
    of = LATENCIES[name]
    fixed = [linger for linger in LINGERS if linger != ADAPTIVE]
    best = min(fixed, key=lambda linger: median_of(runs[rate, linger], of))
    if median_of(runs[rate, ADAPTIVE], of) <= 1.1 * median_of(runs[rate, best], of):
        return ""
    found, least = (_spread(runs[rate, linger], of) for linger in (ADAPTIVE, best))
    return f"Missed at {_offered(rate)}, {name}: {found} against {least} with linger.ms = {best}."


def _overloaded(rate: int, found: Sequence[Run]) -> bool:
    """Whether what was sent waited longer with every second."""
    return bool(rate) and median_of(found, lambda run: run.outcome.absorbed) > OVERLOADED


def _spread(runs: Sequence[Run], of: Callable[[Run], float]) -> str:
    """12.0 (11.5 to 14.0)"""
    values = [of(run) for run in runs]
    return f"{shown(median_of(runs, of))} ({shown(min(values))} to {shown(max(values))})"


def _offered(rate: int) -> str:
    return f"{rate:,}" if rate else "saturating"


def _named(linger: int) -> str:
    return "−1, adaptive" if linger == ADAPTIVE else str(linger)


def _what(seconds: float, rounds: int) -> str:
    return (
        f"{CONNECTIONS} connections send Produce v7 requests of one 200-byte record without a key, acks=1, at random"
        " times (the last: each as soon as the one before is answered), through Forebay to three brokers of Kafka"
        f" {KAFKA} with {PARTITIONS} partitions. One Forebay process for each linger, else with its defaults (codecs"
        f" {codecs()}), in turns; medians of {rounds} × {seconds:g} s. Brokers, Forebay and the load share the machine."
        " Latency counts from when a record was due to its answer. Target: adaptive is nowhere worse than the best"
        " fixed one by more than a tenth."
    )
