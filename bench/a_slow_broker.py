"""a. KIP-794's scenario: one of three brokers takes 20 ms for each Produce request, one after the other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from bench.producer_performance import NEWEST, Load, Result, fetch, produce, start
from bench.report import Section, Table
from bench.rig import KAFKA, NODES, Watch, forebay, shown
from bench.slow import SlowCluster, slow_cluster
from bench.wired import codecs

TITLE: Final = "KIP-794's scenario: one slow broker of three"
OLD: Final = "2.8.2"
SLOW_MS: Final = 20
RATE: Final = 2_048
SIZE: Final = 512
VARIANTS: Final[Mapping[str, Mapping[str, str]]] = {
    name: {"partitioner": name} for name in ("round_robin", "sticky", "uniform", "adaptive", "expected_wait")
} | {"adaptive, without enable.idempotence": {"partitioner": "adaptive", "enable.idempotence": "false"}}
"""Forebay's settings."""

FAIR: Final = 1 / NODES

PUBLISHED: Final = (
    ("KIP-794: old default partitioner", 4072.74, "", "", 10992, 11214),
    ("KIP-794: uniform (adaptive off)", 49.92, "", "", 214, 422),
    ("KIP-794: adaptive, the defaults since 3.3", 40.06, "", "", 154, 220),
    ("KIP-794: with partitioner.availability.timeout.ms=5", 36.29, "", "", 150, 184),
)
"""Average, p50, p95, p99, p99.9."""


class Run(NamedTuple):
    """`requests` are what the brokers saw."""

    result: Result
    records: Sequence[int]
    requests: float


class Recovery(NamedTuple):
    """`before` and `seconds`: the slow broker's share while it was slow, and how long it took to have it back."""

    before: float
    seconds: float | None


def run(short: bool) -> Section:
    fetch()
    records = 6_144 if short else 122_880
    slow_for, fast_for = (3, 6) if short else (10, 15)
    with slow_cluster() as slow:
        slow.hold(0, SLOW_MS)
        _direct(slow, NEWEST, 2_048)
        runs = {f"{version}, directly": _direct(slow, version, records) for version in (OLD, NEWEST)}
        runs |= {
            f"{OLD} through Forebay, {name}": _through(slow, settings, records) for name, settings in VARIANTS.items()
        }
        recoveries = {name: _recovery(slow, name, slow_for, fast_for) for name in ("adaptive", "expected_wait")}
        swings = _swings(slow, 6 if short else 12)
    return Section(
        "a",
        TITLE,
        [
            _what(records),
            _latencies(runs),
            _verdict(runs),
            WHY,
            _recovery_words(slow_for),
            _recovered(recoveries, fast_for),
            _swing_words(swings.rate),
            _swung(swings.shares),
        ],
    )


def _direct(slow: SlowCluster, version: str, records: int) -> Run:
    topic = slow.topic()
    result = produce(version, slow.cluster.bootstrap, topic, Load(records, RATE, SIZE))
    return Run(result, slow.records(topic), result.requests)


def _through(slow: SlowCluster, settings: Mapping[str, str], records: int) -> Run:
    topic = slow.topic()
    with forebay(slow.cluster, **settings) as proxy:
        produce(OLD, proxy.bootstrap, slow.topic(), Load(2_048, RATE, SIZE))
        with Watch(proxy) as did:
            result = produce(OLD, proxy.bootstrap, topic, Load(records, RATE, SIZE))
    return Run(result, slow.records(topic), did.requests)


