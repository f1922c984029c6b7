"""A journal in which each job finds something: settings that are better, and a partition that runs away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from forebay_policies.journal_rows import Row
from tests.pipeline.partitions.windows import AWAY, EVEN, window
from tests.pipeline.replay.simulated import Journaled, settings, steady, world
from tests.pipeline.rows import START_US, Numbering, gauge_row, write_journal


def write(folder: Path) -> None:
    """A minute and two: KIP-794's scenario for 10 s, and beside it the partition, for longer."""
    for number, rows in enumerate(_files()):
        write_journal(folder, rows, f"{number}")


def _files() -> Iterator[list[Row]]:
    proxy = Journaled(settings(), world([0, 1, 2], 20.5, 0.6, 0.6, turn_ms=0.15), Random(7))
    proxy.run(steady(1024, 10))
    gauges: list[Row] = [gauge_row(time_us=START_US + second * 1_000_000) for second in range(60)]
    numbering = Numbering()
    yield numbering.of([*proxy.rows, *gauges])
    for number in range(13):
        yield numbering.of(window(number, AWAY if 2 < number < 8 else EVEN, topic="away"))
