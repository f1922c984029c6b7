"""Brokers that have left the cluster while clients wait for answers on their ports: clients are told of them as before.

librdkafka (from 2.10 on) drops a broker that Metadata no longer names, believes that the Produce requests it has away
there were never sent, and sends them again, whatever its `retries`: records would be there twice. Directly that does
not happen, since a broker that dies closes its connections first. Here the connection stands, and will be answered.

In: the brokers as Metadata has them, requests that begin and cease to wait. Out: the brokers to tell of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from forebay_codecs.metadata import Broker


class DepartedBrokers:
    """A broker that has left is told of while a Produce request waits on its port, for `patience` seconds at most."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._waiting: Counter[int] = Counter()
        self._there: Mapping[int, Broker] = {}
        self._departed: dict[int, tuple[Broker, float]] = {}
        """With the time at which each was found to have left."""

    def waits(self, node_id: int) -> None:
        """A client waits for an answer on that broker's port."""
        self._waiting[node_id] += 1

    def answered(self, node_id: int) -> None:
        """It waits no more."""
        self._waiting[node_id] -= 1

    def told_of(self, there: Mapping[int, Broker], now: float) -> Mapping[int, Broker]:
        """`there` and those who left it lately, by node id."""
        if there is not self._there:
            for node_id, broker in self._there.items():
                if node_id not in there:
                    self._departed.setdefault(node_id, (broker, now))
            self._there = there
        if not self._departed:
            return there
        self._departed = {
            node_id: (broker, since)
            for node_id, (broker, since) in self._departed.items()
            if node_id not in there and self._waiting[node_id] > 0 and now < since + self._patience
        }
        return {**there, **{node_id: broker for node_id, (broker, _) in self._departed.items()}}