def _recovery(slow: SlowCluster, partitioner: str, slow_for: float, fast_for: float) -> Recovery:
    """Broker 0 is slow for so long, then as fast as the others."""
    topic = slow.topic()
    slow.hold(0, SLOW_MS)
    before: list[float] = []
    fast_at = recovered_at = None
    with forebay(slow.cluster, partitioner=partitioner) as proxy:
        load = start(OLD, proxy.bootstrap, topic, Load(round((slow_for + fast_for) * RATE), RATE, SIZE))
        began = time.monotonic()
        for now, shares in slow.shares(topic, load.running):
            if fast_at is None:
                before.append(shares[0])
                if now > began + slow_for:
                    slow.hold(0, 0)
                    fast_at = now
            elif recovered_at is None and shares[0] >= 0.8 * FAIR:
                recovered_at = now
        load.result()
    slow.hold(0, SLOW_MS)
    return Recovery(
        sum(before[len(before) // 2 :]) / max(1, len(before) - len(before) // 2),
        recovered_at - fast_at if recovered_at is not None and fast_at is not None else None,
    )


class Swings(NamedTuple):
    """`shares` are the least and the greatest of any broker within a second, by partitioner."""

    rate: float
    shares: Mapping[str, tuple[float, float]]


EQUAL_MS: Final = 5
SETTLING_S: Final = 3


def _swings(slow: SlowCluster, seconds: float) -> Swings:
    """All brokers alike, at nine tenths of what goes through."""
    for broker in range(NODES):
        slow.hold(broker, EQUAL_MS)
    with forebay(slow.cluster, partitioner="uniform") as proxy:
        most = produce(OLD, proxy.bootstrap, slow.topic(), Load(round(10_000 * seconds), -1, SIZE)).rate
    rate = round(0.9 * most)
    found = {}
    for partitioner in ("uniform", "adaptive", "expected_wait"):
        topic = slow.topic()
        with forebay(slow.cluster, partitioner=partitioner) as proxy:
            load = start(OLD, proxy.bootstrap, topic, Load(round(seconds * rate), rate, SIZE))
            began = time.monotonic()
            seen = [each for now, each in slow.shares(topic, load.running) if now > began + SETTLING_S]
            load.result()
        shares = [share for each in seen for share in each]
        found[partitioner] = (min(shares), max(shares))
    return Swings(rate, found)


def _latencies(runs: Mapping[str, Run]) -> Table:
    rows: list[Sequence[object]] = [
        [
            name,
            shown(result.average),
            *(f"{percentile:,.0f}" for percentile in (result.p50, result.p95, result.p99, result.p999)),
            " / ".join(f"{count:,}" for count in records),
            f"{requests:,.0f}",
        ]
        for name, (result, records, requests) in runs.items()
    ]
    published = [
        [name, *(f"{number:,}" if number else "" for number in numbers), "", ""] for name, *numbers in PUBLISHED
    ]
    head = ["producer", "average ms", "p50", "p95", "p99", "p99.9", "records on 0 / 1 / 2", "requests to brokers"]
    return Table(head, [*rows, *published])


def _verdict(runs: Mapping[str, Run]) -> str:
    direct = runs[f"{NEWEST}, directly"].result
    parts = []
    for name, of_average, of_p99 in (("adaptive", 1 / 3, 1 / 2), ("expected_wait", 1 / 10, 1 / 10)):
        result = runs[f"{OLD} through Forebay, {name}"].result
        for what, ours, theirs, part in (
            ("average", result.average, direct.average, of_average),
            ("p99", result.p99, direct.p99, of_p99),
        ):
            met = "met" if ours <= part * theirs else "missed"
            of_direct = f"{ours / theirs:.2f} of {NEWEST}'s directly"
            parts.append(f"{name}, {what}: {shown(ours)} ms, {of_direct}, target {part:.2f}: {met}.")
    return " ".join(parts)


def _recovered(recoveries: Mapping[str, Recovery], fast_for: float) -> Table:
    rows = [
        [
            name,
            f"{before:.1%}",
            f"{seconds:.1f}" if seconds is not None else f"not within {fast_for:g}",
        ]
        for name, (before, seconds) in recoveries.items()
    ]
    return Table(["partitioner", "share while slow", "seconds until 26.7 % of a second"], rows)


def _swung(shares: Mapping[str, tuple[float, float]]) -> Table:
    rows = [[name, f"{least:.1%}", f"{greatest:.1%}"] for name, (least, greatest) in shares.items()]
    return Table(["partitioner", "least share of a broker within a second", "greatest"], rows)


def _what(records: int) -> str:
    return (
        f"Kafka's own ProducerPerformance of {OLD} and {NEWEST}: {records:,} records of {SIZE} bytes without a key at"
        f" {RATE:,}/s, acks=1, linger.ms=0, else the client's defaults. Three brokers of Kafka"
        f" {KAFKA}, partition i on broker i; broker 0 holds each Produce response for {SLOW_MS} ms, in turn. Forebay"
        f" has its defaults but for what the line says (codecs {codecs()}). All share the machine. A JVM's first second"
        " counts; the tool knows whole milliseconds only. Below, as published: KIP-794's own, on another machine."
    )


WHY: Final = (
    "What limits: a client's responses leave in request order, so a batch that was moved to the slow broker holds up"
    " the answers behind it on that connection (a client has one to each of Forebay's three broker ports): for 20 ms,"
    " or for 40 where it had to wait for the one before. `adaptive` weighs queues in whole batches. At this rate the"
    " slow broker's queue is one batch: that makes its turns a little rarer and no shorter. `expected_wait` all but"
    " leaves the slow broker out, and what goes there to see whether it has recovered is one run of records, not a turn"
    " of 16 KB; what is left are the 20 ms of these trials."
)


def _recovery_words(slow_for: float) -> str:
    return (
        f"Recovery, the same load through Forebay: after {slow_for:g} s broker 0 becomes as fast as the others. When"
        " has it four fifths of its third again?"
    )


def _swing_words(rate: float) -> str:
    return (
        f"Equals near saturation: every broker holds each response for {EQUAL_MS} ms, {rate:,.0f} records/s, nine"
        f" tenths of what goes through. A broker's share of the records, over any second but the first {SETTLING_S}:"
    )
