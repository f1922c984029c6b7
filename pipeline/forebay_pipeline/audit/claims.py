"""Checks that records are where the ledger says, unaltered and in order.

In: the ledger's parts (ledger.parts), the ranges (RANGE_COLUMNS), the topics' records in them (RECORD_COLUMNS). Out:
claims, what is at each claimed offset, a verdict on each claim, and findings as DataFrames with FINDING_COLUMNS.

The join: each claim is exploded into its offsets, which join the records by place and offset. That is linear in both,
whatever the sizes of the claims, and spreads one hot partition over all tasks, because the offset is part of the key. A
range join would compare each record of a partition with each of its claims.

Sizes: from here on a record is 44 bytes (place, offset, CRC, XXH64, part and its base offset); its key and value go no
further.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from forebay_pipeline.audit.ledger import ACKNOWLEDGED
from forebay_pipeline.audit.result import Finding

FINDING_COLUMNS: Final = [name for name in Finding.__struct_fields__ if name != "kind"]

_NULL: Final = "FFFFFFFF"


PART: Final = ["place", "base_offset", "part"]
"""What is one part: with a thousand million of them, two would share the 64 bits of `part` by themselves."""


def record_crc() -> Column:
    """The CRC-32 of a record's `key` and `value`, as journal_rows.LedgerPart defines it."""
    return F.crc32(_content())


def record_xxh64() -> Column:
    """The XXH64 of the same bytes."""
    return F.xxhash64(_content())


def _content() -> Column:
    return F.concat(*(piece for name in ("key", "value") for piece in _framed(F.col(name))))


def _framed(field: Column) -> tuple[Column, Column]:
    size = F.lpad(F.hex(F.octet_length(field)), 8, "0")
    return F.unhex(F.coalesce(size, F.lit(_NULL))), F.coalesce(field, F.unhex(F.lit("")))


def part_crc(records: Column) -> Column:
    """A part's CRC-32, as journal_rows.LedgerPart defines it, from an array of structs (offset, crc) in any order."""
    in_order = F.transform(F.sort_array(records), lambda record: F.lpad(F.hex(record["crc"]), 8, "0"))
    return F.crc32(F.unhex(F.array_join(in_order, "")))


def content(records: DataFrame, ranges: DataFrame) -> DataFrame:
    """The records within the ranges: place, offset, crc, xxh64, and in compacted topics the XXH64 of their `key`."""
    inside = records.join(F.broadcast(ranges), ["topic", "partition"]).where(
        (F.col("offset") >= F.col("read_first")) & (F.col("offset") < F.greatest("read_end", "keys_end"))
    )
    key = F.when(F.col("compacted") & F.col("key").isNotNull(), F.xxhash64("key"))
    return inside.select("place", "offset", record_crc().alias("crc"), record_xxh64().alias("xxh64"), key.alias("key"))


def claims(parts: DataFrame, ranges: DataFrame) -> DataFrame:
    """The acknowledged parts with their ranges' columns, and how many of their records can still be in the topic.

    Columns added: `former`, whether the topic has another id now than in the ledger; `expired` and `cut`, records
    before the start and after the end of the log; [inside_first, inside_end), the offsets in between. Of 100 … 109 in a
    log of 103 … 107: 3 expired, 2 cut, 103 … 107 inside.
    """
    base, end, records, gone = F.col("base_offset"), F.col("end_offset"), F.col("records"), F.col("gone")

    def at_most_all(count: Column) -> Column:
        return F.when(gone, 0).otherwise(F.least(F.greatest(count, F.lit(0)), records))

    acknowledged = parts.where((F.col("fate") == ACKNOWLEDGED) & (records > 0))
    return acknowledged.join(F.broadcast(ranges), ["topic", "partition"]).withColumns(
        {
            "former": is_former(),
            "expired": at_most_all(F.col("earliest") - base),
            "cut": at_most_all(end - F.col("latest")),
            "inside_first": F.greatest(base, F.col("read_first")),
            "inside_end": F.least(end, F.col("read_end")),
        }
    )


