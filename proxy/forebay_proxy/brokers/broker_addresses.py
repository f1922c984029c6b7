"""Where brokers are, and in which order to try them.

In: a node id, or None for any broker. Out: addresses to try one after the other. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from forebay_proxy.brokers.cluster import Cluster, Node
from forebay_proxy.config.settings import HostPort


class BrokerAddresses:
    """Gives every address that may lead to a broker, those that were last reached first."""

    def __init__(self, cluster: Cluster, bootstrap_servers: Sequence[HostPort], rng: Random) -> None:
        self._cluster = cluster
        self._bootstrap_servers = bootstrap_servers
        self._rng = rng

    def of(self, node_id: int | None) -> list[HostPort]:
        """Of one broker, if it is known; None, of any: known ones in random order, then `bootstrap.servers`.

        Those that are down come after the others, and of either those after the others that the last Metadata lacks.
        """
        if node_id is not None:
            node = self._cluster.nodes.get(node_id)
            return [HostPort(node.host, node.port)] if node is not None else []
        nodes = list(self._cluster.nodes.values())
        self._rng.shuffle(nodes)
        nodes.sort(key=lambda node: (node.down, self._unnamed(node)))
        known = [HostPort(node.host, node.port) for node in nodes]
        return known + [server for server in self._bootstrap_servers if server not in known]

    @property
    def learned(self) -> list[HostPort]:
        """Of all known brokers, but for those that `bootstrap.servers` name, too."""
        known = (HostPort(node.host, node.port) for node in self._cluster.nodes.values())
        return [address for address in known if address not in self._bootstrap_servers]

    def any_node(self, but: int | None = None) -> int | None:
        """A broker that was last reached, at random, but that one; None where none is known.

        One that the last Metadata does not name only where there is no other: it may have left for good.
        """
        nodes = [node for node in self._cluster.nodes.values() if node.id != but]
        up = [node for node in nodes if node.up]
        best = (
            [node for node in up if not self._unnamed(node)]
            or up
            or sorted(nodes, key=lambda node: (self._unnamed(node), node.down, node.lost_at))[:1]
        )
        return self._rng.choice(best).id if best else None

    def _unnamed(self, node: Node) -> bool:
        """Nor has anything else named it since."""
        told_at = self._cluster.updated_at
        return told_at is not None and node.last_seen < told_at
