"""Records without a key go to partitions whose leader is in their client's rack, as long as every partition gets its
share (KIP-1123, and what it leaves open).

In: what a partitioner is asked, and the client's rack. Out: a partition. Which one within a rack is chosen by a
partitioner of that rack's own, of whatever kind is set, among the rack's available partitions alone.

The KIP keeps all records in their rack. Where clients and leaders are not spread alike, partitions then get very
different amounts: with two thirds of the clients in one of three racks, each of its partitions gets twice its share.
Here a rack's partitions take records of the rack's clients until each has `max_skew` more than its share; what comes
beyond that, and what clients without a rack send, goes to the rack whose partitions have least. They also give way
while partitions elsewhere have less than their share by `max_skew`.

What a rack has got is counted in bytes a partition, and fades as more come, so that the balance is that of the last
WINDOW turns a partition. It differs by a turn a partition at most: records come in runs that stay together.

Nothing is made up for. A rack that was without leaders comes back as if it had got what the others did meanwhile, else
all records would go there until it has; and one that keeps some of its partitions, or gets more, goes on as before.

A partition whose ready batch has waited too long for its broker counts as one without a leader, as long as there are
others. Its rack's partitioner would leave it, too, but has nowhere to go where the rack's only broker hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final

from forebay_policies.partitioner import Partitioner, TopicView
from forebay_policies.uniform_partitioner import shut

NO_RACK: Final = ""
"""Of a client or broker whose rack is not known."""

WINDOW: Final = 256
"""Turns a partition after which what was counted is halved."""

LOOK_S: Final = 0.1
"""How often to look whether brokers take batches. Not for each record, as there may be thousands of partitions."""


class RackView:
    """A topic as if it had no available partitions but those led in one rack (a TopicView)."""

    __slots__ = ("_rack", "_topic")

    def __init__(self, topic: TopicView, rack: str) -> None:
        self._topic = topic
        self._rack = rack

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._topic.name

    @property
    def partition_count(self) -> int:
        """Of the whole topic."""
        return self._topic.partition_count

    @property
    def available(self) -> Sequence[int]:
        """The rack's partitions whose leader is a usable broker, ascending."""
        return self._topic.racks.get(self._rack, ())

    @property
    def racks(self) -> Mapping[str, Sequence[int]]:
        """Of the whole topic."""
        return self._topic.racks

    def loads(self) -> Mapping[int, int]:
        """Of the whole topic."""
        return self._topic.loads()

    def ready_since(self, partition: int) -> float | None:
        """As the topic says."""
        return self._topic.ready_since(partition)

    def lingers(self, partition: int) -> bool:
        """As the topic says."""
        return self._topic.lingers(partition)


