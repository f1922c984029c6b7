"""What follows from facts."""

from __future__ import annotations

import pytest

from forebay_pipeline.advice.facts import BatchUse, Clients, TopicReason
from tests.pipeline.advice.made_up import BATCHES, client, facts
from tests.pipeline.replay.reports import report


def test_averages_and_rates() -> None:
    found = facts()
    assert (found.seconds, found.requests_a_second, found.merge_ratio) == (1000, 100, 4)
    assert BATCHES.average_ms == 10
    assert BatchUse().average_ms == 0
    assert facts(last_us=5).seconds == 1
    assert facts(missing_us=400_000_000).seconds == 600
    assert Clients(last_us=8_000_000, missing_us=2_000_000).seconds == 6
    assert (Clients().seconds, Clients(first_us=1_000_000, last_us=8_000_000).seconds) == (1, 7)
    assert facts(batches=BatchUse(batches=10, runs=90)).merge_ratio is None


def test_what_a_replay_tried_is_simulated() -> None:
    found = facts(replay=report(0))
    assert found.simulated("linger.ms")
    assert not found.simulated("max.request.size")
    assert not facts().simulated("linger.ms")


def test_clients_by_how_they_are_treated() -> None:
    old = client(versions=[2, 7], reasons={"mixed": 3, "keyed": 4, "idempotent": 5})
    assert (old.too_old, old.merged) == (True, 7)
    assert (client().too_old, client(versions=[]).too_old) == (False, False)
    known = Clients(reasons=[TopicReason("a", "keyed", 3, 0), TopicReason("b", "keyed", 4, 0)])
    assert (known.batches("keyed", "mixed"), known.batches("mixed")) == (7, 0)


@pytest.mark.parametrize(("requests", "rate"), [(0, 0), (5000, 5)])
def test_requests_a_second(requests: int, rate: float) -> None:
    assert facts(batches=BATCHES._replace(requests=requests)).requests_a_second == rate
