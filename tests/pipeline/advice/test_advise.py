"""All rules at once: the first screen's five, which fit into one file."""

from __future__ import annotations

from pathlib import Path

from forebay_pipeline.advice.advise import advise
from forebay_pipeline.advice.facts import Clients, Picked, TopicReason
from forebay_pipeline.advice.present import Present
from forebay_pipeline.partitions.summary import RackUse
from tests.pipeline.advice.made_up import BATCHES, BROKERS, as_forebay_reads, client, facts, runaway, worker
from tests.pipeline.replay.reports import report

ALL_BAD = facts(
    batches=BATCHES._replace(
        bytes=800_000_000,
        movable_bytes=640_000_000,
        lingering={1: 160_000.0, 2: 130_000.0, 5: 80_000.0, 10: 60_000.0},
    ),
    brokers=[BROKERS[0]._replace(upstream_us=21_000, latency_us=300_000 * 30_000), *BROKERS[1:]],
    clients=Clients(
        [
            client("agent", reasons={"idempotent": 200_000}),
            client("shards", picked=[Picked("orders", 1, 12)]),
            client("till", versions=[1]),
        ],
        reasons=[TopicReason("orders", "null_key", 800_000, 0), TopicReason("logs", "idempotent", 200_000, 0)],
    ),
    runaways=[runaway()],
    racks=RackUse(250_000_000, 750_000_000, 0),
    workers=[worker(seconds_waited=400, pool_waits=96)],
    present=Present({"partitioner": "sticky"}),
)


def test_the_five_that_are_worth_most(tmp_path: Path) -> None:
    found = advise(ALL_BAD)
    assert [one.name for one in found] == ["pick-partitions", "runaway", "idempotent", "racks", "memory"]
    settings = as_forebay_reads(tmp_path, *found)
    assert (settings.partitioner, settings.partitioner_rack_aware) == ("adaptive", True)


def test_a_partitioner_that_is_taken_to_be_in_force_keeps_no_other_out() -> None:
    """Without --config it is the default, adaptive."""
    slow = facts(brokers=ALL_BAD.brokers, runaways=[runaway()])
    assert [(one.name, one.settings) for one in advise(slow)] == [("slow-broker", {"partitioner": "expected_wait"})]


def test_where_all_is_well_nothing_is_said() -> None:
    assert advise(facts()) == []
    assert advise(facts(present=Present({}), replay=report(0))) == []


def test_a_replay_takes_the_place_of_guesses(tmp_path: Path) -> None:
    found = advise(ALL_BAD._replace(replay=report(len(report(0).results) - 1)))
    assert not {"linger", "slow-broker", "runaway", "batch-size"} & {one.name for one in found}
    assert "replay" in [one.name for one in found]
    as_forebay_reads(tmp_path, *found)
