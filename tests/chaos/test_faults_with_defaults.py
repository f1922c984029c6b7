"""With the timeouts that everybody has by default: one party's trouble beside neighbours, and a rolling restart."""

from __future__ import annotations

import pytest

from tests.chaos.both_ways import run_both_ways
from tests.chaos.broker_faults import ROLLING_RESTART
from tests.chaos.fault import Fault
from tests.chaos.neighbour_faults import LONG, NEIGHBOUR_FAULTS
from tests.chaos.run import run
from tests.chaos.stage import DEFAULTS, Stage

TIMEOUTS = DEFAULTS


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "fault",
    [pytest.param(it, id=it.name, marks=[pytest.mark.whole] if it.name in LONG else []) for it in NEIGHBOUR_FAULTS],
)
def test_fault(stage: Stage, fault: Fault) -> None:
    """It is over before anybody's time is."""
    findings = run(stage, [fault]).findings
    assert findings.refused == findings.unknown == 0


@pytest.mark.whole
def test_rolling_restart(stage: Stage) -> None:
    run_both_ways(stage, ROLLING_RESTART)
