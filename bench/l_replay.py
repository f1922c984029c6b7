"""l. `forebay-pipeline replay` against what was measured: KIP-794's scenario, recorded by a proxy and simulated."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench.a_slow_broker import OLD, RATE, SIZE, SLOW_MS
from bench.producer_performance import Load, fetch, produce
from bench.report import Section, Table
from bench.rig import KAFKA, forebay, shown
from bench.slow import SlowCluster, slow_cluster
from bench.wired import codecs
from forebay_pipeline.jobs.session import open_session
from forebay_pipeline.journal.source import JournalPlace, read_rows
from forebay_pipeline.journal.span import Span
from forebay_pipeline.replay.results import Measured, Result
from forebay_pipeline.replay.run import Plan, replay_journal
from forebay_pipeline.replay.settings import variants

TITLE: Final = "Replay: simulated against measured"
PARTITIONERS: Final = ("adaptive", "uniform", "expected_wait")
SETTLING_S: Final = 5
WITHIN: Final = 0.25


class Recorded(NamedTuple):
    """A journal, and when its load had settled."""

    folder: Path
    first_us: int


class Replayed(NamedTuple):
    """What one journal says, and what its arrivals come to with each partitioner."""

    measured: Measured
    results: Mapping[str, Result]
    seconds: float


def run(short: bool) -> Section:
    fetch()
    records = 30_720 if short else 122_880
    with TemporaryDirectory() as folder:
        with slow_cluster() as slow:
            slow.hold(0, SLOW_MS)
            journals = {name: _record(slow, name, Path(folder, name), records) for name in PARTITIONERS}
        replays = _replays(journals)
    return Section("l", TITLE, [_what(records), _compared(replays), _verdict(replays), WHY])


def _record(slow: SlowCluster, partitioner: str, folder: Path, records: int) -> Recorded:
    topic = slow.topic()
    settings = {"partitioner": partitioner, "journal_dir": str(folder), "journal_ledger": "true"}
    with forebay(slow.cluster, **settings) as proxy:
        produce(OLD, proxy.bootstrap, slow.topic(), Load(2_048, RATE, SIZE))
        began = time.time()
        produce(OLD, proxy.bootstrap, topic, Load(records, RATE, SIZE))
    return Recorded(folder, int((began + SETTLING_S) * 1e6))


def _replays(journals: Mapping[str, Recorded]) -> dict[str, Replayed]:
    spark = open_session("bench", settings={"spark.ui.enabled": "false"})
    try:
        found = {}
        for recorded_with, (folder, first_us) in journals.items():
            began = time.monotonic()
            tried = variants({"partitioner": recorded_with}, {"partitioner": PARTITIONERS})
            report = replay_journal(read_rows(spark, JournalPlace(str(folder)), Span(first_us)), Plan(tried))
            assert report.measured is not None
            results = {result.settings["partitioner"]: result for result in report.results}
            found[recorded_with] = Replayed(report.measured, results, time.monotonic() - began)
        return found
    finally:
        spark.stop()


def _compared(replays: Mapping[str, Replayed]) -> Table:
    """Each journal replayed with each partitioner, beside what was measured with that partitioner."""
    rows: list[Sequence[object]] = []
    for recorded_with, replayed in replays.items():
        for name, result in replayed.results.items():
            had = replays[name].measured
            rows.append(
                [
                    f"{recorded_with} → {name}",
                    *_pair(had.average_ms, result.average_ms),
                    *_pair(had.p50_ms, result.p50_ms),
                    *_pair(had.p99_ms, result.p99_ms),
                ]
            )
    head = ["recorded with → replayed with"]
    for name in ("average", "p50", "p99"):
        head += [f"{name}, measured, ms", "simulated", "ratio"]
    return Table(head, rows)


def _pair(measured: float, simulated: float) -> tuple[str, str, str]:
    return shown(measured), shown(simulated), f"{simulated / measured:.2f}"


def _verdict(replays: Mapping[str, Replayed]) -> str:
    words = []
    for name, replayed in replays.items():
        had, made = replayed.measured, replayed.results[name]
        ratios = {"p50": made.p50_ms / had.p50_ms, "p99": made.p99_ms / had.p99_ms}
        words += [
            f"{name}, {what}: {ratio:.2f}, {'met' if abs(ratio - 1) <= WITHIN else 'missed'}."
            for what, ratio in ratios.items()
        ]
    seconds = ", ".join(f"{replayed.seconds:.0f}" for replayed in replays.values())
    return (
        f"Simulated ÷ measured with the settings with which it was recorded, target within {WITHIN:.0%}:"
        f" {' '.join(words)} The journals took {seconds} s."
    )


def _what(records: int) -> str:
    return (
        f"Bench a's scenario: {records:,} records of {SIZE} bytes at {RATE:,}/s from ProducerPerformance of {OLD},"
        f" acks=1, three brokers of Kafka {KAFKA}, broker 0 holds each Produce response for {SLOW_MS} ms in turn;"
        f" through Forebay (codecs {codecs()}) with journal.ledger, once with each partitioner. Measured is what the"
        f" ledger says, from receive to answer, over records, without the first {SETTLING_S} s. Each journal is"
        " replayed with each partitioner: its arrivals, its brokers' times, the proxy's policies, simulated. Lines of"
        " two different partitioners are predictions of what another run measured."
    )


WHY: Final = (
    "Arrivals do not answer to what becomes of them: a client that waits for the slow broker's answer sends less"
    " meanwhile, and in larger batches afterwards. So a prediction for a partitioner with which clients would have"
    " waited less has a few more such bursts in it than the measured run of that partitioner."
)
