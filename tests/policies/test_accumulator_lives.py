"""Random lives of records in an accumulator: nothing is lost, told twice, kept waiting or out of order."""

from __future__ import annotations

from hypothesis import settings

from tests.policies.accumulator_machine import AccumulatorMachine

TestLives = AccumulatorMachine.TestCase
TestLives.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
