"""Which brokers can be reached, and what follows when one cannot: what is known of its topics and versions is old.

In: what became of attempts to connect, those of senders and of clients. Out: `up`; brokers that are asked again, since
clients whom one lost may not come back to it. What a client meets leaves its partitions available: records do not move.
"""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import Final

from forebay_policies.metadata_cache import MetadataCache
from forebay_proxy.brokers.broker_versions import BrokerVersions
from forebay_proxy.brokers.cluster import NEVER_LOST, Cluster, Node
from forebay_proxy.brokers.metadata_updater import MetadataUpdater

EVERY_BROKER_KNOWS: Final = 0
"""A version of ApiVersions."""
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

    def look_again(self) -> None:
        """Ask brokers that clients could not be connected to; senders try by themselves. For every few seconds."""
        for node_id, up in self.up().items():
            if not up and not self._cluster.nodes[node_id].down:
                self._versions.get(node_id, EVERY_BROKER_KNOWS, partial(self._asked, node_id))

    def _asked(self, node_id: int, answer: bytes | None) -> None:
        if answer is not None:
            self.reached(node_id)

    def up(self) -> dict[int, bool]:
        """Of each broker whether it is `up` (cluster.Node). One that is not is left out once nobody has named or tried
        it for `metadata.max.age.ms`: nobody may forget it, where metadata is for clients alone to ask for."""
        recent = monotonic() - self._cache.ages.max
        nodes = self._cluster.nodes.values()
        return {node.id: node.up for node in nodes if node.up or max(node.last_seen, node.lost_at) >= recent}
