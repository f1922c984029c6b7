"""Slow brokers, runaways, and skew that racks cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay_pipeline.advice.placement import rack_skew, runaway, slow_broker
from forebay_pipeline.advice.present import Present
from forebay_pipeline.partitions.runaway_windows import Episode
from tests.pipeline.advice import made_up
from tests.pipeline.advice.made_up import BROKERS, TOPICS, as_forebay_reads, facts, skew
from tests.pipeline.replay.reports import report

SLOW = [BROKERS[0]._replace(upstream_us=21_000, latency_us=300_000 * 30_000), *BROKERS[1:]]


def test_records_without_a_key_avoid_a_slow_broker(tmp_path: Path) -> None:
    """240,000 of a million records take 10 instead of 30 ms: 4.8 of 10 ms less on average."""
    change = slow_broker(facts(brokers=SLOW))
    assert change is not None
    assert change.settings == {"partitioner": "expected_wait"}
    assert change.effect.ms == pytest.approx(-4.8)
    assert change.effect.requests == pytest.approx(32)
    assert change.effect.worth == pytest.approx(0.48 - 0.32)
    assert change.title == "Keep records without a key away from slow broker 0"
    assert "within 21.0 ms, the others within 2.0 ms, and got 240,000 records" in change.evidence
    assert as_forebay_reads(tmp_path, change).partitioner == "expected_wait"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"brokers": SLOW, "present": Present({"partitioner": "expected_wait"})},
        {"brokers": SLOW, "replay": report(0)},
        {"brokers": SLOW[:1]},
        {"brokers": SLOW[:2]},
        {"brokers": [SLOW[0]._replace(batches=99), *SLOW[1:]]},
        {"brokers": [SLOW[0]._replace(upstream_us=3900), *SLOW[1:]]},
        {"brokers": [SLOW[0]._replace(movable_records=100), *SLOW[1:]]},
    ],
    ids=["alike", "already", "simulated", "alone", "one of two", "few batches", "hardly slower", "nothing may move"],
)
def test_without_enough_evidence_nothing_is_said_of_brokers(given: dict[str, object]) -> None:
    assert slow_broker(facts(**given)) is None


STICKY = Present({"partitioner": "sticky"})


def test_a_runaway_asks_for_a_partitioner_that_sees_queues(tmp_path: Path) -> None:
    """Half of the records waited 50 ms longer in half of the time: 12.5 ms on average."""
    change = runaway(facts(runaways=[made_up.runaway()], present=STICKY))
    assert change is not None
    assert change.effect.ms == pytest.approx(-12.5)
    assert "1 runaway in 1 topic; at worst partition 0 of orders got 3.0 times its share" in change.evidence
    assert as_forebay_reads(tmp_path, change).partitioner == "adaptive"


def test_a_runaway_that_goes_on_lasts_until_the_end() -> None:
    change = runaway(facts(runaways=[made_up.runaway(until_us=None)], present=STICKY))
    assert change is not None
    assert change.effect.ms == pytest.approx(-25)


KEYED = {"orders": TOPICS["orders"]._replace(movable_bytes=1)}


@pytest.mark.parametrize(
    ("episodes", "given"),
    [
        ([], {}),
        ([made_up.runaway()], {"present": Present({})}),
        ([made_up.runaway()], {"present": Present()}),
        ([made_up.runaway()], {"topics": KEYED}),
        ([made_up.runaway("unknown")], {}),
        ([made_up.runaway()], {"replay": report(0)}),
    ],
    ids=["none", "it does see them", "it is taken to see them", "records with keys", "a small topic", "simulated"],
)
def test_without_enough_evidence_nothing_is_said_of_runaways(episodes: list[Episode], given: dict[str, object]) -> None:
    assert runaway(facts(runaways=episodes, **{"present": STICKY, **given})) is None


def test_racks_may_not_make_partitions_uneven_without_end(tmp_path: Path) -> None:
    local = Present({"partitioner.rack.aware": True, "partitioner.rack.max.skew": 1})
    uneven = made_up.summary(topics=[skew(max_to_mean=2.0)])
    change = rack_skew(facts(summary=uneven, present=local))
    assert change is not None
    assert change.effect.others[0] == "The fullest partition gets 1.2 times its share instead of 2.0."
    assert as_forebay_reads(tmp_path, change).partitioner_rack_max_skew == 0.2
    assert rack_skew(facts(present=local)) is None
    assert rack_skew(facts(summary=uneven)) is None
    assert rack_skew(facts(summary=uneven, present=Present({"partitioner.rack.aware": True}))) is None
    assert rack_skew(facts(summary=uneven, present=local, topics=KEYED)) is None
