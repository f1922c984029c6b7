"""A way to a cluster: through Forebay, or direct. Tests ask it for addresses and topics, and never ask which it is,
but for `moves`: whether records without a key may be found elsewhere than where the client put them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK
from tests.kit.topic_log import TopicLog


@dataclass
class Route:
    cluster: KafkaCluster
    log: TopicLog
    forebay: ForebayProcess | None
    _names: itertools.count[int] = field(default_factory=itertools.count)
    _kept: dict[str, str] = field(default_factory=dict)

    @property
    def moves(self) -> bool:
        return self.forebay is not None

    @property
    def bootstrap(self) -> str:
        return self.forebay.bootstrap if self.forebay else self.cluster.bootstrap

    @property
    def addresses(self) -> set[str]:
        """The only addresses that a client on this route may ever be told."""
        if self.forebay:
            return self.forebay.addresses
        return {f"{LOOPBACK}:{port}" for port in self.cluster.advertised.values()}

    def new_topic(self, partitions: int = 3) -> str:
        topic = f"{self.new_name('topic')}"
        self.cluster.create_topic(topic, partitions)
        return topic

    def topic_for(self, whom: str) -> str:
        """One topic for each `whom`, made when first asked for: making one takes longer than filling it."""
        if whom not in self._kept:
            self._kept[whom] = self.new_topic()
        return self._kept[whom]

    def new_name(self, prefix: str) -> str:
        """A name that nothing else on this cluster has."""
        return f"{prefix}-{next(self._names)}"
