"""All that a report can tell, made up: three topics over an hour, one partition that runs away, an audit, a replay."""

from __future__ import annotations

import math
from typing import Any

from forebay_pipeline.advice.facts import Clients, Facts, Picked, TopicRacks, TopicReason
from forebay_pipeline.audit.result import AuditResult, ClientLine, Counts, Finding, Kind, TopicLine
from forebay_pipeline.partitions.runaway_windows import Episode
from forebay_pipeline.partitions.summary import (
    Fate,
    Group,
    MetadataUse,
    Percentiles,
    RackUse,
    Reason,
    Summary,
    TopicSkew,
    WorkerUse,
)
from forebay_pipeline.replay.intervals import Interval, Intervals
from forebay_pipeline.replay.results import ReplayReport, Result
from forebay_pipeline.report.sections import Known
from forebay_pipeline.report.series import GaugePoint, Series, SharesPoint, TimePoint, TopicShares
from tests.pipeline.advice import made_up
from tests.pipeline.rows import START_US

SECOND = 1_000_000
WIDTH = 20 * SECOND
POINTS = 180
TOPICS = ("orders", "payments.settled-by-the-bank.v2", "clicks")
PARTITIONS = (3, 6, 12)


def known(topic: str = TOPICS[0], client_id: str = "checkout-7", journal: str = "/var/lib/forebay/journal") -> Known:
    """Of the first topic, of a client and of the place the names can be told."""
    topics = (topic, *TOPICS[1:])
    series = Series(
        width_us=WIDTH,
        times=[_time_point(number) for number in range(POINTS)],
        gauges=[_gauge_point(number) for number in range(POINTS)],
        shares=[_shares(name, count) for name, count in zip(topics, PARTITIONS, strict=True)],
    )
    return Known(series, _facts(_summary(topics, journal), _replay(), topic, client_id), _audit(topic, client_id))


def changed(known: Known, **facts: Any) -> Known:
    """With other facts of these names."""
    return known._replace(facts=known.facts._replace(**facts))


def _facts(summary: Summary, replay: ReplayReport, topic: str, client_id: str) -> Facts:
    """Of everything that advice may be about there is something; the replay knows better than some rules."""
    clients = [
        made_up.client(client_id, principal="User:checkout", picked=[Picked(topic, 2, 12)], batches=90_000),
        made_up.client("till-7", versions=[1], hosts=40, errors=12, took_us=Percentiles(2100, 60_000, 250_000)),
        made_up.client("agent", reasons={"idempotent": 200_000}, batches=200_000, records=900_000),
    ]
    reasons = [TopicReason(topic, "null_key", 800_000, 0), TopicReason("logs", "idempotent", 200_000, 0)]
    racks = [TopicRacks(topic, 1_000_000_000, 30_000_000_000, 0), TopicRacks("", 60_000_000_000, 9_000_000_000, 2)]
    known = Clients(clients, 17, reasons, summary.first_us, summary.last_us)
    batches = made_up.BATCHES._replace(bytes=100_000_000_000, movable_bytes=80_000_000_000)
    return made_up.facts(summary=summary, batches=batches, clients=known, replay=replay, topic_racks=racks)


def _wave(number: int) -> float:
    """0 to 1, with a crest in the middle of the hour."""
    return math.exp(-(((number - POINTS / 2) / 20) ** 2))


def _time_point(number: int) -> TimePoint:
    wave = _wave(number)
    linger = Percentiles(round(400 + 2000 * wave), round(3000 + 90_000 * wave), round(9000 + 200_000 * wave))
    waits = Percentiles(round(1900 + 4000 * wave), round(9000 + 140_000 * wave), round(30_000 + 400_000 * wave))
    sizes = 4000 + 9000 * wave, round(3500 + 2000 * wave), round(16_000 + 60_000 * wave)
    return TimePoint(
        START_US + number * WIDTH, linger, waits, *sizes, 5000 + 20 * number, 9000 + 40 * number, number % 7
    )


def _gauge_point(number: int) -> GaugePoint:
    used = round(2_000_000 + 29_000_000 * _wave(number))
    return GaugePoint(START_US + number * WIDTH, round(0.8 * used), used, 33_554_432)


def _shares(topic: str, count: int) -> TopicShares:
    told: list[int | None] = [*range(min(count, 7)), *([None] if count > 7 else [])]
    points = []
    for number in range(POINTS):
        weights = dict.fromkeys(told, 1.0)
        weights[0] += 4 * _wave(number)
        total = sum(weights.values())
        points.append(SharesPoint(START_US + number * WIDTH, {key: weight / total for key, weight in weights.items()}))
    return TopicShares(topic, [partition for partition in told if partition is not None], points)


