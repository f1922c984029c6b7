"""What each client sent, how it was treated, and whether it seems to pick partitions itself.

In: ledger rows and rows of what was only observed (KEPT has the columns), and batch rows. Out: Clients: those with the
most batches, MOST_CLIENTS whatever the journal's size; and ClientTables, from which they are made.

Both kinds of rows are one for each batch of a client. The ledger has a row for what was only observed, too, which says
less than the other one: it does not count. A client is its id and whom it was served as; which partitions it uses is
judged by address as well, since instances of one application may have one partition each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame
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

CLIENT: Final = ["client_id", "principal"]
_CLIENT_SCHEMA: Final = "client_id string, principal string"
_INSTANCE: Final = [*CLIENT, "host", "topic"]
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


class ClientTables(NamedTuple):
    """What is counted of clients' batches. Those of several times can be added up."""

    treated: DataFrame
    """client_id, principal, topic, reason, version: batches, records, errors, opens; at most, `partitions`; first_us
    and last_us."""
    served: DataFrame
    """client_id, principal: requests, about, and `took_us`, an array of percentiles."""
    choices: DataFrame
    """client_id, principal, host, topic: the partitions `used` for records without a key, and for how many `turns`."""


def client_tables(batches: DataFrame) -> ClientTables:
    """Of the rows of client_batches."""
    took = batches.groupBy(*CLIENT).agg(requests(), percentiles("took_us").alias("took_us"))
    return ClientTables(treated(batches), took, choices(batches))


def treated(batches: DataFrame) -> DataFrame:
    """See ClientTables."""
    return batches.groupBy(*CLIENT, "topic", "reason", "version").agg(
        F.count("*").alias("batches"),
        F.sum("records").alias("records"),
        F.count_if(F.coalesce(F.col("error_code"), F.lit(0)) != 0).alias("errors"),
        F.sum("opens").alias("opens"),
        F.max("partitions").alias("partitions"),
        F.min("time_us").alias("first_us"),
        F.max("time_us").alias("last_us"),
    )


def requests() -> Column:
    """An aggregate of the rows of client_batches: the requests that brought them, about."""
    request = F.struct("process", "number", F.col("reason") == OBSERVED)
    return F.approx_count_distinct(request, 0.02).alias("requests")


def choices(batches: DataFrame) -> DataFrame:
    """See ClientTables.

    Turns are windows of the clock in which enough was sent, so there may be fewer than the proxy counts.
    """
    old = F.col("version") < FIRST_OF_KAFKA_4
    turn_us = F.when(old, own_choices.OLD_TURN_S * _SECOND_US).otherwise(own_choices.TURN_S * _SECOND_US)
    turns = (
        batches.groupBy(*_INSTANCE, F.floor(F.col("time_us") / turn_us))
        .agg(F.sum("movable_bytes").alias("bytes"))
        .groupBy(*_INSTANCE)
        .agg(F.count_if(F.col("bytes") >= own_choices.TURN_BYTES).alias("turns"))
    )
    chosen = F.when(F.col("movable_bytes") > 0, F.col("partition"))
    used = batches.groupBy(*_INSTANCE).agg(F.sort_array(F.collect_set(chosen)).alias("used"))
    return used.join(turns, _INSTANCE)


def clients(tables: ClientTables, sent_on: DataFrame) -> Clients:
    """The Clients that `tables` tell of. How many partitions topics have is told by `sent_on`, batch rows or such that
    stand for several of them, too: all up to the highest that got a batch."""
    kept = tables._replace(treated=tables.treated.persist(), choices=tables.choices.persist())
    try:
        return _clients(kept, sent_on)
    finally:
        kept.treated.unpersist()
        kept.choices.unpersist()


