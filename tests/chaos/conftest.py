"""One stage for each file of tests that needs one, and the table of what happened on it, printed at the end.

FOREBAY_TEST_SEED      the seed of the random pairs; printed, so that a run can be had again
FOREBAY_TEST_SECONDS   for how long pairs are drawn (`make chaos`); without it a few are
FOREBAY_TEST_KEEP=1    the table goes to docs/reliability.md too
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from tests.chaos.report import keep, table
from tests.chaos.run import RESULTS
from tests.chaos.seed import SEED
from tests.chaos.stage import Stage


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """With the timeouts that the file names."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # kafka-python tells of every fault, at length
    with Stage(request.module.TIMEOUTS) as stage:
        yield stage


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not RESULTS:
        return
    terminalreporter.section("faults")
    terminalreporter.write_line(table(RESULTS).markdown())
    terminalreporter.write_line(f"random pairs: FOREBAY_TEST_SEED={SEED}")
    if os.environ.get("FOREBAY_TEST_KEEP") == "1":
        keep(RESULTS, SEED)
