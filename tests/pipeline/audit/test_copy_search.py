"""The search for copies among records that nobody claims, beside one that remembers everything."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

import pytest

from forebay_pipeline.audit import copy_search
from forebay_pipeline.audit.copy_search import Copy, Run, Variants


def crc_of(crcs: Sequence[int]) -> int:
    return zlib.crc32(b"".join(crc.to_bytes(4, "big") for crc in crcs))


def variants_of(parts: Sequence[Sequence[int]]) -> dict[int, Variants]:
    """By first record, the longest first."""
    found: dict[int, list[tuple[int, int, bool, int]]] = {}
    for part in sorted(parts, key=len, reverse=True):
        found.setdefault(part[0], []).append((len(part), crc_of(part), False, 0))
    return dict(found)


def searched(records: Sequence[int], parts: Sequence[Sequence[int]]) -> list[Copy]:
    run, variants = Run(0, 100), variants_of(parts)
    copies = [copy for crc in records for copy in run.add(crc, variants.get(crc))]
    return copies + run.close()


def remembered(records: Sequence[int], parts: Sequence[Sequence[int]], at: int = 0) -> int:
    """How many records copies can explain at most: every way is tried."""
    if at >= len(records):
        return 0
    fitting = [len(part) for part in parts if list(records[at : at + len(part)]) == list(part)]
    return max(
        remembered(records, parts, at + 1), *(size + remembered(records, parts, at + size) for size in fitting), 0
    )


@pytest.mark.parametrize("seed", range(300))
def test_it_explains_what_trying_everything_explains(seed: int) -> None:
    rng = random.Random(seed)
    parts = [[rng.randrange(4) for _ in range(rng.randint(1, 4))] for _ in range(rng.randint(1, 4))]
    records = [rng.randrange(4) for _ in range(rng.randint(0, 6))]
    for _ in range(rng.randint(0, 3)):
        records += rng.choice(parts)
    copies = searched(records, parts)
    assert sum(copy.records for copy in copies) == remembered(records, parts)
    check(copies, records, parts)


@pytest.mark.parametrize("seed", range(50))
def test_where_too_many_overlap_a_record_still_belongs_to_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_search, "MAX_OVERLAPPING", 3)
    rng = random.Random(seed)
    parts = [[1] * rng.randint(1, 5) for _ in range(3)]
    records = [1] * 30
    check(searched(records, parts), records, parts)


def check(copies: Sequence[Copy], records: Sequence[int], parts: Sequence[Sequence[int]]) -> None:
    """They are what they are said to be, one after the other."""
    end = 100
    for copy in copies:
        assert copy.offset >= end
        end = copy.end
        content = records[copy.offset - 100 : end - 100]
        assert content in parts
        assert (copy.records, copy.crc) == (len(content), crc_of(content))


def test_the_longest_is_not_always_the_one() -> None:
    """As where librdkafka sent a and b c, was told nothing of either, and sent a b and c d."""
    found = searched([1, 2, 3], [[1], [2, 3], [1, 2], [3, 4]])
    assert found == [Copy(100, 1, crc_of([1])), Copy(101, 2, crc_of([2, 3]))]


def test_a_copy_is_told_when_the_next_one_may_begin() -> None:
    run, variants = Run(0, 7), variants_of([[1, 2, 3]])
    told = [run.add(crc, variants.get(crc)) for crc in (1, 2, 3, 4, 1, 2, 3)]
    assert told == [[], [], [], [], [], [], [Copy(7, 3, crc_of([1, 2, 3]))]]
    assert run.close() == [Copy(11, 3, crc_of([1, 2, 3]))]


def test_a_copy_that_is_cut_short_is_none() -> None:
    assert searched([1, 2], [[1, 2, 3]]) == []


def test_refused_parts_are_the_likelier_ones() -> None:
    """1 and 2 were refused, and are there; 1 2 was acknowledged elsewhere."""
    whole, one, two = crc_of([1, 2]), crc_of([1]), crc_of([2])
    run = Run(0, 0)
    told = run.add(1, [(2, whole, False, 0), (1, one, True, 0)]) + run.add(2, [(1, two, True, 0)])
    assert told + run.close() == [Copy(0, 1, one, refused=True), Copy(1, 1, two, refused=True)]