def _summary(topics: tuple[str, ...], journal: str) -> Summary:
    groups = [
        _group({"topic": topic, "partition": partition}, 25_953_200 if partition == 0 else 7_546_212)
        for topic, count in zip(topics, PARTITIONS, strict=True)
        for partition in range(count)
    ]
    return Summary(
        journal=journal,
        first_us=START_US,
        last_us=START_US + POINTS * WIDTH - 1,
        by=["topic", "partition"],
        total=_group({}, 214_000_000),
        groups=groups,
        groups_left_out=40,
        topics=[
            TopicSkew(
                topic=topic,
                partitions=count,
                batches=5107,
                bytes=41_336_290,
                largest=0,
                largest_share=0.628,
                max_to_mean=1.88,
                gini=0.3,
            )
            for topic, count in zip(topics, PARTITIONS, strict=True)
        ],
        topics_left_out=0,
        reasons=[Reason("linger", 3000, 30_000_000, 20_000), Reason("full", 2000, 11_000_000, 14_000)],
        fates=[Fate("acknowledged", 0, 5000, 33_000), Fate("retried", 6, 7, 231), Fate("unknown", 7, 1, 12)],
        runaways=[
            Episode(
                topic=topics[0],
                partition=0,
                since_us=START_US + 70 * WIDTH,
                until_us=START_US + 110 * WIDTH,
                share=0.741,
                times_fair=2.22,
                wait_us=140_000.0,
                others_wait_us=6000.0,
            ),
            Episode(
                topic=topics[2],
                partition=0,
                since_us=START_US + 170 * WIDTH,
                until_us=None,
                share=0.4,
                times_fair=4.8,
                wait_us=90_000.0,
                others_wait_us=6000.0,
            ),
        ],
        runaway_changes_left_out=0,
        metadata=MetadataUse(
            hits=98_000,
            misses=1200,
            hit_rate=0.9879,
            waits=31,
            requests=400,
            failed=2,
            took_us=Percentiles(1800, 40_000, 90_000),
            request_bytes=16_000,
            response_bytes=900_000,
        ),
        racks=RackUse(61_000_000_000, 39_000_000_000, 2_000_000_000, START_US, START_US + 3600 * SECOND),
        workers=[
            WorkerUse(
                worker=number,
                starts=1,
                seconds=3600,
                seconds_waited=40,
                pool_waits=96,
                pool_bytes=33_554_432,
                least_available_bytes=2_554_432,
                most_queued_bytes=24_800_000,
                most_queued_batches=900,
                most_in_flight=5,
                rows_dropped=12,
            )
            for number in (0, 1)
        ],
        torn=1,
    )


def _group(key: dict[str, str | int], size: int) -> Group:
    return Group(
        key=key,
        batches=1683,
        bytes=size,
        records=25_228,
        bytes_per_batch=size / 1683,
        records_per_batch=14.99,
        share=0.628,
        failed=3,
        linger_us=Percentiles(400, 21_000, 90_000),
        upstream_us=Percentiles(1500, 44_000, 120_000),
    )


def _audit(topic: str, client_id: str) -> AuditResult:
    counts: dict[str, Any] = {
        "acknowledged": 1_204_000,
        "present": 1_203_995,
        "missing": 3,
        "duplicated": 2,
        "not_followed": 4000,
    }
    finding = Finding(
        kind=Kind.MISSING,
        topic=topic,
        partition=2,
        first_offset=991,
        last_offset=993,
        records=3,
        client_id=client_id,
        process="host-1-abc",
        connection=7,
        number=8812,
        time_us=START_US,
        note="a <b>note</b>",
    )
    return AuditResult(
        first_us=START_US,
        last_us=START_US + POINTS * WIDTH,
        rows=9000,
        totals=Counts(**counts),
        clients=[ClientLine(topic=topic, client_id=client_id, **counts)],
        clients_left_out=0,
        topics=[TopicLine(topic, 100, 7)],
        findings=[finding],
        rows_dropped=24,
        lines_torn=1,
        notes=["24 rows of the ledger were dropped: what they told is not known."],
    )


def _replay() -> ReplayReport:
    results = [
        Result(
            settings={"partitioner": partitioner, "linger.ms": str(linger), "batch.size": str(size)},
            average_ms=2.0 + linger + size / 40_000 + 3 * (partitioner == "uniform"),
            p50_ms=1.1 + linger,
            p99_ms=9.0 + 3 * linger + size / 5000 + 40 * (partitioner == "uniform"),
            batch_bytes=3000.0 + 900 * linger + size / 10,
            batch_records=6.0 + 2 * linger,
            requests=9000 - 300 * linger,
            skew=1.2,
            gini=0.1,
            pool_peak_bytes=8_000_000 + 100_000 * linger,
            records=34_231,
            intervals=Intervals(*[Interval(1.9 + linger, 2.3 + linger)] * 4),
            ranking_only=partitioner != "uniform",
        )
        for partitioner in ("adaptive", "uniform", "expected_wait")
        for linger in (0, 5, 20)
        for size in (16_384, 65_536)
    ]
    return ReplayReport(
        source="recorded",
        results=results,
        present=8,
        recommended=12,
        reason="Average 10.00 -> 4.00 ms, p99 60.00 -> 15.00 ms: the lowest p99 of those near the best average.",
        assumed=["nothing fails and no leader changes", "records are not compressed"],
        measured=None,
        records=34_231,
        seconds=3600.0,
        seed=1,
        certainty=0.97,
    )
