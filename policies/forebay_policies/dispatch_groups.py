"""Which partitions of a broker share Produce requests, and whose turn it is.

A request carries one client id: Forebay's own, where records of several are merged, or that of the client whose
records it holds, where a broker meters them (throttling.py). Queues of different client ids share none.

A request is answered when its slowest partition is, so only partitions that wait for the same replicas share one:
those of acks=1 for the leader alone, those of acks=all by replica set. A stopped follower then holds up the partitions
that it replicates, which it would do without Forebay, too, and no others.

In: queues that become ready or no longer are, leaders and replicas, and how long each request took. Out: the groups
with something to send, in turn. A partition that is slow for reasons of its own is found by halving, as below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from forebay_policies.throttling import CLIENT_ID

MAX_GROUPS: Final = 16
"""Replica sets of one broker and client id that get a group each; others join one of these, chosen by hash. In a large
cluster a broker's partitions have hundreds, and a request for each would cost more than it gains."""

SLOW: Final = 4
"""An answer that took so many times what is usual in its group is slow."""

USUAL_S: Final = 0.025
"""What is usual is at least this: answers within 4 · 25 = 100 ms are never slow."""

SMOOTHING: Final = 0.125
"""The weight of a new answer in what is usual. Geometric, so that one answer of 10 s makes of 25 ms 53 ms."""


class DispatchGroup:
    """Queues that may share a request, which carries `client_id`. `acks_all`: it waits for followers.

    `suspect`: split off, because a request with all of them was slow. `usual`: seconds that a request takes.
    """

    __slots__ = ("acks_all", "client_id", "leader", "members", "ready", "replicas", "suspect", "usual")

    def __init__(self, leader: int, replicas: tuple[int, ...] | None, client_id: str | None, *, suspect: bool) -> None:
        self.leader = leader
        self.replicas = replicas
        self.client_id = client_id
        self.acks_all = replicas is not None
        self.suspect = suspect
        self.usual = USUAL_S
        self.members = 0
        self.ready: dict[GroupMember, None] = {}
        """Queues with something to send, those that waited longest first."""


class GroupMember:
    """A queue for one partition. `replicas` is None where the leader's acknowledgement suffices.

    `client_id` is what requests with its batches carry, CLIENT_ID where they hold records of several clients.
    `home` is the group of its leader and replicas, `group` where it stands: another one while it is suspect.
    """

    __slots__ = ("client_id", "group", "home", "leader", "replicas")

    def __init__(self, leader: int, replicas: tuple[int, ...] | None, client_id: str | None = CLIENT_ID) -> None:
        self.leader = leader
        self.replicas = replicas
        self.client_id = client_id
        self.home: DispatchGroup | None = None
        self.group: DispatchGroup | None = None


class DispatchGroups:
    """Every queue stands in one group of its leader. Groups take turns, and so do the queues of a group."""

    def __init__(self) -> None:
        self._homes: dict[tuple[int, str | None], dict[tuple[int, ...] | None, DispatchGroup]] = {}
        """By leader and client id, then by replicas."""
        self._turns: dict[int, dict[DispatchGroup, None]] = {}

    # Who belongs where

    def place(self, queue: GroupMember) -> None:
        """Put the queue in the group of its leader, client id and replicas, where it is not ready yet."""
        self.leave(queue)
        homes = self._homes.setdefault((queue.leader, queue.client_id), {})
        home = homes.get(queue.replicas)
        if home is None:
            shared = [group for replicas, group in homes.items() if replicas is not None]
            if queue.replicas is None or len(shared) < MAX_GROUPS:
                home = homes[queue.replicas] = DispatchGroup(
                    queue.leader, queue.replicas, queue.client_id, suspect=False
                )
            else:
                home = shared[hash(queue.replicas) % MAX_GROUPS]
        home.members += 1
        queue.home = queue.group = home

    def leave(self, queue: GroupMember) -> None:
        """The queue is gone, or about to be placed elsewhere; nothing of it is ready any more."""
        self.discard(queue)
        home = queue.home
        if home is not None:
            queue.home = queue.group = None
            home.members -= 1
            if not home.members:
                homes = self._homes[home.leader, home.client_id]
                del homes[home.replicas]
                if not homes:
                    del self._homes[home.leader, home.client_id]

    # Who is ready

    def add(self, queue: GroupMember) -> bool:
        """The queue has something to send. True where that is news."""
        group = queue.group
        assert group is not None
        if queue in group.ready:
            return False
        if not group.ready:
            self._turns.setdefault(group.leader, {})[group] = None
        group.ready[queue] = None
        return True

    def discard(self, queue: GroupMember) -> bool:
        """The queue has nothing to send for now. True where that is news."""
        group = queue.group
        if group is None or queue not in group.ready:
            return False
        del group.ready[queue]
        if not group.ready:
            turns = self._turns[group.leader]
            del turns[group]
            if not turns:
                del self._turns[group.leader]
        return True

    def had_its_turn(self, group: DispatchGroup) -> None:
        """The group was sent from; if it has more, the others come first."""
        turns = self._turns.get(group.leader)
        if turns is not None and len(turns) > 1 and group in turns:
            del turns[group]
            turns[group] = None

    def any_ready(self, leader: int) -> bool:
        """Whether a group of the leader's has something to send."""
        return leader in self._turns

    def ready(self, leader: int) -> Sequence[DispatchGroup]:
        """The groups that have something to send to `leader` (a node id), in turn."""
        return list(self._turns.get(leader, ()))

    def leaders(self) -> Sequence[int]:
        """Those for whom something is ready."""
        return list(self._turns)

    # Who is slow

    def answered(self, group: DispatchGroup, queues: Iterable[GroupMember], seconds: float) -> None:
        """A request of `group` with batches of `queues` took so long. Halve them if that was slow, else clear them.

        Partition 5 of eight takes 3 s, for reasons of its own:

            requests          took         then
            0 1 2 3 4 5 6 7   3 s          0–3 and 4–7 go in requests of their own
            0 1 2 3 | 4 5 6 7 1 ms | 3 s   0–3 are back; 4 5 and 6 7
            4 5 | 6 7         3 s | 1 ms   6 7 are back; 4 and 5
            4 | 5             1 ms | 3 s   4 is back; 5 stays alone for as long as it is slow

        If all are slow, that becomes usual after a dozen answers, and the halves are back.
        """
        here = [queue for queue in queues if queue.group is group and queue.home is not None]
        if not here:
            return  # led by another broker by now
        home = here[0].home
        assert home is not None
        slow = seconds > SLOW * home.usual
        if not (slow and group.suspect and len(here) == 1):
            home.usual *= (max(seconds, USUAL_S) / home.usual) ** SMOOTHING
        if not slow:
            if group.suspect:
                self._stand(here, home)
        elif len(here) > 1:
            if group.acks_all:
                here.sort(key=attrgetter("replicas"))  # replica sets that share a group part first
            middle = len(here) // 2
            for half in (here[:middle], here[middle:]):
                self._stand(half, _suspect(group))
        elif not group.suspect:
            self._stand(here, _suspect(group))

    def _stand(self, queues: Sequence[GroupMember], group: DispatchGroup) -> None:
        for queue in queues:
            was_ready = self.discard(queue)
            queue.group = group
            if was_ready:
                self.add(queue)


def _suspect(group: DispatchGroup) -> DispatchGroup:
    """For what is split off `group`."""
    return DispatchGroup(group.leader, group.replicas, group.client_id, suspect=True)
