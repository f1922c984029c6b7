"""Gathers the Facts of a span of a journal.

In: its rows, with those of clients (KEPT), and their Summary. Out: Facts.
"""

from __future__ import annotations

from forebay_pipeline.advice import counts
from forebay_pipeline.advice.clients import client_batches, clients
from forebay_pipeline.advice.facts import Facts
from forebay_pipeline.advice.present import Present
from forebay_pipeline.partitions.measures import Rows
from forebay_pipeline.partitions.summary import Summary
from forebay_pipeline.replay.results import ReplayReport
from forebay_policies.journal_rows import LedgerRow, ObservedRow

MOST_TOPICS = 1000


def gather(
    rows: Rows,
    summary: Summary,
    present: Present,
    replay: ReplayReport | None = None,
    price_per_gb: float | None = None,
) -> Facts:
    """All that advice is made of."""
    facts = Facts(summary, present=present, replay=replay, price_per_gb=price_per_gb)
    sent = client_batches(rows.others[LedgerRow], rows.others[ObservedRow])
    return facts._replace(
        batches=counts.batch_use(rows.batches, facts.seconds),
        brokers=counts.brokers(rows.batches),
        topics=counts.topics(rows.batches, MOST_TOPICS),
        clients=clients(sent, rows.batches),
    )