def is_former() -> Column:
    """Whether a part (`topic_id`) was sent to another topic of that name than there is now (`topic_id_now`)."""
    then, now = F.col("topic_id"), F.col("topic_id_now")
    return (then != "") & (now != "") & (then != now)


def match(content: DataFrame, claims: DataFrame) -> DataFrame:
    """A row for each claim of an offset, and for each unclaimed record.

    Columns: place, offset, crc, xxh64 and key (null without a record), claimed (true, or null for an unclaimed record),
    and base_offset and part (null unless the claim is to be checked).
    """
    claimed = claims.where("inside_first < inside_end").select(
        "place",
        F.explode(_offsets()).alias("offset"),
        *(F.when(F.col("checked"), F.col(name)).alias(name) for name in ("base_offset", "part")),
        F.expr("true").alias("claimed"),
    )
    return content.join(claimed, ["place", "offset"], "full_outer")


def _offsets() -> Column:
    return F.sequence(F.col("inside_first"), F.col("inside_end") - 1)


def _replaced(claims: DataFrame) -> DataFrame:
    """The parts (PART) of a former topic that claim an offset which is claimed in the present one, too: `replaced`."""
    inside = claims.where("inside_first < inside_end")
    former = inside.where("former AND checked")
    now = inside.where("NOT former").join(F.broadcast(former.select("place").distinct()), "place", "left_semi")
    taken = now.select("place", F.explode(_offsets()).alias("offset"))
    opened = former.select(*PART, F.explode(_offsets()).alias("offset"))
    found = opened.join(taken, ["place", "offset"], "left_semi").select(*PART).distinct()
    return found.withColumn("replaced", F.expr("true"))


def verdicts(claims: DataFrame, matched: DataFrame, lost: DataFrame) -> DataFrame:
    """The claims to be checked, each with its number of records that are present, missing and so on.

    The columns are named as in result.Counts, but for `compacted_away`: `compacted` is the topic's policy. `lost` is
    what compaction does not explain (compaction.lost).
    """
    absent = F.when(F.col("crc").isNull(), F.col("offset"))
    seen = (
        matched.where(F.col("part").isNotNull())
        .repartition(*PART)
        .groupBy(*PART)
        .agg(
            F.count("crc").alias("found"),
            F.min(absent).alias("first_absent"),
            F.max(absent).alias("last_absent"),
            part_crc(F.collect_list(F.struct("offset", "crc"))).alias("crc_found"),
            F.min_by("xxh64", "offset").alias("xxh64_found"),
        )
    )
    judged = claims.where("checked")
    for found in (seen, lost, _replaced(claims)):
        judged = judged.join(found, PART, "left")
    records, present = F.col("records"), F.coalesce("found", F.lit(0))
    inside = F.greatest(F.col("inside_end") - F.col("inside_first"), F.lit(0))
    no_more, cut = inside - present, F.col("cut")
    # Older ledgers have no XXH64.
    is_first = F.col("inside_first") == F.col("base_offset")
    differs = F.coalesce(is_first & (F.col("first_xxh64") != F.col("xxh64_found")), F.expr("false"))
    other = differs | ((present == records) & (F.col("crc") != F.col("crc_found")))
    compacted, has_keys, lost_keys = F.col("compacted"), F.col("keys").isNotNull(), F.coalesce("lost", F.lit(0))
    # The id in the ledger may be a moment old: what is there as it was sent, and is nobody else's, is there.
    elsewhere = (present < records) | F.coalesce(other, F.expr("false")) | F.col("replaced").isNotNull()
    gone = F.col("gone") | (F.col("former") & elsewhere)

    def unless_gone(count: Column) -> Column:
        return F.when(gone, 0).otherwise(count)

    return judged.withColumns(
        {
            "present": unless_gone(present),
            "expired": unless_gone(F.col("expired")),
            "missing": unless_gone(cut + F.when(compacted, lost_keys).otherwise(no_more)),
            "compacted_away": unless_gone(F.when(compacted & has_keys, no_more - lost_keys).otherwise(0)),
            "not_judged": unless_gone(F.when(compacted & ~has_keys, no_more).otherwise(0)),
            "topic_gone": F.when(gone, records).otherwise(0),
            "altered": unless_gone(F.when(other, records).otherwise(0)),
        }
    )


