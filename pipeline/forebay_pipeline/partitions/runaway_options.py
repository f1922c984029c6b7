"""The runaway detector's options, for the jobs `partitions` and `runaways`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from forebay_pipeline.jobs.options import FiniteRange
from forebay_pipeline.partitions.runaway_detector import Thresholds

T = TypeVar("T")

_DEFAULT: Final = Thresholds()
_OPTIONS: Final = (
    ("--window", click.IntRange(1, 86_400), 10, "Runaways: seconds per window."),
    (
        "--share",
        FiniteRange(1, min_open=True),
        _DEFAULT.share,
        "Runaways get at least this many times their fair share of the bytes.",
    ),
    ("--wait", FiniteRange(1), _DEFAULT.wait, "Runaways wait at least this many times as long as the others."),
    (
        "--rise",
        FiniteRange(0),
        _DEFAULT.rise,
        "Runaways get at least this many times what they got before they were slow.",
    ),
    ("--windows", click.IntRange(1, 1000), _DEFAULT.windows, "Runaways do all that in this many windows in a row."),
    ("--batches", click.IntRange(1), _DEFAULT.batches, "Ignore a topic's windows with fewer batches."),
    ("--quiet", click.IntRange(1), _DEFAULT.quiet_us // 1_000_000, "Forget a topic after this many quiet seconds."),
)


def runaway_options(command: Callable[..., T]) -> Callable[..., T]:
    """Adds --window, passed to the job as `window` (seconds), and the others, passed as `limits`, a Thresholds."""

    @functools.wraps(command)
    def gathered(share: float, wait: float, rise: float, windows: int, batches: int, quiet: int, **others: Any) -> T:
        limits = Thresholds(
            share=share, wait=wait, rise=rise, windows=windows, batches=batches, quiet_us=quiet * 1_000_000
        )
        return command(limits=limits, **others)

    for name, kind, default, text in reversed(_OPTIONS):
        gathered = click.option(name, type=kind, default=default, show_default=True, help=text)(gathered)
    return gathered
