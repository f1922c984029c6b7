"""Finds copies of what clients sent among the records that no part claims.

In: what is at each offset (claims.match), the ledger's parts, the ranges. Out: runs of unclaimed records whose content
is that of a part of the same topic, and what that means.

Plan: a part's content is identified by the CRC and the XXH64 of its first record, its number of records and its CRC. An
unclaimed record with the CRC and the XXH64 of a first record may begin a copy; older ledgers have only the CRC. Each
partition's unclaimed records are scanned in the order of their offsets and compared with the parts that begin so. A
record belongs to one copy at most; of several ways to assign them, the one that explains the most records is chosen.

What a copy means depends on what became of the part. If it was acknowledged elsewhere, its records are there twice. If
it was only ever answered with an error, they are there although the client could not know: `unconfirmed`. Unless each
of its records is at a claimed offset as well: then the client sent them again in other batches, and they are there
twice.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from forebay_pipeline.audit.claims import as_findings
from forebay_pipeline.audit.ledger import ACKNOWLEDGED, UNACKNOWLEDGED

MAX_VARIANTS: Final = 100
"""Parts that begin with the same record and are compared; the longest ones. There are more only if clients send the
same record again and again: then `uncompared` counts what may be a copy of another one."""

MAX_OVERLAPPING: Final = 10_000
"""Overlapping copies among which `choose` chooses at once; there are more only of such records, too."""

RETRIED: Final = "retried by the client"
UNEXPLAINED: Final = "unexplained"

_CONTENT: Final = ["topic", "records", "crc", "first_xxh64"]
_BEGINNING: Final = ["topic", "first_crc", "first_xxh64"]
_UNKNOWN: Final = 0
"""The XXH64 of a part in whose ledger it does not stand."""
_SENDER: Final = ("time_us", "process", "connection", "number", "client_id", "principal")
_ORIGIN: Final = (*_SENDER, "partition", "base_offset")


def unclaimed(matched: DataFrame, ranges: DataFrame) -> DataFrame:
    """The records that no part claims.

    Columns: topic, place, offset, crc, xxh64, and `fresh`, whether no earlier audit has seen it.
    """
    placed = matched.where(F.col("claimed").isNull()).join(F.broadcast(ranges), "place").where("offset < read_end")
    return placed.select(
        "topic", "place", "offset", "crc", "xxh64", (F.col("offset") >= F.col("settled")).alias("fresh")
    )


def find(unclaimed: DataFrame, parts: DataFrame) -> DataFrame:
    """The copies: place, the offset of the first record, and what _CONTENT says of the content."""
    refused = (F.col("unacknowledged") > 0).alias("refused")
    variant = F.struct("records", F.col("crc").alias("whole"), refused, "first_xxh64")
    longest = Window.partitionBy(*_BEGINNING).orderBy(F.desc("records"), F.desc("crc"))
    beginnings = (
        _contents(parts)
        .withColumn("nth", F.row_number().over(longest))
        .where(F.col("nth") <= MAX_VARIANTS)
        .groupBy("topic", F.col("first_crc").alias("crc"))
        .agg(F.sort_array(F.collect_list(variant), asc=False).alias("variants"))
    )

    def begins_so(variant: Column) -> Column:
        return variant["first_xxh64"].isin(_UNKNOWN, F.col("xxh64"))

    known = unclaimed.join(beginnings, ["topic", "crc"], "left").withColumn(
        "variants", F.slice(F.filter("variants", begins_so), 1, MAX_VARIANTS)
    )
    # In most partitions no copy may begin, as in one that a producer fills past the proxy: a task each, for nothing.
    places = known.where(F.size("variants") > 0).select("place").distinct()
    in_order = (
        known.join(F.broadcast(places), "place", "left_semi")
        .select("topic", "place", "offset", "crc", "variants")
        .repartition("place")
        .sortWithinPartitions("place", "offset")
    )
    return in_order.mapInArrow(_search, from_arrow_schema(_FOUND))


def uncompared(unclaimed: DataFrame, parts: DataFrame) -> int:
    """How many records that no earlier audit has seen may begin copies that `find` does not find, since more parts than
    MAX_VARIANTS begin so."""
    many = _contents(parts).groupBy(*_BEGINNING).count().where(F.col("count") > MAX_VARIANTS)
    begins_so = F.col("first_xxh64").isin(_UNKNOWN, F.col("xxh64"))
    with_many = unclaimed.where("fresh").join(many.withColumnRenamed("first_crc", "crc"), ["topic", "crc"])
    return with_many.where(begins_so).select("place", "offset").distinct().count()


def judge(found: DataFrame, parts: DataFrame, matched: DataFrame, ranges: DataFrame) -> DataFrame:
    """The copies, and what they mean.

    Columns: topic, partition, offset, records; `duplicated`, or else unconfirmed; `fresh_records`, how many no earlier
    audit has seen; `told`, the note for people; and the request that first sent the content (_SENDER).
    """
    places = F.broadcast(ranges.select("place", F.col("partition").alias("found_in"), "settled"))
    fresh = F.col("offset") >= F.col("settled")
    known = found.join(places, "place").join(_contents(parts), _CONTENT).where(fresh | F.col("checked"))
    acknowledged = F.col("acknowledged") > 0
    only_refused = known.where(~acknowledged)
    if only_refused.isEmpty():
        known = known.withColumn("again", F.lit(0))
    else:
        known = known.join(_sent_again(only_refused, matched, ranges), ["place", "offset"], "left")
    cause = F.when(acknowledged & (F.col("unacknowledged") == 0), UNEXPLAINED).otherwise(RETRIED)
    claimed = F.concat(
        F.lit("also at offset "), F.col("origin.base_offset"), F.lit(" of partition "), F.col("origin.partition")
    )
    return known.select(
        "topic",
        F.col("found_in").alias("partition"),
        *(F.col(f"origin.{name}") for name in _SENDER),
        "offset",
        "records",
        (acknowledged | (F.coalesce("again", F.lit(0)) == F.col("records"))).alias("duplicated"),
        F.when(fresh, F.col("records")).otherwise(0).alias("fresh_records"),
        F.concat(F.when(acknowledged, claimed).otherwise("also in other batches"), F.lit(", "), cause).alias("told"),
    )


def duplicated(judged: DataFrame) -> DataFrame:
    """Findings: the copies that are duplicates."""
    first, records = F.col("offset"), F.col("records")
    return as_findings(judged.where("duplicated"), first, first + records - 1, records, F.col("told"))


def _contents(parts: DataFrame) -> DataFrame:
    """Each content that was sent to a topic, once: how often it was acknowledged and refused, and who sent it first."""
    acknowledged, unacknowledged = F.col("fate") == ACKNOWLEDGED, F.col("fate") == UNACKNOWLEDGED
    known = parts.where(F.col("crc").isNotNull() & (F.col("records") > 0) & (acknowledged | unacknowledged))
    first = F.coalesce("first_xxh64", F.lit(_UNKNOWN)).alias("first_xxh64")
    return (
        known.withColumn("first_xxh64", first)
        .groupBy(*_CONTENT)
        .agg(
            F.min("first_crc").alias("first_crc"),
            F.bool_or("checked").alias("checked"),
            F.count_if(acknowledged).alias("acknowledged"),
            F.count_if(unacknowledged).alias("unacknowledged"),
            F.min(F.struct(unacknowledged.alias("unacknowledged"), *_ORIGIN)).alias("origin"),
        )
    )


def _sent_again(copies: DataFrame, matched: DataFrame, ranges: DataFrame) -> DataFrame:
    """How many records of each copy (place, offset) are at claimed offsets of their topic as well: `again`."""
    ends = F.col("offset") + F.col("records") - 1
    content = ["crc", "xxh64"]
    opened = copies.select(
        "topic", "place", F.col("offset").alias("begin"), F.explode(F.sequence(F.col("offset"), ends)).alias("offset")
    )
    mine = opened.join(matched.where(F.col("claimed").isNull()), ["place", "offset"]).select(
        "topic", "place", "begin", *content
    )
    claimed = matched.where(F.col("claimed") & F.col("crc").isNotNull()).join(F.broadcast(ranges), "place")
    contents = claimed.select("topic", *content).join(
        mine.select("topic", *content).distinct(), ["topic", *content], "left_semi"
    )
    again = mine.join(contents, ["topic", *content], "left_semi")
    return again.groupBy("place", F.col("begin").alias("offset")).agg(F.count("*").alias("again"))


# --- the search, in Python ---------------------------------------------------------------------------------------

Variants = Sequence[tuple[int, int, bool, int]]
"""(records, crc, refused, first_xxh64) of the parts that begin with one record, the longest first."""


class Copy(NamedTuple):
    """Consecutive unclaimed records with the content of a part."""

    offset: int
    records: int
    crc: int
    refused: bool = False
    """A client that sent this content received an error."""
    first_xxh64: int = _UNKNOWN

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


def _search(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Unclaimed records in the order of place and offset → copies among them, in _FOUND."""
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
        yield pa.RecordBatch.from_pylist(found, schema=_FOUND)
    yield pa.RecordBatch.from_pylist(_rows(topic, run, run.close()), schema=_FOUND)


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


_FOUND: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("place", pa.int32()),
        ("offset", pa.int64()),
        ("records", pa.int64()),
        ("crc", pa.int64()),
        ("first_xxh64", pa.int64()),
    ]
)
