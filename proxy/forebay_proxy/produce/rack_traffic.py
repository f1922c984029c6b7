"""How many bytes of records went to a leader in their client's rack, and how many to one elsewhere.

In: each batch that clients send, with where it goes. Out: the metric forebay_rack_bytes_total. Bytes are those of the
client's own batches: what Forebay merges them into, and how often followers copy it, is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from forebay_policies.accumulator import NO_LEADER
from forebay_policies.rack_partitioner import NO_RACK
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.classifier import InspectedBatch
from forebay_proxy.produce.client import Client


class RackTraffic:
    """Each batch counts once."""

    def __init__(self, cluster: Cluster, stats: MetricRegistry) -> None:
        self._cluster = cluster
        self._same = stats.counter("forebay_rack_bytes_total", rack="same")
        self._other = stats.counter("forebay_rack_bytes_total", rack="other")
        self._unknown = stats.counter("forebay_rack_bytes_total", rack="unknown")

    def sent(self, rack: str, leader: int, size: int) -> None:
        """`size` bytes of a client in `rack` for a partition of that leader."""
        leaders = self._cluster.rack_of(leader)
        if rack == NO_RACK or leaders == NO_RACK:
            self._unknown.value += size
        elif rack == leaders:
            self._same.value += size
        else:
            self._other.value += size

    def passed(self, client: Client, inspected: Sequence[InspectedBatch]) -> None:
        """All of a request's batches go on untouched, to the broker that the client has chosen."""
        size = sum([entry.end - entry.start for entry in inspected])
        self.sent(client.rack, client.node_id if client.node_id is not None else NO_LEADER, size)
