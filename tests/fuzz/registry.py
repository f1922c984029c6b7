"""All fuzz targets by name."""

from __future__ import annotations

from functools import cache

from tests.fuzz import batches, framing, message_sets, messages, streams
from tests.fuzz.target import Target


@cache
def targets() -> dict[str, Target]:
    found = [*batches.targets(), *framing.targets(), *message_sets.targets(), *messages.targets(), *streams.targets()]
    return {target.name: target for target in found}
