"""What a fuzz target is, and what may never happen to it.

In: bytes. `check` feeds them to the code under test, compares what is accepted with an oracle, and returns whether they
were accepted. Whatever it raises is a finding: it catches the documented errors itself. `mutate` makes the next input
of one that is there; it knows the format, so that mutants get past lengths and checksums.

A run is bounded in time for each input (`within`) and in memory for the process (`grown`).
"""

from __future__ import annotations

import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import Final

Mutate = Callable[[bytes, Random], bytes]

CPU_SECONDS_AN_INPUT: Final = 10.0
"""Far above what any input here takes (milliseconds), on whatever machine."""

SECONDS_AN_INPUT: Final = 120.0
"""For what waits and does nothing, also where the machine is busy."""

MEMORY: Final = 192 << 20
"""Bytes that a target may grow by. Inputs are small and may decompress to LIMIT in batches.py, a hundredth of this."""

CORPUS: Final = 400
"""Inputs that mutants are made of, beside the seeds: the latest that were accepted."""


@dataclass(frozen=True)
class Target:
    """Something to fuzz: see above for `check` and `mutate`. `seeds` are the first inputs."""

    name: str
    seeds: Sequence[bytes]
    check: Callable[[bytes], bool]
    mutate: Mutate
    share: float = 1.0
    """Of the time, beside the others' shares."""


class Hang(Exception):
    """An input took longer than it may."""


@dataclass(frozen=True)
class Finding:
    """An input that broke a rule, and which."""

    target: str
    data: bytes
    why: str

    def __str__(self) -> str:
        return f"{self.target}: {self.data[:200].hex()}{'…' if len(self.data) > 200 else ''} ({len(self.data)} bytes)"


@dataclass
class Tally:
    """What a run came to."""

    target: str
    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    slowest_size: int = 0
    grown: int = 0
    coverage: int = 0
    """Branches, where the run was led by them."""
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.seconds += other.seconds
        self.grown = max(self.grown, other.grown)
        self.coverage += other.coverage
        self.findings += other.findings
        if other.slowest > self.slowest:
            self.slowest, self.slowest_size = other.slowest, other.slowest_size


@contextmanager
def within(cpu_seconds: float, seconds: float) -> Iterator[None]:
    """Raises Hang where the block takes more of the process's CPU time, or longer. In the main thread only."""

    def spent(_number: int, _frame: FrameType | None) -> None:
        raise Hang(f"more than {cpu_seconds:g} s of CPU")

    def passed(_number: int, _frame: FrameType | None) -> None:
        raise Hang(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, spent), signal.signal(signal.SIGALRM, passed)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGALRM, before[1])


def grown(since: int) -> int:
    """Bytes that the process's peak has grown by since it was `since` KiB."""
    return (peak() - since) * 1024


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def inputs(target: Target, rng: Random, accepted: Sequence[bytes]) -> Iterator[bytes]:
    """The seeds in any order, then mutants without end. `accepted` grows meanwhile."""
    yield from rng.sample(target.seeds, len(target.seeds))
    while True:
        kept = accepted[-CORPUS:] if rng.random() < 0.5 else ()
        yield target.mutate(rng.choice(kept or target.seeds), rng)


def run(target: Target, seed: int, count: int = 0, seconds: float = 0.0, most_findings: int = 1) -> Tally:
    """Feed `count` inputs, or as many as `seconds` allow. The same seed and count: the same inputs."""
    tally = Tally(target.name)
    accepted: list[bytes] = []
    began = time.perf_counter()
    at_first = peak()
    for data in inputs(target, Random(seed), accepted):
        before = time.perf_counter()
        if (count and tally.inputs >= count) or (seconds and before - began >= seconds):
            break
        try:
            with within(CPU_SECONDS_AN_INPUT, SECONDS_AN_INPUT):
                took_it = target.check(data)
            tally.grown = grown(at_first)
            if tally.grown > MEMORY:
                raise MemoryError(f"grown by {tally.grown >> 20} MiB")
        except Exception as error:
            why = "".join(traceback.format_exception(error))[-3000:]
            tally.findings.append(Finding(target.name, data, why))
            if len(tally.findings) >= most_findings:
                break
            at_first = peak()
            continue
        finally:
            tally.inputs += 1
        taken = time.perf_counter() - before
        if taken > tally.slowest:
            tally.slowest, tally.slowest_size = taken, len(data)
        if took_it:
            tally.accepted += 1
            accepted.append(data)
            if len(accepted) > 2 * CORPUS:
                del accepted[:CORPUS]
    tally.seconds = time.perf_counter() - began
    return tally
