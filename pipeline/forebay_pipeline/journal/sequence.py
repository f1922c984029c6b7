"""Which of the journal's rows are there, told by their numbers (`seq`): exact, and small however many rows there are.

In: rows of all kinds. Out: the numbers that were seen, as Numbers on the driver.

Plan: Spark marks each number in a bitmap of its bucket of 32,768, before anything is shuffled; so ten million rows are
1.3 MB. A bucket of which every number is there is told as such, without its bitmap.

    numbers 1 2 3 5 6 7 40000    seen (1, 3), (5, 7), (40000, 40000)    of 1 … 7 is missing (4, 4)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

Numbers = list[tuple[int, int]]
"""Ranges of numbers in their order, both ends inclusive, none of which touches the next."""

BUCKET: Final = 32_768


def bucket(number: Column) -> Column:
    """The bucket of a number, which is what to group by beside process and kind: 1 … 32768 are in bucket 1."""
    return F.bitmap_bucket_number(number)


def bitmap(number: Column) -> Column:
    """Aggregates the numbers of one bucket; null ones are left out."""
    return F.bitmap_construct_agg(F.bitmap_bit_position(number))


def short(bitmap: Column) -> Column:
    """What `numbers` takes: null for a bucket of which all is there."""
    return F.when(F.bitmap_count(bitmap) < BUCKET, bitmap)


def numbers(bucket: int, bitmap: bytes | None) -> Numbers:
    """The numbers in a bucket's `short` bitmap."""
    first = (bucket - 1) * BUCKET + 1
    if bitmap is None:
        return [(first, first + BUCKET - 1)]
    bits = int.from_bytes(bitmap, "little")
    found: Numbers = []
    while bits:
        skipped = (bits & -bits).bit_length() - 1
        bits >>= skipped
        length = (~bits & (bits + 1)).bit_length() - 1
        bits >>= length
        first += skipped
        found.append((first, first + length - 1))
        first += length
    return found


def union(ranges: Iterable[tuple[int, int]]) -> Numbers:
    """All numbers that are in any of the ranges."""
    joined: Numbers = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return joined


def missing(first: int, last: int, seen: Sequence[tuple[int, int]]) -> Numbers:
    """Those of `first` … `last` that are not among `seen`."""
    found: Numbers = []
    for begin, end in seen:
        if begin > last:
            break
        if begin > first:
            found.append((first, begin - 1))
        first = max(first, end + 1)
    if first <= last:
        found.append((first, last))
    return found


def count(ranges: Iterable[tuple[int, int]]) -> int:
    """How many numbers they hold."""
    return sum(last - first + 1 for first, last in ranges)
