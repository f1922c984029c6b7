"""Who may hold how much of `buffer.memory`: dynamic thresholds, as in switches whose ports share one memory.

In: what brokers, partitions and clients hold, what is free, what a request asks for. Out: the party that holds it up,
or none. Nothing is held or given here; BufferPool does that.

Rules, for a request of `size` bytes, of which what is left free after it is `spare` = free − size
1. Broker (the leader of a partition; "no leader" is a broker, too): what clients hold with their first requests to it,
   sent while they held nothing there, + size ≤ spare.
2. Partition, and client at each broker: held + size ≤ spare − what the broker holds. Who holds nothing yet is exempt.
3. A request larger than rule 1 allows is let in when its brokers hold nothing and it fits, or when nobody holds
   anything. Not so where there is no leader: nothing would drain it. Until then others that hold nothing pass it.

A party in trouble may thus hold as much as it leaves free, and no number of parties needs to be known. Of 12 MiB, with
small requests of many clients:
    1 broker hangs     6                   6 free
    2 at once          4 4                 4 free
    3 at once          3 3 3               3 free
    1 partition hangs  4                   4 free for its broker's others, 4 more for other brokers
    2 partitions of a broker hang  2.4 2.4   2.4 free for its broker's others, 4.8 more for other brokers
What others hold meanwhile counts as not free, so those in trouble get less as those that are well take more. Nothing is
taken back: of brokers that hang one after the other each halves what is left, until what they hold is answered or late.
So rule 1 does not count what is stuck at a broker that is well: whatever a partition of it took while much was free, a
client that holds nothing there is let in as soon as the first requests of others are answered.

(A. Choudhury, E. Hahne: Dynamic queue length thresholds for shared-memory packet switches, 1998.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple, Protocol

BROKER: Final = 0
PARTITION: Final = 1
CLIENT: Final = 2
TENANT: Final = 3


class Tenant:
    """One identity among several that share the memory: what its records hold, in whole chunks, and how many requests
    of it wait. `let_in`: the number of the grant that let one in last."""

    __slots__ = ("held", "let_in", "waiting")

    def __init__(self) -> None:
        self.held = 0
        self.waiting = 0
        self.let_in = 0


class Partition(Protocol):
    """What the rules need to know of a partition."""

    leader: int
    """A node id; negative: there is none."""
    held: int
    """Bytes of memory, in whole chunks."""

    def __hash__(self) -> int:
        """By identity."""


class Topic(Protocol):
    """What the rules need to know of a topic whose records may go to any of its partitions."""

    available: Sequence[int]
    leaders: Sequence[int]

    def held(self, partition: int) -> int:
        """Bytes of memory, in whole chunks."""

    def __hash__(self) -> int:
        """By identity."""


class Party(NamedTuple):
    """`kind` is BROKER, PARTITION, CLIENT or TENANT; `key` is a node id, a Partition (or a Topic, where any of its
    partitions would do), the client and a node id, or a Tenant."""

    kind: int
    key: Hashable


Places = dict[tuple[Topic, int, int], int]
"""Where records without a key would go, by topic, size and what is left free, for as long as nothing changes. So those
that wait for one topic have its partitions gone over once, and not once for each of them."""


class MemoryRequest:
    """What one Produce request asks for: bytes for partitions, and bytes for any available partition of a topic.

    `tenant`: whose records they are; None where all are one identity's.
    """

    __slots__ = ("client", "movable", "partitions", "size", "tenant")

    def __init__(self, client: Hashable, tenant: Tenant | None = None) -> None:
        self.client = client
        self.tenant = tenant
        self.size = 0
        self.partitions: list[tuple[Callable[[], Partition], int]] = []
        self.movable: list[tuple[Topic, int]] = []

    def add(self, partition: Callable[[], Partition], size: int) -> None:
        """Records that stay on `partition`, which is looked up each time: while a request waits, another may stand for
        it, as where each client id has a queue of its own, and only for as long as it needs one."""
        self.size += size
        self.partitions.append((partition, size))

    def add_movable(self, topic: Topic, size: int) -> None:
        """Records whose partition is chosen when they are let in."""
        self.size += size
        self.movable.append((topic, size))


class HeldUp:
    """The parties that hold up requests that wait. Those behind them that share one wait, too."""

    __slots__ = ("brokers", "clients", "partitions", "tenants")

    def __init__(self) -> None:
        self.brokers: set[Hashable] = set()
        self.partitions: set[Hashable] = set()
        self.clients: set[Hashable] = set()
        self.tenants: set[Hashable] = set()

    def add(self, party: Party) -> None:
        """A request waits because of `party`."""
        if party.kind == BROKER:
            self.brokers.add(party.key)
        elif party.kind == PARTITION:
            self.partitions.add(party.key)
        elif party.kind == CLIENT:
            self.clients.add(party.key)
        else:
            self.tenants.add(party.key)

    def clear(self) -> None:
        """Nobody waits."""
        self.brokers.clear()
        self.partitions.clear()
        self.clients.clear()
        self.tenants.clear()


class Held:
    """What a client holds of one broker's share, and what of it with the request that it sent when it held nothing."""

    __slots__ = ("first", "size")

    def __init__(self, size: int) -> None:
        self.first = size
        self.size = size


