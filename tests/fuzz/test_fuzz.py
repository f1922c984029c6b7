"""Every fuzz target over a few hundred inputs, the same each time; `make fuzz` runs them for long.

What the targets check is in their modules. Here also: that the seeds are what their oracles understand, so that there
is something to compare, and that a run notices what it is there for.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from random import Random

import pytest

from forebay_codecs.compression import GZIP, LZ4, SNAPPY, ZSTD, TooLarge, decompress
from tests.codecs.kio_oracle import message
from tests.fuzz import target as fuzz
from tests.fuzz.batches import LIMIT
from tests.fuzz.corpus import VERSIONS, produce_requests, response_class, responses
from tests.fuzz.mutation import mutated
from tests.fuzz.oracle import UNPACKERS
from tests.fuzz.registry import targets
from tests.fuzz.schema import read
from tests.fuzz.target import Target

SEED = 7
COUNTS = {"batch": 1500, "client": 80, "broker": 80}
OTHERS = 400

NAMES = sorted(targets())


@pytest.mark.parametrize("name", NAMES)
def test_does_no_harm(name: str) -> None:
    tally = fuzz.run(targets()[name], SEED, COUNTS.get(name, OTHERS))
    assert not tally.findings, f"{tally.findings[0]}\n{tally.findings[0].why}"
    assert tally.inputs == COUNTS.get(name, OTHERS)
    assert tally.accepted > tally.inputs // 20, "hardly a mutant gets past the first fields"


@pytest.mark.parametrize("name", VERSIONS)
def test_the_oracle_reads_every_response_that_mutants_are_made_of(name: str) -> None:
    for data in responses(name):
        assert read(response_class(name, data[0]), data[1:]) is not None


def test_and_every_request() -> None:
    for frame in produce_requests():
        assert read(message("produce", frame[3], "ProduceRequest"), frame) is not None


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_there_are_bombs(codec: int) -> None:
    name = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}[codec]
    bombs = [data for data in targets()[f"compression-{name}"].seeds if len(data) < LIMIT // 4]
    assert any(len(UNPACKERS[codec](data)) > LIMIT for data in bombs if _reads(codec, data))


def _reads(codec: int, data: bytes) -> bool:
    try:
        decompress(codec, data, LIMIT)
    except TooLarge:
        return True
    except ValueError:
        return False
    return True


# The runner


def test_the_same_seed_feeds_the_same_inputs() -> None:
    fed: list[list[bytes]] = []
    for _ in range(2):
        seen: list[bytes] = []
        fed.append(seen)

        def check(data: bytes, seen: list[bytes] = seen) -> bool:
            seen.append(data)
            return True

        fuzz.run(Target("t", [b"seed" * 9], check, mutated), SEED, 50)
    assert fed[0] == fed[1]
    assert len(set(fed[0])) > 40


def test_what_is_raised_is_a_finding_with_its_input() -> None:
    def check(data: bytes) -> bool:
        if b"!" in data:
            raise KeyError("planted")
        return True

    tally = fuzz.run(Target("t", [b"a", b"b!", b"c"], check, mutated), SEED, 50)
    assert [(finding.target, finding.data) for finding in tally.findings] == [("t", b"b!")]
    assert "planted" in tally.findings[0].why


def computes(_data: bytes) -> bool:
    while True:
        time.perf_counter()


def waits(_data: bytes) -> bool:
    while True:
        signal.pause()


@pytest.mark.parametrize(
    ("bound", "check", "why"),
    [("CPU_SECONDS_AN_INPUT", computes, "0.05 s of CPU"), ("SECONDS_AN_INPUT", waits, "0.05 s")],
)
def test_what_takes_too_long_is_one(
    monkeypatch: pytest.MonkeyPatch, bound: str, check: Callable[[bytes], bool], why: str
) -> None:
    monkeypatch.setattr(fuzz, bound, 0.05)
    tally = fuzz.run(Target("t", [b"a"], check, mutated), SEED, 1)
    assert tally.findings[0].why.endswith(f"Hang: more than {why}\n")


def test_what_takes_too_much_memory_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "peak", lambda: 1 << 20)
    monkeypatch.setattr(fuzz, "grown", lambda since: fuzz.MEMORY + 1)
    tally = fuzz.run(Target("t", [b"a"], lambda data: True, mutated), SEED, 1)
    assert "MemoryError" in tally.findings[0].why


def test_mutants_differ_and_stay_small() -> None:
    rng = Random(SEED)
    data = bytes(range(100))
    made = [mutated(data, rng) for _ in range(200)]
    assert len(set(made)) > 190
    assert max(map(len, made)) < 2000
