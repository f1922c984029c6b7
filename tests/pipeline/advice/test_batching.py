"""When a longer linger or larger batches are advised, and what is expected of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay_pipeline.advice.batching import batch_size, linger
from forebay_pipeline.advice.present import Present
from tests.pipeline.advice.made_up import BATCHES, as_forebay_reads, facts
from tests.pipeline.replay.reports import report

MERGED = {1: 160_000.0, 2: 130_000.0, 5: 80_000.0, 10: 60_000.0}
SMALL = BATCHES._replace(lingering=MERGED)
FULL = BATCHES._replace(full=150_000, full_linger_us=150_000 * 1000, bytes=200_000 * 16_000)


def test_small_batches_wait_for_as_long_as_it_is_worth(tmp_path: Path) -> None:
    """5 ms: 60 % of the requests, and 5 · (2.5 + 1) / 5 = 3.5 of 10 ms. 10 ms would save 70 %, and cost 6.5 ms."""
    change = linger(facts(batches=SMALL))
    assert change is not None
    assert change.settings == {"linger.ms": 5}
    assert change.effect.ms == pytest.approx(3.5)
    assert change.effect.requests == pytest.approx(-60)
    assert change.effect.cores == pytest.approx(-60 * 0.00012)
    assert change.effect.worth == pytest.approx(0.6 - 0.35)
    assert "200,000 batches of 2,000 bytes and 5.0 records on average, in 100 requests a second" in change.evidence
    assert as_forebay_reads(tmp_path, change).linger_ms == 5


def test_of_a_longer_linger_only_what_is_new_costs() -> None:
    """3 ms are set already: from there to 5 ms it is 2 · (2.5 + 1) / 5 = 1.4 ms."""
    saves = SMALL._replace(lingering={5: MERGED[5]})
    change = linger(facts(batches=saves, present=Present({"linger.ms": 3})))
    assert change is not None
    assert change.effect.ms == pytest.approx(1.4)


def test_a_linger_that_forebay_would_refuse_is_not_advised() -> None:
    """Within delivery.timeout.ms there must be time for a request, too."""
    saves = SMALL._replace(lingering={2: 90_000.0, 5: 40_000.0})
    change = linger(facts(batches=saves, present=Present({"delivery.timeout.ms": 30_002})))
    assert change is not None
    assert change.settings == {"linger.ms": 2}
    assert linger(facts(batches=SMALL, present=Present({"delivery.timeout.ms": 30_000}))) is None


@pytest.mark.parametrize(
    "given",
    [
        {"batches": BATCHES},
        {"batches": SMALL._replace(latency_us=2_000_000_000)},
        {"batches": SMALL._replace(bytes=200_000 * 5000)},
        {"batches": SMALL._replace(requests=40_000)},
        {"batches": SMALL._replace(batches=999)},
        {"batches": SMALL, "present": Present({"linger.ms": 10})},
        {"batches": SMALL, "replay": report(0)},
    ],
    ids=["little is saved", "it costs too much", "large", "seldom", "too few", "already", "simulated"],
)
def test_without_enough_evidence_nothing_is_said_of_linger(given: dict[str, object]) -> None:
    assert linger(facts(**given)) is None


def test_batches_that_fill_up_may_grow(tmp_path: Path) -> None:
    """Three of four batches are full after 1 of 20 ms: with four times the size a fourth of them is left, 4 ms long."""
    change = batch_size(facts(batches=FULL, present=Present({"linger.ms": 20})))
    assert change is not None
    assert change.settings == {"batch.size": 65_536}
    assert change.effect.requests == pytest.approx(-100 * 0.75 * 0.75)
    assert change.effect.ms == pytest.approx(0.75 * 3 / 2)
    assert as_forebay_reads(tmp_path, change).batch_size == 65_536


def test_batches_grow_only_as_long_as_they_may_wait() -> None:
    """After 1 of 2 ms: they would be twice as large."""
    change = batch_size(facts(batches=FULL, present=Present({"linger.ms": 2})))
    assert change is not None
    assert change.effect.requests == pytest.approx(-100 * 0.75 * 0.5)


@pytest.mark.parametrize(
    "given",
    [
        {"batches": FULL},
        {"batches": FULL, "present": Present({})},
        {"batches": FULL, "present": Present({"linger.ms": 20, "batch.size": 131_072})},
        {"batches": FULL._replace(full=99_000), "present": Present({"linger.ms": 20})},
        {"batches": FULL._replace(requests=40_000), "present": Present({"linger.ms": 20})},
        {"batches": FULL, "present": Present({"linger.ms": 20}), "replay": report(0)},
        {"batches": FULL._replace(full_linger_us=150_000 * 1950), "present": Present({"linger.ms": 2})},
    ],
    ids=["unknown linger", "adaptive linger", "no room", "few are full", "seldom", "simulated", "no time"],
)
def test_without_enough_evidence_nothing_is_said_of_the_size(given: dict[str, object]) -> None:
    assert batch_size(facts(**given)) is None
