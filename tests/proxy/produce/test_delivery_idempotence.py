"""Batches that carry sequences, in random lives against a model of brokers (lanes_world)."""

from __future__ import annotations

from random import Random

import pytest

from tests.kit.event_loop import in_loop
from tests.proxy.produce.lanes_world import World


@in_loop
@pytest.mark.parametrize("seed", range(4))
async def test_no_record_is_lost_and_none_is_there_twice(seed: int) -> None:
    world = World(Random(seed))
    await world.run(5_000)
    assert min(world.counts.values()) > 0, world.counts


@pytest.mark.whole
@in_loop
@pytest.mark.parametrize("seed", range(10, 20))
async def test_the_same_in_a_million_steps(seed: int) -> None:
    world = World(Random(seed))
    await world.run(100_000)
    assert min(world.counts.values()) > 0, world.counts
