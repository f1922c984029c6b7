"""What is known of topics' partitions now: who leads them, what waits for them, and for how long.

In: the cluster and its queues. Out: TopicNow by name, whatever the number of partitions at most MAX_PARTITIONS of them.
"""

from __future__ import annotations

from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.metrics.topic_counts import MAX_PARTITIONS
from forebay_proxy.metrics.topics_seen import TopicNow


def topics_now(cluster: Cluster, now: float) -> dict[str, TopicNow]:
    """`now` by `time.monotonic`. Topics in the order in which they were met."""
    found: dict[str, TopicNow] = {}
    room = MAX_PARTITIONS
    for name, state in cluster.topics.items():
        queues = state.queues
        leaders = list(queues.leaders[:room])
        room -= len(leaders)
        loads = {index: load for index, load in queues.loads().items() if index < len(leaders)}
        waits = {}
        for index in loads:
            since = queues.ready_since(index)
            if since is not None:
                waits[index] = max(0.0, now - since)
        found[name] = TopicNow(leaders, loads, waits)
    return found
