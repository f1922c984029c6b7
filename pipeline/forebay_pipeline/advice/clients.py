"""What each client sent, how it was treated, and whether it seems to pick partitions itself.

In: ledger rows and rows of what was only observed (KEPT has the columns), and batch rows. Out: Clients: those with the
most batches, MOST_CLIENTS whatever the journal's size.

Both kinds of rows are one for each batch of a client. The ledger has a row for what was only observed, too, which says
less than the other one: it does not count. A client is its id and whom it was served as; which partitions it uses is
judged by address as well, since instances of one application may have one partition each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from forebay_pipeline.advice.facts import FIRST_OF_KAFKA_4, OBSERVED, Clients, ClientUse, Picked, TopicReason
from forebay_pipeline.partitions.batches import as_percentiles, percentiles
from forebay_policies import own_choices
from forebay_policies.journal_rows import LedgerRow, ObservedRow

MOST_CLIENTS: Final = 200
MOST_TOPICS: Final = 200

_OF_BOTH: Final = (
    "time_us",
    "process",
    "number",
    "received_us",
    "client_id",
    "host",
    "version",
    "topic",
    "partition",
    "records",
    "error_code",
    "principal",
)
_MOVABLE_BYTES: Final = "aggregate(parts, 0L, (total, part) -> total + if(part.movable, part.bytes, 0L))"
KEPT: Final[Mapping[type[msgspec.Struct], Mapping[str, str]]] = {
    LedgerRow: {name: name for name in (*_OF_BOTH, "reason")} | {"movable_bytes": _MOVABLE_BYTES},
    ObservedRow: {name: name for name in (*_OF_BOTH, "partitions", "null_key_bytes", "opens")},
}
"""Kind of rows → what is needed of it: the names of columns, and what they are in SQL."""

_CLIENT: Final = ("client_id", "principal")
_SECOND_US: Final = 1_000_000


def client_batches(ledger: DataFrame, observed: DataFrame) -> DataFrame:
    """A row for each batch that a client sent: _OF_BOTH, reason, partitions, movable_bytes, opens, took_us.

    Null: `partitions` where the row does not tell, `took_us` where no answer was seen.
    """
    took = F.when(F.col("error_code").isNotNull(), F.col("time_us") - F.col("received_us"))
    of_ledger = ledger.where(F.col("reason") != OBSERVED).select(
        *_OF_BOTH,
        "reason",
        F.lit(None).cast("long").alias("partitions"),
        "movable_bytes",
        F.lit(0).cast("long").alias("opens"),
        took.alias("took_us"),
    )
    return of_ledger.union(
        observed.select(
            *_OF_BOTH,
            F.lit(OBSERVED),
            "partitions",
            F.col("null_key_bytes"),
            F.when(F.col("opens") < 0, 1).otherwise(F.col("opens")),
            took,
        )
    ).withColumn("principal", F.coalesce("principal", F.lit("")))


def clients(batches: DataFrame, sent_on: DataFrame) -> Clients:
    """The Clients of `batches`, the rows of client_batches. How many partitions topics have is told by `sent_on`, batch
    rows, too: all up to the highest that got a batch."""
    reasons = (
        batches.groupBy("topic", "reason")
        .agg(F.count("*").alias("batches"), F.sum("opens").alias("opens"))
        .orderBy(F.desc("batches"), "topic", "reason")
        .limit(MOST_TOPICS)
        .collect()
    )
    if not reasons:
        return Clients()
    counted = batches.groupBy(*_CLIENT).agg(
        F.count("*").alias("batches"),
        F.approx_count_distinct("host").alias("hosts"),
        F.approx_count_distinct(F.struct("process", "number", F.col("reason") == OBSERVED), 0.02).alias("requests"),
        F.sum("records").alias("records"),
        F.count_if(F.coalesce(F.col("error_code"), F.lit(0)) != 0).alias("errors"),
        percentiles("took_us").alias("took_us"),
        F.sort_array(F.collect_set("version")).alias("versions"),
    )
    found = counted.orderBy(F.desc("batches"), *_CLIENT).limit(MOST_CLIENTS).collect()
    left_out = max(0, counted.count() - MOST_CLIENTS) if len(found) == MOST_CLIENTS else 0
    treated: dict[tuple[str, str], dict[str, int]] = {}
    for row in batches.groupBy(*_CLIENT, "reason").agg(F.count("*").alias("batches")).collect():
        treated.setdefault((row["client_id"], row["principal"]), {})[row["reason"]] = row["batches"]
    picked = _picked(batches, sent_on)
    return Clients(
        [
            ClientUse(
                client_id=row["client_id"],
                principal=row["principal"],
                hosts=row["hosts"],
                requests=min(row["requests"], row["batches"]),
                batches=row["batches"],
                records=row["records"],
                errors=row["errors"],
                took_us=as_percentiles(row["took_us"]) if row["took_us"] else None,
                versions=row["versions"],
                reasons=treated[row["client_id"], row["principal"]],
                picked=picked.get((row["client_id"], row["principal"]), ()),
            )
            for row in found
        ],
        left_out,
        [TopicReason(**row.asDict()) for row in reasons],
    )


def _picked(batches: DataFrame, sent_on: DataFrame) -> dict[tuple[str, str], list[Picked]]:
    """Client → topics whose partitions it seems to pick itself (policies.own_choices).

    Turns are windows of the clock in which enough was sent, so there may be fewer than the proxy counts.
    """
    told = sent_on.groupBy("topic").agg((F.max("partition") + 1).alias("told"))
    sizes = batches.groupBy("topic").agg(F.max("partitions").alias("seen")).join(told, "topic", "left")
    old = F.col("version") < FIRST_OF_KAFKA_4
    turn_us = F.when(old, own_choices.OLD_TURN_S * _SECOND_US).otherwise(own_choices.TURN_S * _SECOND_US)
    sent = (
        batches.where(F.col("movable_bytes") > 0)
        .join(F.broadcast(sizes.select("topic", F.greatest("seen", "told").alias("of"))), "topic")
        .where(F.col("of").isNotNull())
    )
    who = ("client_id", "principal", "host", "topic")
    places = F.least("of", F.lit(own_choices.PLACES))
    used = sent.groupBy(*who, "of").agg(
        F.countDistinct(F.floor(F.col("partition") * places / F.col("of"))).alias("used")
    )
    turns = (
        sent.groupBy(*who, F.floor(F.col("time_us") / turn_us).alias("turn"))
        .agg(F.sum("movable_bytes").alias("bytes"))
        .where(F.col("bytes") >= own_choices.TURN_BYTES)
        .groupBy(*who)
        .agg(F.count("*").alias("turns"))
    )
    few = used.where(2 * F.col("used") <= F.least("of", F.lit(own_choices.PLACES)))
    found: dict[tuple[str, str], dict[str, Picked]] = {}
    for row in few.join(turns, list(who)).collect():
        choices = own_choices.TopicChoices(row["of"], row["turns"], list(range(row["used"])))
        if choices.picked:
            one = Picked(row["topic"], row["used"], row["of"])
            found.setdefault((row["client_id"], row["principal"]), {})[row["topic"]] = one
    return {client: [topics[topic] for topic in sorted(topics)] for client, topics in found.items()}
