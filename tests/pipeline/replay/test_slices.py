"""The simulation over Spark: slices and their warm-up, what it costs, and that the spreading changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.jobs.histogram import percentile
from forebay_pipeline.replay.arrivals import SYNTHETIC, Load, of_load
from forebay_pipeline.replay.intervals import Block, Draw
from forebay_pipeline.replay.proxy_times import NO_WAY, TURN
from forebay_pipeline.replay.recommendation import choose
from forebay_pipeline.replay.results import Result, results_of
from forebay_pipeline.replay.run import Plan, replay_load
from forebay_pipeline.replay.service_times import constant
from forebay_pipeline.replay.settings import read_grid, variants
from forebay_pipeline.replay.simulation import Simulation, World
from forebay_pipeline.replay.slices import Slices, Task, busy, sample, simulated, sliced, tables_of
from tests.pipeline.replay.simulated import steady, world

LOAD = Load(records_per_s=1000, seconds=30)
SMALL = Load(records_per_s=250, seconds=30)
"""Enough where results must be the same to the last digit."""
FOUND = variants({}, read_grid(["partitioner=adaptive,expected_wait,uniform"]))


def replayed(
    spark: SparkSession, seconds: float, load: Load = LOAD, *, stripes: int = 1, tasks: int = 2, seed: int = 1
) -> list[Result]:
    slices = Slices.over(0, 30_000_000 - 1, seconds)
    brokers = {0: constant(0.0205), 1: constant(0.0006), 2: constant(0.0006)}
    world = World({SYNTHETIC: load.leaders}, brokers, TURN, NO_WAY)
    task = Task(world, [each.settings for each in FOUND], stripes, slices, seed)
    arrivals = of_load(spark, load, 1).repartition(tasks)
    return results_of(simulated(arrivals, {SYNTHETIC: SYNTHETIC}, task).persist(), FOUND)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_rows_of_a_key_are_put_together_however_spark_cuts_them(size: int) -> None:
    keys = [("a", "t", 0, 0)] * 4 + [("a", "t", 0, 1)] + [("a", "t", 1, 0)] * 2 + [("b", "t", 1, 0)] * 3
    columns = dict(zip(("process", "group", "slice", "stripe"), zip(*keys, strict=True), strict=True))
    table = pa.table({**{name: list(values) for name, values in columns.items()}, "row": list(range(len(keys)))})
    found = [(key, part["row"].to_pylist()) for key, part in tables_of(table.to_batches(size))]
    assert found == [
        (("a", "t", 0, 0), [0, 1, 2, 3]),
        (("a", "t", 0, 1), [4]),
        (("a", "t", 1, 0), [5, 6]),
        (("b", "t", 1, 0), [7, 8, 9]),
    ]
    assert list(tables_of([])) == []
    assert list(tables_of(table.slice(0, 0).to_batches())) == []


def test_the_end_of_a_slice_is_the_next_one_s_warm_up(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(second * 1_000_000 + 500,) for second in range(27)], "at_us long")
    found = sliced(rows, Slices.over(500, 26_000_500, 10))
    slices: dict[int, list[int]] = {}
    for row in found.collect():
        slices.setdefault(row["slice"], []).append(row["at_us"] // 1_000_000)

    assert {number: sorted(seconds) for number, seconds in slices.items()} == {
        0: list(range(10)),
        1: list(range(5, 20)),
        2: list(range(15, 27)),
    }


def test_a_sample_has_a_slice_of_each_stretch_of_time() -> None:
    """The example of slices.py."""
    chosen = sample(range(85), 0.1, 1)
    assert chosen is not None
    assert len(chosen) == 8
    edges = [85 * number // 8 for number in range(9)]
    assert all(first <= number < end for number, first, end in zip(chosen, edges, edges[1:], strict=False))
    assert sample(range(85), 0.1, 1) == chosen
    assert sample(range(85), 0.1, 2) != chosen


def test_a_sample_is_of_slices_in_which_anything_arrives(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(7 + second * 1_000_000,) for second in (0, 1, 2, 25, 7_209)], "at_us long")
    numbers = busy(rows, Slices.over(7, 7_209_000_007, 10))
    assert numbers == [0, 2, 720]
    assert sample([3 * number for number in range(16)], 0.5, 1) == [
        3 * number for number in sample(range(16), 0.5, 1) or []
    ]


def test_where_a_sample_would_be_too_small_there_is_none() -> None:
    assert sample(range(79), 0.1, 1) is None
    assert sample(range(79), 1, 1) is None


def test_a_tenth_of_the_slices_leads_to_the_same_recommendation() -> None:
    """In 19 of 20 samples at least. Each slice is simulated once, as it is over Spark."""
    where = world([0, 1, 2], 20.5, 0.6, 0.6, turn_ms=0.15)
    slices = Slices(0, 2.0, 80)
    found = variants({}, read_grid(["partitioner=adaptive,expected_wait linger.ms=-1,5"]))
    simulations: list[list[Block]] = []
    for index, variant in enumerate(found):
        blocks = []
        for number in range(slices.number):
            simulation = Simulation(variant.settings, where, Random(f"{number}/{index}"), 1.0)
            outcome = simulation.run(steady(80, 3, seed=number))
            blocks.append(Block(outcome.records, outcome.latency_us, outcome.requests, dict(outcome.latencies)))
        simulations.append(blocks)

    def recommended(chosen: Sequence[int]) -> int:
        return choose([_together([blocks[number] for number in chosen]) for blocks in simulations], 0)

    whole = recommended(range(slices.number))
    assert whole != 0
    samples = [sample(range(slices.number), 0.1, seed) for seed in range(20)]
    assert all(chosen is not None and len(chosen) * 10 <= slices.number for chosen in samples)
    assert sum(recommended(chosen or []) == whole for chosen in samples) >= 19


def _together(blocks: Sequence[Block]) -> Draw:
    counts = sum((Counter(block.buckets) for block in blocks), Counter[int]())
    records = sum(block.records for block in blocks)
    average_ms = sum(block.latency_us for block in blocks) / records / 1000
    requests = sum(block.requests for block in blocks)
    return Draw(average_ms, percentile(counts, 0.5) / 1000, percentile(counts, 0.99) / 1000, requests)


@pytest.mark.whole
def test_how_the_work_is_spread_changes_nothing(spark: SparkSession) -> None:
    found = replayed(spark, 10, SMALL)

    assert replayed(spark, 10, SMALL, stripes=2, tasks=5) == found
    assert replayed(spark, 10, SMALL, seed=2) != found
    assert sum(result.records for result in found) == len(FOUND) * of_load(spark, SMALL, 1).count()


@pytest.mark.whole  # test_a_tenth_of_the_slices… has that slices may stand for the whole
def test_slices_tell_what_one_whole_simulation_tells(spark: SparkSession) -> None:
    whole, in_slices = replayed(spark, 100), replayed(spark, 6)

    for one, many in zip(whole, in_slices, strict=True):
        assert many.records == one.records
        assert many.average_ms == pytest.approx(one.average_ms, rel=0.1)
        assert many.p50_ms == pytest.approx(one.p50_ms, rel=0.05)
        assert many.p99_ms == pytest.approx(one.p99_ms, rel=0.1)
        assert many.batch_records == pytest.approx(one.batch_records, rel=0.05)
        assert many.requests == pytest.approx(one.requests, rel=0.05)
        assert many.skew == pytest.approx(one.skew, rel=0.1)


def test_a_made_up_load_is_told_as_one(spark: SparkSession) -> None:
    report = replay_load(spark, Load(seconds=5), Plan(FOUND))

    assert report.source == "synthetic"
    assert report.measured is None
    assert report.records == report.results[0].records > 5 * 2048 - 4 * 101
    assert report.results[report.recommended].settings == {"partitioner": "expected_wait"}
