"""The detector's options, as a job is given them."""

from __future__ import annotations

import click
from click.testing import CliRunner

from forebay_pipeline.partitions.runaway_detector import Thresholds
from forebay_pipeline.partitions.runaway_options import runaway_options


def given(*words: str) -> tuple[int, Thresholds]:
    found: list[tuple[int, Thresholds]] = []

    @click.command()
    @runaway_options
    def command(window: int, limits: Thresholds) -> None:
        found.append((window, limits))

    result = CliRunner().invoke(command, words)
    assert result.exit_code == 0, result.output
    return found[0]


def test_defaults_are_the_detectors_own() -> None:
    assert given() == (10, Thresholds())


def test_each_option_is_its_threshold() -> None:
    words = "--window 5 --share 3 --wait 4 --rise 1.5 --windows 6 --batches 7 --quiet 8"
    limits = Thresholds(share=3, wait=4, rise=1.5, windows=6, batches=7, quiet_us=8_000_000)
    assert given(*words.split()) == (5, limits)
