"""Brokers that have left the cluster while clients wait for answers on their ports: clients are told of them as before.

librdkafka (from 2.10 on) drops a broker that Metadata no longer names, believes that the Produce requests it has away
there were never sent, and sends them again, whatever its `retries`: records would be there twice. Directly that seldom
happens, since a broker that dies closes its connections first. Here the connection stands, and will be answered. An
answer that has been written may still be on its way, and Metadata on another connection may be the faster one; or a
link that swallows what is written has swallowed it, and its client waits for it until its patience is at an end.

In: the brokers as Metadata has them, requests that begin and cease to wait. Out: the brokers to tell of.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from forebay_codecs.metadata import Broker

ON_THE_WAY: Final = 5.0
"""Seconds that an answer may need to its client over a link that is slow or loses packets: as long is always waited."""


class _Departed:
    """A broker that has left; `busy` is when a request was last seen to wait on its port, at first when it left."""

    __slots__ = ("broker", "busy", "left")

    def __init__(self, broker: Broker, left: float) -> None:
        self.broker = broker
        self.left = left
        self.busy = left


class DepartedBrokers:
    """A broker that has left is told of until nobody waits any more for an answer on its port.

    Who was answered may not know it, and waits for `patience` seconds; where no Produce request ever came, ON_THE_WAY
    is enough, unless `others` serve the same clients: who waits there is not known here. What has not been answered
    `patience` seconds after it left counts no more.
    """

    def __init__(self, patience: float, *, others: bool = False) -> None:
        self._patience = patience
        self._others = others
        self._waiting: dict[int, int] = {}
        """By node id: all on whose port a Produce request ever came."""
        self._there: Mapping[int, Broker] = {}
        self._departed: dict[int, _Departed] = {}

    def request_began(self, node_id: int) -> None:
        """A client waits for an answer on that broker's port."""
        self._waiting[node_id] = self._waiting.get(node_id, 0) + 1

    def request_ended(self, node_id: int) -> None:
        """It waits no more."""
        self._waiting[node_id] -= 1

    @property
    def left(self) -> Collection[int]:
        """Node ids of those that have left, and are still told of."""
        return self._departed.keys()

    def told_of(self, there: Mapping[int, Broker], now: float) -> Mapping[int, Broker]:
        """`there` and those who left it lately, by node id."""
        if there is not self._there:
            for node_id, broker in self._there.items():
                if node_id not in there:
                    self._departed.setdefault(node_id, _Departed(broker, now))
            self._there = there
        if not self._departed:
            return there
        for node_id, departed in self._departed.items():
            if self._waiting.get(node_id, 0) > 0:
                departed.busy = min(now, departed.left + self._patience)
        self._departed = {
            node_id: departed
            for node_id, departed in self._departed.items()
            if node_id not in there and now < departed.busy + self._lasts(node_id)
        }
        return {**there, **{node_id: departed.broker for node_id, departed in self._departed.items()}}

    def _lasts(self, node_id: int) -> float:
        return max(ON_THE_WAY, self._patience if self._others or node_id in self._waiting else 0.0)
