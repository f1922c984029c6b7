"""Every fault by itself, then pairs: nothing acknowledged is lost, nothing is there that clients did not ask for."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from random import Random
from time import monotonic

import pytest

from tests.chaos.bystander import DIRECT, THROUGH
from tests.chaos.fault import NONE, Fault, toxic
from tests.chaos.faults import FAULTS, LIKE_ANOTHER, pair
from tests.chaos.run import run
from tests.chaos.seed import SEED
from tests.chaos.stage import SHORT, Stage
from tests.kit.ports import LOOPBACK
from tests.kit.waiting import wait_until

TIMEOUTS = SHORT
PAIRS = 2 if os.environ.get("WHOLE") else 1
SECONDS = float(os.environ.get("FOREBAY_TEST_SECONDS", "0"))


@pytest.mark.whole
def test_what_forebay_holds_is_seen(stage: Stage) -> None:
    """Ten of them, since a connection to a broker that closed meanwhile may make up for one or two."""
    stage.wait_until_settled()
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(socket.create_connection((LOOPBACK, stage.forebay.port), 5))
        wait_until(lambda: stage.footprint().client_connections == 10, 30, "the connections are seen")
        assert set(stage.footprint().beyond(stage.settled)) >= {"client_connections", "file_descriptors"}
    stage.wait_until_settled()


def test_what_bystanders_wait_is_seen(stage: Stage) -> None:
    with stage.bystanders() as bystanders:
        with toxic(stage, [stage.broker_hops[0]], "latency", latency=1000):
            begun = monotonic()
            wait_until(lambda: monotonic() > begun + 1.5, 30, "a record or two have waited")
        waits = bystanders.stop()
    for way in (DIRECT, THROUGH):
        assert waits.latency(way, {0}, begun, monotonic()).worst >= 1


@pytest.mark.whole
def test_no_fault(stage: Stage) -> None:
    """What the others are compared with. Whatever fails here fails beside clients that die in mid-frame, too."""
    findings = run(stage, [NONE]).findings
    assert findings.refused == findings.unknown == 0


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