def _clients(tables: ClientTables, sent_on: DataFrame) -> Clients:
    reasons = _reasons(tables.treated)
    if not reasons:
        return Clients()
    counted = tables.treated.groupBy(*CLIENT).agg(
        *(F.sum(name).alias(name) for name in ("batches", "records", "errors")),
        F.sort_array(F.collect_set("version")).alias("versions"),
    )
    most = counted.orderBy(F.desc("batches"), *CLIENT).limit(MOST_CLIENTS)
    hosts = tables.choices.groupBy(*CLIENT).agg(F.approx_count_distinct("host").alias("hosts"))
    found = most.join(tables.served, CLIENT).join(hosts, CLIENT).orderBy(F.desc("batches"), *CLIENT).collect()
    left_out = max(0, counted.count() - MOST_CLIENTS) if len(found) == MOST_CLIENTS else 0
    # Some clients use a new id whenever they start: of all others nothing comes here.
    told = most.sparkSession.createDataFrame([(row["client_id"], row["principal"]) for row in found], _CLIENT_SCHEMA)
    told = F.broadcast(told)
    treated_as = tables.treated.join(told, CLIENT).groupBy(*CLIENT, "reason").agg(F.sum("batches").alias("batches"))
    treatment: dict[tuple[str, str], dict[str, int]] = {}
    for row in treated_as.collect():
        treatment.setdefault((row["client_id"], row["principal"]), {})[row["reason"]] = row["batches"]
    picked = _picked(tables, sent_on, told)
    (times,) = tables.treated.agg(F.min("first_us"), F.max("last_us")).collect()
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
                reasons=treatment[row["client_id"], row["principal"]],
                picked=picked.get((row["client_id"], row["principal"]), ()),
            )
            for row in found
        ],
        left_out,
        reasons,
        *times,
    )


def _reasons(treated: DataFrame) -> list[TopicReason]:
    counts = [F.sum(name).alias(name) for name in ("batches", "opens")]
    largest = treated.groupBy("topic", "reason").agg(*counts).orderBy(F.desc("batches"), "topic", "reason")
    found = [TopicReason(**row.asDict()) for row in largest.limit(MOST_TOPICS).collect()]
    if len(found) < MOST_TOPICS:
        return found
    others = []
    for reason, batches, opens in treated.groupBy("reason").agg(*counts).orderBy("reason").collect():
        told = [one for one in found if one.reason == reason]
        left = batches - sum(one.batches for one in told)
        if left:
            others.append(TopicReason("", reason, left, opens - sum(one.opens for one in told)))
    return found + others


def _picked(tables: ClientTables, sent_on: DataFrame, of: DataFrame) -> dict[tuple[str, str], list[Picked]]:
    """Client, of those in `of` → topics whose partitions it seems to pick itself (policies.own_choices), by the address
    that uses the fewest."""
    told = sent_on.groupBy("topic").agg((F.max("partition") + 1).alias("told"))
    sizes = tables.treated.groupBy("topic").agg(F.max("partitions").alias("seen")).join(told, "topic", "left")
    chosen = tables.choices.join(of, CLIENT)
    sized = chosen.join(F.broadcast(sizes.select("topic", F.greatest("seen", "told").alias("of"))), "topic")
    places = F.expr(f"transform(used, each -> floor(each * least(of, {own_choices.PLACES}) / of))")
    used = (
        sized.where(F.col("of").isNotNull())
        .groupBy(*_INSTANCE, "of")
        .agg(
            F.size(F.array_distinct(F.flatten(F.collect_list(F.array_distinct(places))))).alias("used"),
            F.sum("turns").alias("turns"),
        )
    )
    few = (F.col("used") > 0) & (2 * F.col("used") <= F.least("of", F.lit(own_choices.PLACES)))
    # A client may have thousands of addresses: of those that use as many the one with the most turns tells.
    alike = used.where(few & (F.col("turns") > 0)).groupBy(*CLIENT, "topic", "of", "used")
    found: dict[tuple[str, str], dict[str, Picked]] = {}
    for row in alike.agg(F.max("turns").alias("turns")).orderBy(*CLIENT, "topic", "used").collect():
        choices = own_choices.TopicChoices(row["of"], row["turns"], list(range(row["used"])))
        if choices.picked:
            one = Picked(row["topic"], row["used"], row["of"])
            found.setdefault((row["client_id"], row["principal"]), {}).setdefault(row["topic"], one)
    return {client: list(topics.values()) for client, topics in found.items()}