def missing(judged: DataFrame) -> DataFrame:
    """Findings: claims with records that are not in their topic, though it should still have them."""
    cut, end = F.col("cut") > 0, F.col("end_offset")
    compacted = F.col("compacted")
    first, last = (
        F.when(compacted, F.col(f"{edge}_lost")).otherwise(F.col(f"{edge}_absent")) for edge in ("first", "last")
    )
    there = F.when(compacted, "no later record has the key").otherwise("later offsets exist")
    return as_findings(
        judged.where("missing > 0"),
        first=F.least(first, F.when(cut, end - F.col("cut"))),
        last=F.when(cut, end - 1).otherwise(last),
        records=F.col("missing"),
        note=F.when(cut, F.concat(F.lit("the log ends at "), F.col("latest"))).otherwise(there),
    )


def topic_gone(judged: DataFrame) -> DataFrame:
    """Findings: claims in topics that no longer exist, or in one that was deleted and created again."""
    again = F.when(F.col("gone"), "the topic no longer exists").otherwise("the topic was deleted and created again")
    return _whole(judged.where("topic_gone > 0"), again)


def altered(judged: DataFrame) -> DataFrame:
    """Findings: claims whose records are all present, or the first, but not with the content that was received."""
    differ = F.lit("keys, values or their order differ from what was received")
    return _whole(judged.where("altered > 0"), differ)


def _whole(judged: DataFrame, note: Column) -> DataFrame:
    return as_findings(judged, F.col("base_offset"), F.col("end_offset") - 1, F.col("records"), note)


def overlapping(claims: DataFrame) -> DataFrame:
    """Findings: claims that begin before an earlier one ends, if one of the two is to be checked."""
    before = (
        Window.partitionBy("place", "former").orderBy("base_offset", "part").rowsBetween(Window.unboundedPreceding, -1)
    )
    base, end, reached, checked = F.col("base_offset"), F.col("end_offset"), F.col("reached"), F.col("checked")
    twice = claims.withColumns(
        {
            "reached": F.max(end).over(before),
            "reached_checked": F.max(F.when(checked, end)).over(before),
        }
    ).where((checked & (base < reached)) | (base < F.col("reached_checked")))
    last = F.least(end, reached) - 1
    return as_findings(twice, base, last, last - base + 1, F.lit("also claimed by an earlier part"))


def out_of_order(parts: DataFrame) -> DataFrame:
    """Findings: parts that stayed in the client's partition, but precede what their connection had sent earlier.

    Requests 1, 2, 3 at offsets 10, 30, 20: the third. The order is that of requests on a connection; a retry of a
    request that failed is a later request.
    """
    kept = parts.where(
        (F.col("fate") == ACKNOWLEDGED)
        & F.col("crc").isNotNull()
        & ~F.col("movable")
        & (F.col("partition") == F.col("client_partition"))
    )
    earlier = (
        Window.partitionBy("process", "connection", "topic", "topic_id", "partition")
        .orderBy("number", "base_offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    behind = kept.withColumn("highest", F.max("base_offset").over(earlier)).where(
        F.col("checked") & (F.col("base_offset") < F.col("highest"))
    )
    note = F.concat(F.lit("sent after the records at "), F.col("highest"))
    return as_findings(behind, F.col("base_offset"), F.col("end_offset") - 1, F.col("records"), note)


def as_findings(found: DataFrame, first: Column, last: Column, records: Column, note: Column) -> DataFrame:
    """FINDING_COLUMNS of each row: offsets `first` to `last`, both inclusive, and of how many records."""
    return found.withColumns({"first_offset": first, "last_offset": last, "of_records": records, "note": note}).select(
        *(F.col("of_records").alias(name) if name == "records" else F.col(name) for name in FINDING_COLUMNS)
    )
