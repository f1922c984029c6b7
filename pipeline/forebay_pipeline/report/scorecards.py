"""A line for each client: how it sends, how it is served, and what would help it.

In: the Clients that advice knows. Out: a table, whose texts are not escaped yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from forebay_pipeline.advice.facts import TOUCHED, Clients, ClientUse
from forebay_pipeline.partitions.tables import Table, ms, percent, table

FEW_RECORDS: Final = 2
"""Records a batch below which a client sends single ones."""
MANY: Final = 1000
"""Batches below which how a client sends does not matter."""
ERRORS: Final = 0.01
"""Of its batches."""
SLOW: Final = 3
"""Times the median client's p99."""


def scorecards(clients: Clients, most: int) -> Table:
    """The `most` clients with the most batches."""
    users = any(one.principal for one in clients.clients)
    header = [
        "client id",
        *(["user"] if users else []),
        "what would help",
        "requests/s",
        "records/s",
        "records/batch",
        "merged %",
        "p50 ms",
        "p99 ms",
        "errors",
        "Produce",
        "addresses",
    ]
    usual = _usual_p99_us(clients.clients)
    rows = [
        (
            one.client_id or "(none)",
            *([one.principal] if users else []),
            "; ".join(remarks(one, usual)),
            f"{one.requests / clients.seconds:,.1f}",
            f"{one.records / clients.seconds:,.1f}",
            f"{one.records / one.batches:,.1f}",
            percent(one.merged / one.batches),
            ms(one.took_us.p50_us) if one.took_us else "",
            ms(one.took_us.p99_us) if one.took_us else "",
            one.errors,
            ", ".join(f"v{version}" for version in one.versions),
            one.hosts,
        )
        for one in clients.clients[:most]
    ]
    return table("Clients, most batches first", header, rows, clients.left_out + len(clients.clients) - len(rows))


def remarks(client: ClientUse, usual_p99_us: float) -> Iterator[str]:
    """What is to be said of a client, the most important first; nothing of one that does well."""
    for one in client.picked:
        yield f"seems to pick partitions of {one.topic} itself ({one.used} of {one.partitions}): exclude it"
    if client.too_old:
        yield "too old for Kafka 4: upgrade it, or keep it behind Forebay"
    if client.errors >= ERRORS * client.batches:
        yield f"{percent(client.errors / client.batches)} % of its batches failed"
    untouched = {reason: count for reason, count in client.reasons.items() if reason not in TOUCHED}
    if untouched and client.merged * 2 < client.batches:
        reason = max(untouched, key=lambda each: (untouched[each], each))
        yield f"untouched: {reason.replace('_', ' ')}"
    elif client.batches >= MANY and client.records < FEW_RECORDS * client.batches:
        yield "sends single records: linger.ms of its own would save it requests"
    if client.took_us and client.took_us.p99_us > SLOW * usual_p99_us > 0:
        yield "waits longer than others"


def _usual_p99_us(clients: Sequence[ClientUse]) -> float:
    """The median client's; 0 where that says nothing."""
    known = [one.took_us.p99_us for one in clients if one.took_us]
    return median(known) if len(known) >= SLOW else 0.0
