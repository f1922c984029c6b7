"""How records stand that wait or are under way, for whoever looks for a fault: names and numbers, never records.

In: the realms of a process, the time. Out: what JSON has a form for, of bounded size: of what grows with topics, the
fullest MOST. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Any, Final

from forebay_policies.accumulator import PartitionQueue
from forebay_policies.buffer_pool import BufferPool
from forebay_proxy.realms.realm import Realm

MOST: Final = 100


def queues(realms: Iterable[Realm], now: float) -> dict[str, Any]:
    """Partitions of which something waits or is under way; `total` says how many there are."""
    found = [
        queue
        for realm in realms
        for topic in realm.accumulator.topics.values()
        for queue in topic.queues()
        if queue.batches or queue.in_flight is not None
    ]
    fullest = nlargest(MOST, found, key=lambda queue: queue.queued_bytes)
    return {"total": len(found), "fullest": [_row(queue, now) for queue in fullest]}


def _row(queue: PartitionQueue, now: float) -> dict[str, Any]:
    return {
        "topic": queue.topic.name,
        "partition": queue.index,
        "leader": queue.leader,
        "acks": "leader" if queue.replicas is None else "all",
        "bytes": queue.queued_bytes,
        "batches": len(queue.batches),
        "in_flight": queue.in_flight is not None,
        "paused": queue.paused,
        "changes_form": queue.turning,
        "outcome_unknown": queue.tainted,
        "ready_for_s": None if queue.ready_at is None else round(now - queue.ready_at, 3),
        "oldest_s": round(now - queue.batches[0].opened_at, 3) if queue.batches else None,
    }


def brokers(realms: Iterable[Realm]) -> list[dict[str, Any]]:
    """By realm and node id: whether it can be reached, and what is under way. At most MOST."""
    found = []
    for number, realm in enumerate(realms):
        away = realm.dispatcher.in_flight_by_broker()
        for node in realm.view.cluster.nodes.values():
            row = {"realm": number, "node": node.id, "down": node.down, "in_flight": away.get(node.id, 0)}
            found.append(row)
    return found[:MOST]


def memory(pool: BufferPool) -> dict[str, Any]:
    """`buffer.memory`, and who holds most of it."""
    held = nlargest(MOST, pool.shares.brokers.items(), key=lambda share: share[1])
    return {
        "size": pool.memory,
        "available": pool.available,
        "waiting_clients": pool.waiting,
        "by_leader": [{"node": node_id, "held": size} for node_id, size in held],
    }
