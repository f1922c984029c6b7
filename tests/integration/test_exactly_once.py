"""Clients that send once lose and duplicate nothing while answers get lost: a short form of `make exactly-once`."""

from __future__ import annotations

import pytest

from tests.chaos.exactly_once import CLIENTS, VERSIONS, assert_exactly_once, scene

pytestmark = pytest.mark.integration

RECORDS = 2_500
WHOLE = [pytest.param(version, marks=pytest.mark.whole) for version in VERSIONS[1:]]


@pytest.mark.parametrize("version", [VERSIONS[0], *WHOLE])
def test_no_record_is_lost_or_there_twice_though_every_third_answer_is_dropped(version: str) -> None:
    with scene(version) as here:
        for name in CLIENTS:
            outcome = here.run(name, RECORDS)
            assert_exactly_once(outcome)
            assert outcome.dropped > 0
            assert outcome.again > 0
