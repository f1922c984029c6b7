"""The replay of a real proxy's journal, beside what that proxy measured: KIP-794's scenario, for 20 s.

Broker 0 takes 20 ms for each Produce request, one after the other. Both come from one journal: measured is what the
ledger says, simulated is the same arrivals through the simulation with the same settings. With expected_wait the slow
broker gets about 1 % of the records, so that p99 lies now on the one, now on the other side of its 20 ms, in what is
measured too: it has bench l, and no test.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.journal.source import JournalPlace, read_rows
from forebay_pipeline.journal.span import Span
from forebay_pipeline.replay.run import Plan, replay_journal
from forebay_pipeline.replay.settings import variants
from tests.integration.checks import every_record_acknowledged
from tests.kit.forebay import ForebayProcess
from tests.kit.java import JavaClient
from tests.kit.slow_cluster import cluster_with_slow_broker
from tests.kit.spec import ProduceSpec

pytestmark = pytest.mark.integration

RATE = 2_048
SECONDS = 20
SETTLING_S = 3
SLOW_MS = 20
WITHIN = 0.25
OPEN = {"max.in.flight.requests.per.connection": "1000"}
"""The client does not wait for answers, as the replay supposes: with five requests on their way it sends large batches
just when the slow broker has answered, and they go where the turn then is. `make bench BENCH=l` has it with five."""
TRIES = 3
"""Client, brokers and proxy share the machine with whatever else runs there."""


def record(folder: Path, partitioner: str) -> int:
    """The scenario, journalled; when it had settled, in µs since 1970."""
    with ExitStack() as stack:
        cluster = stack.enter_context(cluster_with_slow_broker(SLOW_MS))
        client = JavaClient("2.8.2")
        stack.callback(client.close)
        for topic in ("before", "load"):
            cluster.create_topic(topic, 3)
        settings = {"partitioner": partitioner, "journal.dir": str(folder), "journal.ledger": "true"}
        forebay = stack.enter_context(ForebayProcess(cluster.bootstrap, cluster.nodes, settings=settings))
        produce(client, forebay, "before", 2 * RATE)
        began = time.time()
        produce(client, forebay, "load", SECONDS * RATE)
    return int((began + SETTLING_S) * 1e6)


def produce(client: JavaClient, forebay: ForebayProcess, topic: str, count: int) -> None:
    spec = ProduceSpec(topic, "replay", count=count, size=512, rate=RATE, acks="1", linger_ms=0, props=OPEN)
    every_record_acknowledged(spec, client.produce(forebay.bootstrap, spec))


@pytest.mark.whole  # tests/pipeline/replay finds known times again; test_journal.py replays a real proxy's journal
@pytest.mark.parametrize("partitioner", ["adaptive", "uniform"])
def test_the_simulation_is_near_what_was_measured(spark: SparkSession, tmp_path: Path, partitioner: str) -> None:
    ratios: list[tuple[float, float]] = []
    while not ratios or max(abs(ratio - 1) for ratio in ratios[-1]) > WITHIN:
        assert len(ratios) < TRIES, ratios
        ratios.append(compare(spark, tmp_path / str(len(ratios)), partitioner))


def compare(spark: SparkSession, folder: Path, partitioner: str) -> tuple[float, float]:
    """Simulated by measured: p50 and p99."""
    first_us = record(folder, partitioner)
    rows = read_rows(spark, JournalPlace(str(folder)), Span(first_us))
    report = replay_journal(rows, Plan(variants({"partitioner": partitioner}, {})))
    measured, simulated = report.measured, report.results[0]
    assert measured is not None
    assert measured.records > 0.9 * (SECONDS - SETTLING_S) * RATE
    assert simulated.records == measured.records
    return simulated.p50_ms / measured.p50_ms, simulated.p99_ms / measured.p99_ms
