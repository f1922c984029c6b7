"""One target's share of a fuzz run, in a process of its own."""

from __future__ import annotations

import os
import resource
from typing import Final

from tests.fuzz import target as fuzz
from tests.fuzz.guided import available, guided
from tests.fuzz.registry import targets
from tests.fuzz.target import Tally
from tests.kit.paths import CACHE

KEPT: Final = CACHE / "fuzz"
"""Findings, and what the guided runs have learned."""

ADDRESS_SPACE: Final = 4 << 30
"""No length is believed that leads beyond this."""

MAX_FINDINGS: Final = 5

UNGUIDED: Final = ("client", "broker")


def run(name: str, seed: int, seconds: float, *, by_coverage: bool) -> Tally:
    os.nice(5)
    if by_coverage and name not in UNGUIDED and available():
        return guided(name, seed, seconds, KEPT)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    return fuzz.run(targets()[name], seed, seconds=seconds, most_findings=MAX_FINDINGS)