class RackPartitioner:
    """One topic's partitioner, asked by way of `of`, for clients of each rack.

    `make` makes the partitioner of one rack; `turn` is for how many bytes it stays with a partition. `max_skew` is a
    part of a fair share: 0.2 lets a partition have 80 to 120 % of it. A partition is left once its ready batch has
    waited for `patience_s`; 0: never.
    """

    __slots__ = (
        "_asked_again",
        "_by_rack",
        "_chosen",
        "_clients",
        "_each",
        "_look_at",
        "_make",
        "_max_skew",
        "_now",
        "_patience_s",
        "_places",
        "_seen",
        "_size",
        "_there",
        "_turn",
    )

    def __init__(self, make: Callable[[], Partitioner], turn: int, max_skew: float, patience_s: float = 0.0) -> None:
        self._make = make
        self._turn = turn
        self._max_skew = max_skew
        self._patience_s = patience_s
        self._by_rack: dict[str, Partitioner] = {}
        self._chosen: dict[int, str] = {}
        """By partition: the rack that its leader was in when it was last chosen."""
        self._clients: dict[str, OfRack] = {}
        self._each: dict[str, float] = {}
        """By rack: bytes that each of its partitions has got, on average."""
        self._places: dict[str, int] = {}
        """By rack: how many partitions it has that take records; without racks that have none."""
        self._seen: Mapping[str, Sequence[int]] | None = None
        """The topic's racks of which that is true."""
        self._look_at = inf
        """When to look again, should they stay the same."""
        self._there = NO_RACK
        self._size = 0
        self._now = 0.0
        """Of the last choice: in which rack, of how many bytes, when."""
        self._asked_again = False
        """A new batch has changed a choice: that for the same bytes may come once more."""

    def of(self, rack: str) -> OfRack:
        """The partitioner for records of the clients there."""
        client = self._clients.get(rack)
        if client is None:
            client = self._clients[rack] = OfRack(self, rack)
        return client

    def partition(self, rack: str, topic: TopicView, size: int, now: float) -> int:
        """For `size` bytes of a client in `rack`."""
        # The change may have been told of records with a key, after which others are asked for, later.
        again = self._asked_again and now == self._now and size == self._size
        self._asked_again = False
        if not again:
            if now >= self._look_at or topic.racks is not self._seen:
                self._look(topic, now)
            self._there = self._rack_for(rack) if self._places else NO_RACK
            self._count(self._there, size)
            self._size, self._now = size, now
        there = self._there
        chosen = self._partitioner(there).partition(RackView(topic, there), size, now)
        self._chosen[chosen] = there
        return chosen

    def _look(self, topic: TopicView, now: float) -> None:
        """See how many partitions each rack has. One that had none is taken to have got what the others have."""
        self._seen = topic.racks
        self._look_at = now + LOOK_S if self._patience_s > 0 else inf
        closed = shut(topic, topic.loads(), self._patience_s, now)
        places: dict[str, int] = {}
        for rack, led_there in topic.racks.items():
            count = len(led_there) - len(closed.intersection(led_there)) if closed else len(led_there)
            if count:
                places[rack] = count
        stayed = [rack for rack in places if rack in self._places]
        if len(stayed) < len(places):
            partitions = sum(places[rack] for rack in stayed)
            usual = sum(self._each[rack] * places[rack] for rack in stayed) / partitions if stayed else 0.0
            for rack in places:
                if rack not in self._places:
                    # Not less than it had: being away for a moment is no way to get more than the bound.
                    self._each[rack] = max(self._each.get(rack, 0.0), usual)
        self._places = places

    def _rack_for(self, rack: str) -> str:
        """The one whose partitions take what comes next from a client of `rack`."""
        if len(self._places) == 1:
            return next(iter(self._places))
        least, fewest = rack, float("inf")
        partitions = 0
        total = 0.0
        for name, places in self._places.items():
            each = self._each[name]
            partitions += places
            total += each * places
            if each < fewest:
                least, fewest = name, each
        if rack == NO_RACK or rack not in self._places:
            return least
        fair = total / partitions
        mine = self._each[rack]
        if mine > fair * (1 + self._max_skew) + self._turn:
            return least
        if mine > fair + self._turn and fewest < fair * (1 - self._max_skew):
            return least
        return rack

    def _count(self, rack: str, size: int) -> None:
        if rack not in self._places:
            return  # no leader anywhere: who will take it is not known
        each = self._each[rack] + size / self._places[rack]
        self._each[rack] = each
        if each > 2 * WINDOW * self._turn:
            for name in self._each:
                self._each[name] /= 2

    def _partitioner(self, rack: str) -> Partitioner:
        partitioner = self._by_rack.get(rack)
        if partitioner is None:
            partitioner = self._by_rack[rack] = self._make()
        return partitioner

    def on_new_batch(self, topic: TopicView, partition: int) -> bool:
        """Told to the partitioner of the leader's rack."""
        for rack, places in topic.racks.items():
            if partition in places:
                self._asked_again = self._partitioner(rack).on_new_batch(RackView(topic, rack), partition)
                return self._asked_again
        return False

    def on_acknowledged(self, partition: int, seconds: float) -> None:
        """Told to the partitioner that chose it."""
        rack = self._chosen.get(partition)
        if rack is not None:
            self._partitioner(rack).on_acknowledged(partition, seconds)

    def choices(self) -> Mapping[str, int]:
        """Of all racks' partitioners together."""
        total: dict[str, int] = {}
        for partitioner in self._by_rack.values():
            for kind, count in partitioner.choices().items():
                total[kind] = total.get(kind, 0) + count
        return total


class OfRack:
    """A RackPartitioner as clients of one rack ask it (a Partitioner)."""

    __slots__ = ("_all", "_rack")

    def __init__(self, partitioner: RackPartitioner, rack: str) -> None:
        self._all = partitioner
        self._rack = rack

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        """For `size` bytes of a client in this rack."""
        return self._all.partition(self._rack, topic, size, now)

    def on_new_batch(self, topic: TopicView, partition: int) -> bool:
        """As of all racks."""
        return self._all.on_new_batch(topic, partition)

    def on_acknowledged(self, partition: int, seconds: float) -> None:
        """As of all racks."""
        self._all.on_acknowledged(partition, seconds)

    def choices(self) -> Mapping[str, int]:
        """Of all racks."""
        return self._all.choices()
