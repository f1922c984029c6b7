"""Finds copies of what clients sent among the records that no part claims.

In: what is at each offset (claims.match), the ledger's parts, the ranges. Out: runs of unclaimed records whose content
is that of a part of the same topic, and what that means.

Plan: a part's content is identified by the CRC and the XXH64 of its first record, its number of records and its CRC. An
unclaimed record with the CRC and the XXH64 of a first record may begin a copy; older ledgers have only the CRC. Each
partition's unclaimed records are scanned in the order of their offsets and compared with the parts that begin so
(copy_search.py).

What a copy means depends on what became of the part. If it was acknowledged elsewhere, its records are there twice. If
it was only ever answered with an error, they are there although the client could not know: `unconfirmed`. Unless each
of its records is at a claimed offset as well: then the client sent them again in other batches, and they are there
twice.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from forebay_pipeline.audit.claims import as_findings
from forebay_pipeline.audit.copy_search import FOUND, UNKNOWN, search
from forebay_pipeline.audit.ledger import ACKNOWLEDGED, UNACKNOWLEDGED

MAX_VARIANTS: Final = 100
"""Parts that begin with the same record and are compared; the longest ones. There are more only if clients send the
same record again and again: then `uncompared` counts what may be a copy of another one."""

RETRIED: Final = "retried by the client"
UNEXPLAINED: Final = "unexplained"

_CONTENT: Final = ["topic", "records", "crc", "first_xxh64"]
_BEGINNING: Final = ["topic", "first_crc", "first_xxh64"]
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
        return variant["first_xxh64"].isin(UNKNOWN, F.col("xxh64"))

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
    return in_order.mapInArrow(search, from_arrow_schema(FOUND))


def uncompared(unclaimed: DataFrame, parts: DataFrame) -> int:
    """How many records that no earlier audit has seen may begin copies that `find` does not find, since more parts than
    MAX_VARIANTS begin so."""
    many = _contents(parts).groupBy(*_BEGINNING).count().where(F.col("count") > MAX_VARIANTS)
    begins_so = F.col("first_xxh64").isin(UNKNOWN, F.col("xxh64"))
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
    first = F.coalesce("first_xxh64", F.lit(UNKNOWN)).alias("first_xxh64")
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
