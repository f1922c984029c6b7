"""Which records are gone from compacted topics although compaction should have kept them.

In: the claims with the keys of their records (journal.ledger.keys), and what is at each offset (claims.match), in
compacted topics up to the end of the log. Out: for each part, how many of its records are lost.

Compaction keeps the last record of each key. So of a key's claimed records that are no more there, the last one is
lost, unless a later record with the key is there. The others may have been taken before it; and a record without a
value (a tombstone) is taken by itself, after delete.retention.ms, with all before it.

    claimed k1 k2 k1 k3, there only k2    the second k1 and k3 are lost; the first k1 was superseded
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from forebay_pipeline.audit.claims import PART


def lost(claims: DataFrame, matched: DataFrame) -> DataFrame:
    """The parts (claims.PART) of which records are lost: how many, and the first and the last one's offset.

    Columns besides: lost, first_lost, last_lost. Offsets before the start and after the end of the log do not count.
    """
    there = matched.where(F.col("key").isNotNull()).select("place", "offset", "key").distinct()
    latest = there.groupBy("place", "key").agg(F.max("offset").alias("latest"))
    absent = _keyed(claims).join(there.drop("key"), ["place", "offset"], "left_anti")
    last = absent.groupBy("place", "key").agg(
        F.max(F.struct("offset", "tombstone", "checked", *PART[1:])).alias("last")
    )
    gone = last.join(latest, ["place", "key"], "left").where(
        F.col("last.checked")
        & ~F.col("last.tombstone")
        & (F.col("latest").isNull() | (F.col("latest") < F.col("last.offset")))
    )
    return (
        gone.select("place", "last.*")
        .groupBy(*PART)
        .agg(F.count("*").alias("lost"), F.min("offset").alias("first_lost"), F.max("offset").alias("last_lost"))
    )


def _keyed(claims: DataFrame) -> DataFrame:
    """A row for each record of compacted topics that is claimed with its key, and within the log by its offset.

    Claims behind the range count, too: what is not checked yet may be why an earlier record of its key is gone.
    """
    known = claims.where(F.col("compacted") & F.col("keys").isNotNull() & ~F.col("former"))
    opened = known.select(*PART, "checked", "tombstones", "read_first", "latest", F.posexplode("keys"))
    offset = F.col("base_offset") + F.col("pos")
    return opened.select(
        *PART,
        "checked",
        offset.alias("offset"),
        F.col("col").alias("key"),
        F.coalesce(F.array_contains("tombstones", F.col("pos").cast("bigint")), F.expr("false")).alias("tombstone"),
    ).where((offset >= F.col("read_first")) & (offset < F.col("latest")))
