"""Gathers the Facts of a span of a journal.

In: its rows, in COLUMNS, with those that are KEPT beside, and their Summary. Out: Facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from forebay_pipeline.advice import clients as of_clients
from forebay_pipeline.advice import counts
from forebay_pipeline.advice.facts import Facts, TopicRacks
from forebay_pipeline.advice.present import Present
from forebay_pipeline.partitions.measures import SUMMARIZED, Rows
from forebay_pipeline.partitions.summary import Summary
from forebay_pipeline.replay.results import ReplayReport
from forebay_policies.journal_rows import LedgerRow, ObservedRow, RackRow

MOST_TOPICS: Final = 1000

KEPT: Final[Mapping[type[msgspec.Struct], Mapping[str, str]]] = {
    **of_clients.KEPT,
    RackRow: {name: name for name in TopicRacks._fields},
}
"""Kind of rows → what is needed of it, as in clients.py."""
COLUMNS: Final = (*SUMMARIZED, *counts.COLUMNS)
"""What is needed of batches, gauges and metadata requests, for their Summary, too."""


def gather(
    rows: Rows,
    summary: Summary,
    present: Present,
    replay: ReplayReport | None = None,
    price_per_gb: float | None = None,
) -> Facts:
    """All that advice is made of."""
    facts = Facts(summary, present=present, replay=replay, price_per_gb=price_per_gb)
    sent = of_clients.client_batches(rows.others[LedgerRow], rows.others[ObservedRow])
    return facts._replace(
        batches=counts.batch_use(rows.batches, facts.seconds),
        brokers=counts.brokers(rows.batches),
        topics=counts.topics(rows.batches, MOST_TOPICS),
        topic_racks=counts.racks(rows.others[RackRow], MOST_TOPICS),
        clients=of_clients.clients(of_clients.client_tables(sent), rows.batches),
    )