class MemoryShares:
    """What brokers and clients hold, in bytes, and who may have more."""

    __slots__ = ("brokers", "clients", "first", "memory")

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.brokers: dict[int, int] = {}
        """By node id."""
        self.clients: dict[tuple[Hashable, int], Held] = {}
        """By client and node id."""
        self.first: dict[int, int] = {}
        """By node id: what clients hold with requests that they sent while they held nothing there."""

    def charge_broker(self, node_id: int, size: int) -> None:
        """The broker holds `size` bytes more; fewer if negative."""
        held = self.brokers.get(node_id, 0) + size
        if held:
            self.brokers[node_id] = held
        else:
            self.brokers.pop(node_id, None)

    def charge_client(self, client: Hashable, node_id: int, size: int, charged: int = 0) -> None:
        """The client holds `size` bytes more of the broker's share; fewer if negative.

        `charged` is what the same request has been charged there before.
        """
        share = client, node_id
        held = self.clients.get(share)
        if held is None:
            if size:
                self.clients[share] = Held(size)
                self.first[node_id] = self.first.get(node_id, 0) + size
            return
        if 0 < charged == held.size and size > 0:  # still its first request, and nothing else
            held.first += size
            self.first[node_id] += size
        held.size += size
        if not held.size:
            del self.clients[share]
            first = self.first[node_id] - held.first
            if first:
                self.first[node_id] = first
            else:
                del self.first[node_id]

    def obstacle(self, asked: MemoryRequest, free: int, ahead: HeldUp, places: Places | None = None) -> Party | None:
        """The party that holds `asked` up while `free` bytes are free; None: it may be let in.

        `places` are those known since anything changed, and are added to.

        Behind a request that is held up by its broker, `ahead`, those wait that hold something of that broker's share
        already. Those that hold nothing do not: one large request would make them all wait for what is stuck there.
        """
        if places is None:
            places = {}
        spare = free - asked.size
        brokers, client = self.brokers, asked.client
        demands: dict[int, int] = {}
        known: set[int] = set()
        for find, size in asked.partitions:
            partition = find()
            if partition in ahead.partitions:
                return Party(PARTITION, partition)
            leader = partition.leader
            if held := partition.held:
                if held + size > spare - brokers.get(leader, 0):
                    return Party(PARTITION, partition)
                known.add(leader)
            demands[leader] = demands.get(leader, 0) + size
        for topic, size in asked.movable:
            if topic in ahead.partitions:
                return Party(PARTITION, topic)
            if not topic.leaders:
                continue  # the topic is gone meanwhile, and its records will be refused
            place = topic, size, spare
            found = places.get(place)
            if found is None:
                found = places[place] = self._place(topic, size, spare + size)
            if found < 0:
                found = ~found
                held = brokers.get(topic.leaders[found], 0)
                if held and size <= spare + held:  # else it waits by rule 3, as one for a partition does
                    return Party(PARTITION, topic)
            leader = topic.leaders[found]
            demands[leader] = demands.get(leader, 0) + size
        idle = spare >= 0 or free >= self.memory
        crowded: Party | None = None
        for leader, size in demands.items():
            share = client, leader
            if share in ahead.clients:
                return Party(CLIENT, share)
            held = brokers.get(leader, 0)
            has = self.clients.get(share)
            if has is not None:
                if has.size + size > spare - held:
                    return Party(CLIENT, share)
                known.add(leader)
            if leader in known and leader in ahead.brokers:
                return Party(BROKER, leader)
            idle = idle and not held and leader >= 0
            if crowded is None and self.first.get(leader, 0) + size > spare:
                # What would not fit even if this broker held nothing is too large for now, and in nobody else's way.
                possible = min(asked.size, self.memory) <= free + held
                crowded = Party(BROKER, leader) if possible else Party(CLIENT, share)
        return None if idle else crowded

    def has_room(self, node_id: int, held: int, size: int, free: int) -> bool:
        """Whether a partition of the broker that holds `held` bytes may have `size` more, by rules 1 and 2."""
        taken = held + self.brokers.get(node_id, 0) if held else self.first.get(node_id, 0)
        return taken + size <= free - size

    def roomiest(self, topic: Topic, size: int, free: int) -> int:
        """The partition that holds least, of the available ones that have room for `size` bytes; −1 if none has."""
        leaders = topic.leaders
        found = -1
        least = 0
        for index in topic.available or range(len(leaders)):
            held = topic.held(index)
            if (found < 0 or held < least) and self.has_room(leaders[index], held, size, free):
                found, least = index, held
                if not held:
                    break
        return found

    def _place(self, topic: Topic, size: int, free: int) -> int:
        """As `roomiest`; where no partition has room, ~ one of the broker that holds least."""
        found = self.roomiest(topic, size, free)
        if found >= 0:
            return found
        leaders, brokers = topic.leaders, self.brokers
        return ~min(topic.available or range(len(leaders)), key=lambda index: brokers.get(leaders[index], 0))
