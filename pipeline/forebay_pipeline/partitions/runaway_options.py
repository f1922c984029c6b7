"""What the runaway detector can be told, for the jobs `partitions` and `runaways`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from forebay_pipeline.partitions.runaway_detector import Thresholds

T = TypeVar("T")

_DEFAULT: Final = Thresholds()
_OPTIONS: Final = (
    ("--window", click.IntRange(1, 86_400), 10, "Seconds that are judged at once."),
    ("--share", click.FloatRange(1, min_open=True), _DEFAULT.share, "A runaway gets so many times its fair share,"),
    ("--wait", click.FloatRange(1), _DEFAULT.wait, "waits so many times as long as the topic's other partitions do,"),
    ("--rise", click.FloatRange(0), _DEFAULT.rise, "gets so many times what it got while it was not slow,"),
    ("--windows", click.IntRange(1, 1000), _DEFAULT.windows, "in so many windows in a row."),
    ("--batches", click.IntRange(1), _DEFAULT.batches, "A topic's windows with fewer batches are passed over."),
    ("--quiet", click.IntRange(1), _DEFAULT.quiet_us // 1_000_000, "Seconds after which a quiet topic is forgotten."),
)


def runaway_options(command: Callable[..., T]) -> Callable[..., T]:
    """`window` (seconds), and all others as `limits`, Thresholds."""

    @functools.wraps(command)
    def gathered(share: float, wait: float, rise: float, windows: int, batches: int, quiet: int, **others: Any) -> T:
        return command(limits=Thresholds(share, wait, rise, windows, batches, quiet * 1_000_000), **others)

    for name, kind, default, text in reversed(_OPTIONS):
        gathered = click.option(name, type=kind, default=default, show_default=True, help=text)(gathered)
    return gathered
