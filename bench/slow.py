"""KIP-794's cluster: three brokers, partition i on broker i, each behind a relay that can make it slow.

with slow_cluster() as slow:
    topic = slow.topic()
    slow.hold(0, 20)
    … load to slow.cluster.bootstrap, or to Forebay before it …
    slow.records(topic)
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from bench.rig import KAFKA, NODES
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import free_ports
from tests.kit.slow_broker import SlowBroker
from tests.kit.topic_log import TopicLog

_POLL_S: Final = 0.1


class SlowCluster:
    def __init__(self, cluster: KafkaCluster, relays: Sequence[SlowBroker], log: TopicLog) -> None:
        self.cluster = cluster
        self._relays = relays
        self._log = log
        self._numbers = itertools.count()

    def topic(self) -> str:
        """A new one."""
        name = f"foo-{next(self._numbers)}"
        self.cluster.create_topic(name, NODES)
        return name

    def hold(self, broker: int, hold_ms: float) -> None:
        """From now on it takes so long for each Produce request, one after the other."""
        self._relays[broker].hold(hold_ms)

    def records(self, topic: str) -> list[int]:
        """In each partition."""
        ends = self._log.ends(topic)
        return [ends[partition] for partition in range(NODES)]

    def shares(
        self, topic: str, running: Callable[[], bool], window: float = 1.0
    ) -> Iterator[tuple[float, list[float]]]:
        """(time, each partition's share of what was appended within the last `window` seconds), while it runs."""
        seen: deque[tuple[float, list[int]]] = deque()
        while running():
            seen.append((time.monotonic(), self.records(topic)))
            while len(seen) > 1 and seen[1][0] <= seen[-1][0] - window:
                seen.popleft()
            (began, before), (now, after) = seen[0], seen[-1]
            grown: list[int] = [end - start for start, end in zip(before, after, strict=True)]
            total = sum(grown)
            if now - began >= window and total:
                yield now, [growth / total for growth in grown]
            time.sleep(_POLL_S)


@contextmanager
def slow_cluster() -> Iterator[SlowCluster]:
    with ExitStack() as stack:
        ports = free_ports(2 * NODES)
        own, relayed = dict(enumerate(ports[:NODES])), dict(enumerate(ports[NODES:]))
        relays = [stack.enter_context(SlowBroker(relayed[node], own[node], 0)) for node in range(NODES)]
        cluster = stack.enter_context(KafkaCluster(KAFKA, NODES, ports=own, advertised=relayed))
        log = TopicLog(cluster.internal)
        stack.callback(log.close)
        yield SlowCluster(cluster, relays, log)
