"""Searches runs of unclaimed records for the contents of parts: pure Python, in Spark's tasks.

In: a partition's records in the order of their offsets, each with its CRC and the parts that begin so. Out: copies. A
record belongs to one copy at most; of several ways to assign them, the one that explains the most records is chosen.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

MAX_OVERLAPPING: Final = 10_000
"""Overlapping copies among which `choose` chooses at once; there are more only where clients send the same record again
and again."""

UNKNOWN: Final = 0
"""The XXH64 of a part in whose ledger it does not stand."""

FOUND: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("place", pa.int32()),
        ("offset", pa.int64()),
        ("records", pa.int64()),
        ("crc", pa.int64()),
        ("first_xxh64", pa.int64()),
    ]
)
"""What is told of each copy."""

Variants = Sequence[tuple[int, int, bool, int]]
"""(records, crc, refused, first_xxh64) of the parts that begin with one record, the longest first."""


class Copy(NamedTuple):
    """Consecutive unclaimed records with the content of a part."""

    offset: int
    records: int
    crc: int
    refused: bool = False
    """A client that sent this content received an error."""
    first_xxh64: int = UNKNOWN

    @property
    def end(self) -> int:
        """The offset after its last record."""
        return self.offset + self.records


class Run:
    """Finds copies among records at consecutive offsets, and reports each as soon as no later record can change it.

    Memory: the CRCs from the first undecided beginning on, at most as many as the longest part has records; and copies
    that overlap one another, at most MAX_OVERLAPPING and those of one beginning.
    """

    def __init__(self, place: int, offset: int) -> None:
        self.place = place
        self.next = offset
        self._crcs = bytearray()
        self._beginnings: deque[tuple[int, Variants]] = deque()
        self._overlapping: list[Copy] = []
        self._reached = offset
        """Where the overlapping copies end."""
        self._free = offset
        """Records before this offset belong to a copy that was reported."""

    def add(self, crc: int, variants: Variants | None) -> list[Copy]:
        """Take the record at the next offset, and the parts that begin with it; the copies decided now."""
        if variants:
            self._beginnings.append((self.next, variants))
        if self._beginnings:
            self._crcs += crc.to_bytes(4, "big")
        self.next += 1
        return self._decided(whole=False) if self._beginnings else []

    def close(self) -> list[Copy]:
        """End the run; the remaining copies."""
        return self._decided(whole=True) + self._told()

    def _decided(self, *, whole: bool) -> list[Copy]:
        told: list[Copy] = []
        while self._beginnings:
            begin, variants = self._beginnings[0]
            longest = variants[0][0]
            if not whole and self.next - begin < longest:
                break
            self._beginnings.popleft()
            if begin >= self._reached or len(self._overlapping) >= MAX_OVERLAPPING:
                told += self._told()
            for copy in self._copies(begin, variants) if begin >= self._free else ():
                self._overlapping.append(copy)
                self._reached = max(self._reached, copy.end)
            following = self._beginnings[0][0] if self._beginnings else self.next
            del self._crcs[: 4 * (following - begin)]
        return told

    def _copies(self, begin: int, variants: Variants) -> Iterator[Copy]:
        found, reached, crc = [], 0, 0
        for records, whole, refused, first_xxh64 in reversed(variants):
            if records > self.next - begin:
                break
            crc = zlib.crc32(self._crcs[4 * reached : 4 * records], crc)
            reached = records
            if crc == whole:
                found.append(Copy(begin, records, crc, refused, first_xxh64))
        return reversed(found)

    def _told(self) -> list[Copy]:
        told, self._overlapping = choose(self._overlapping), []
        if told:
            self._free = told[-1].end
        return told


def choose(copies: Sequence[Copy]) -> list[Copy]:
    """The copies that do not overlap and together have the most records; on a tie, the most records of refused parts.

    Records a b c, and parts a, a b and b c: a and b c, although a b is longer than a. Records a b, parts a and b that
    were refused, and a b that was acknowledged later: a and b, because that is how the records got here.
    """
    if len(copies) < 2:
        return list(copies)
    by_beginning: dict[int, list[Copy]] = {}
    for copy in copies:
        by_beginning.setdefault(copy.offset, []).append(copy)
    end = max(copy.end for copy in copies)
    first = min(by_beginning)
    best = [(0, 0)] * (end - first + 1)
    """(records, records of refused parts) of the best choice from each offset on."""
    chosen: dict[int, Copy] = {}
    for offset in range(end - 1, first - 1, -1):
        best[offset - first] = best[offset - first + 1]
        for copy in by_beginning.get(offset, ()):
            records, refused = best[copy.end - first]
            with_it = records + copy.records, refused + copy.records * copy.refused
            if with_it > best[offset - first]:
                best[offset - first], chosen[offset] = with_it, copy
    told, offset = [], first
    while offset < end:
        if offset in chosen:
            told.append(chosen[offset])
            offset = chosen[offset].end
        else:
            offset += 1
    return told


def search(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Unclaimed records in the order of place and offset → copies among them, in FOUND."""
    run = Run(-1, 0)
    topic = ""
    for batch in batches:
        found: list[dict[str, object]] = []
        columns = (batch[name].to_pylist() for name in ("topic", "place", "offset", "crc", "variants"))
        for now, place, offset, crc, variants in zip(*columns, strict=True):
            if (place, offset) != (run.place, run.next):
                found += _rows(topic, run, run.close())
                run, topic = Run(place, offset), now
            known = [_variant(each) for each in variants] if variants else None
            found += _rows(topic, run, run.add(crc, known))
        yield pa.RecordBatch.from_pylist(found, schema=FOUND)
    yield pa.RecordBatch.from_pylist(_rows(topic, run, run.close()), schema=FOUND)


def _variant(each: Mapping[str, int]) -> tuple[int, int, bool, int]:
    return each["records"], each["whole"], bool(each["refused"]), each["first_xxh64"]


def _rows(topic: str, run: Run, copies: list[Copy]) -> list[dict[str, object]]:
    return [
        {
            "topic": topic,
            "place": run.place,
            "offset": copy.offset,
            "records": copy.records,
            "crc": copy.crc,
            "first_xxh64": copy.first_xxh64,
        }
        for copy in copies
    ]
