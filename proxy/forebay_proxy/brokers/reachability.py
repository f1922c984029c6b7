"""What follows when a broker cannot be reached: what is known of its topics and its versions is old. No I/O."""

from __future__ import annotations

from time import monotonic
from typing import Final

from forebay_policies.metadata_cache import MetadataCache
from forebay_proxy.brokers.broker_versions import BrokerVersions
from forebay_proxy.brokers.cluster import NEVER_LOST, Cluster, Node
from forebay_proxy.brokers.metadata_updater import MetadataUpdater

LOST_AGAIN_S: Final = 1.0
"""Clients that cannot reach a broker invalidate its topics at most this often: they try again and again."""


class Reachability:
    """Makes sure that nothing learned from or about a lost broker outlives it unasked."""

    def __init__(
        self, cluster: Cluster, cache: MetadataCache, updater: MetadataUpdater, versions: BrokerVersions
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._updater = updater
        self._versions = versions
        cluster.on_node(lambda node: versions.forget(node.id))

    def lost(self, node: Node) -> None:
        """The broker does not take connections: its topics may be led by others, and it may come back upgraded."""
        now = monotonic()
        node.lost_at = now
        self._versions.forget(node.id)
        self._cache.invalidate_node(node.id, now)
        names = [name for name, state in self._cluster.topics.items() if node.id in state.nodes]
        self._updater.invalidate(names, "connection")

    def reached(self, node_id: int | None) -> None:
        """A client's own connection stands."""
        node = self._cluster.nodes.get(node_id) if node_id is not None else None
        if node is not None:
            node.lost_at = NEVER_LOST

    def not_reached(self, node_id: int | None) -> None:
        """A client could not be connected, or told versions. Says so of the broker, unless that was just said."""
        node = self._cluster.nodes.get(node_id) if node_id is not None else None
        if node is not None and monotonic() - node.lost_at >= LOST_AGAIN_S:
            self.lost(node)
