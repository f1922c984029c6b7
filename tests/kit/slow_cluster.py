"""KIP-794's cluster: three brokers, of which broker 0 is slow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.kit.kafka import KafkaCluster
from tests.kit.ports import free_ports
from tests.kit.slow_broker import SlowBroker


@contextmanager
def cluster_with_slow_broker(hold_ms: float) -> Iterator[KafkaCluster]:
    """Broker 0 takes `hold_ms` for each Produce request, one after the other."""
    with ExitStack() as stack:
        *own, slow = free_ports(4)
        ports = dict(enumerate(own))
        stack.enter_context(SlowBroker(slow, ports[0], hold_ms))
        yield stack.enter_context(KafkaCluster("4.3.1", ports=ports, advertised={**ports, 0: slow}))
