"""Every fault by itself, then pairs: nothing acknowledged is lost, nothing is there that clients did not ask for."""

from __future__ import annotations

import os
from random import Random
from time import monotonic

import pytest

from tests.chaos.fault import Fault
from tests.chaos.faults import FAULTS, LIKE_ANOTHER, pair
from tests.chaos.run import run
from tests.chaos.seed import SEED
from tests.chaos.stage import Stage

PAIRS = 2
SECONDS = float(os.environ.get("FOREBAY_TEST_SECONDS", "0"))


def test_no_fault(stage: Stage) -> None:
    """What the others are compared with."""
    run(stage, [])


@pytest.mark.parametrize(
    "fault",
    [pytest.param(it, id=it.name, marks=[pytest.mark.whole] if it.name in LIKE_ANOTHER else []) for it in FAULTS],
)
def test_fault(stage: Stage, fault: Fault) -> None:
    run(stage, [fault])


@pytest.mark.timeout(SECONDS + 600)
def test_random_pairs(stage: Stage) -> None:
    """A few, or as many as the time that was given allows."""
    rng = Random(SEED)
    begun = monotonic()
    drawn = 0
    while drawn < PAIRS or monotonic() - begun < SECONDS:
        drawn += 1
        faults = pair(rng)
        print(f"pair {drawn} of FOREBAY_TEST_SEED={SEED}: {' + '.join(map(str, faults))}", flush=True)
        run(stage, faults)
