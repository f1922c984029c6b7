"""How many bytes of records went to a leader in their client's rack, and how many to one elsewhere.

In: each batch that clients send, with where it goes. Out: the metric forebay_rack_bytes_total, and by topic
the journal. Bytes are those of the client's own batches, as it sent them: what Forebay merges them into, and how often
followers copy it, is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from forebay_policies.accumulator import NO_LEADER
from forebay_policies.rack_partitioner import NO_RACK
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.journal.recorder import Journal
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.classifier import InspectedBatch
from forebay_proxy.produce.client import Client


class RackTraffic:
    """Each batch counts once."""

    def __init__(self, cluster: Cluster, stats: MetricRegistry, journal: Journal | None = None) -> None:
        self._cluster = cluster
        self._journal = journal
        self._same = stats.counter("forebay_rack_bytes_total", rack="same")
        self._other = stats.counter("forebay_rack_bytes_total", rack="other")
        self._unknown = stats.counter("forebay_rack_bytes_total", rack="unknown")

    def sent(self, topic: str, rack: str, leader: int, size: int) -> None:
        """`size` bytes of a client in `rack` for a partition of the topic that has that leader."""
        journal = self._journal
        leaders = self._cluster.rack_of(leader)
        if rack == NO_RACK or leaders == NO_RACK:
            self._unknown.value += size
            if journal is not None:
                journal.crossed(topic, unknown=size)
        elif rack == leaders:
            self._same.value += size
            if journal is not None:
                journal.crossed(topic, same=size)
        else:
            self._other.value += size
            if journal is not None:
                journal.crossed(topic, other=size)

    def passed(self, client: Client, inspected: Sequence[InspectedBatch]) -> None:
        """These batches go on untouched, to the broker that the client has chosen."""
        leader = client.node_id if client.node_id is not None else NO_LEADER
        for entry in inspected:
            self.sent(entry.topic, client.rack, leader, entry.end - entry.start)
