"""To which broker a partition's next request goes when its leader changes, where one client connection serves all.

A client that speaks with each broker on a connection of its own has this order for nothing: what it has sent to the
former leader is refused there, all of it, before it hears of the new one. Here all requests come on one connection, and
the next could go to the new leader while, or after, the one before it fails at the former. It would overtake it, and a
broker that knows nothing yet of the producer accepts any first sequence (KAFKA-15591).

In: each request for a partition, by the numbers of its batch, and what became of it. Out: the broker it goes to, or
NOWHERE, where it is to be refused: the client sent it before it knew that an earlier one had failed.

1. While a request for the partition is unanswered at a broker, the next goes there as well.
2. Once one has failed, others of the same producer and epoch go to no other broker until that one has come again: a
   client sends what failed first, under the same sequence or in a new epoch. Nor does that one while anything is
   unanswered at the former leader, which gets nothing more: it ends. Nor do others go to the same broker where it
   said that it does not lead the partition: it may lead it again by the time that they come.
3. LATE_S after the failure the second rule is over: the client has given that batch up, and brokers can judge.

    0–9 unanswered at 1, leader 2    10–19 → 1
    0–9 failed at 1, leader 2        10–19 → NOWHERE, 0–9 → 2, then 10–19 → 2
"""

from __future__ import annotations

from typing import Final

from forebay_codecs.record_batch import BatchNumbers

NOWHERE: Final = -1
LATE_S: Final = 60.0
"""As in leader_move: clients wait less for an answer, by default."""

MOST: Final = 10_000
"""Partitions that are remembered for a refusal: a client may name any number of them."""

PartitionKey = tuple[str, int]
"""(topic, partition)."""


class _Failure:
    """The first batch that failed and has not come again. `node_id` is who may judge others; NOWHERE: nobody."""

    __slots__ = ("at", "node_id", "numbers")

    def __init__(self, numbers: BatchNumbers, node_id: int, at: float) -> None:
        self.numbers = numbers
        self.node_id = node_id
        self.at = at

    def over(self, numbers: BatchNumbers | None, now: float) -> bool:
        """Whether a batch with these numbers shows that it will not come again, or it is too long ago."""
        own = self.numbers
        return (
            numbers is None
            or numbers.producer_id != own.producer_id
            or numbers.producer_epoch != own.producer_epoch
            or now >= self.at + LATE_S
        )

    def comes_again(self, numbers: BatchNumbers | None) -> bool:
        """Whether it is that batch, not one that was sent before the client knew of the failure."""
        return numbers == self.numbers


class _Partition:
    __slots__ = ("failure", "node_id", "unanswered")

    def __init__(self) -> None:
        self.node_id = NOWHERE
        """Where requests are unanswered."""
        self.unanswered = 0
        self.failure: _Failure | None = None


class LeaderHandover:
    """Of one client connection: no batch of a producer is at a partition's log before one that was sent earlier.

    Of partitions it remembers those with unanswered or failed requests. Times are in seconds of one clock.
    """

    __slots__ = ("_partitions",)

    def __init__(self) -> None:
        self._partitions: dict[PartitionKey, _Partition] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def broker(self, key: PartitionKey, leader_id: int, numbers: BatchNumbers | None, now: float) -> int:
        """Where the next request for the partition goes; `leader_id` is who leads it now, NOWHERE: nobody."""
        partition = self._partitions.get(key)
        if partition is None:
            return leader_id
        failure = partition.failure
        if failure is not None and failure.over(numbers, now):
            partition.failure = failure = None
        if partition.unanswered:
            may_follow = failure is None or partition.node_id == leader_id == failure.node_id
            return partition.node_id if may_follow else NOWHERE
        if failure is not None and failure.comes_again(numbers):
            partition.failure = failure = None
        if failure is None:
            del self._partitions[key]
            return leader_id
        return leader_id if failure.node_id == leader_id else NOWHERE

    def sent(self, key: PartitionKey, node_id: int) -> None:
        """It went to that broker, which will answer."""
        partition = self._of(key)
        partition.node_id = node_id
        partition.unanswered += 1

    def answered(self, key: PartitionKey) -> None:
        """The broker has taken a request that was `sent`."""
        partition = self._of(key)
        partition.unanswered -= 1
        if not partition.unanswered and partition.failure is None:
            del self._partitions[key]

    def failed(self, key: PartitionKey, numbers: BatchNumbers | None, now: float, *, judged: bool) -> None:
        """A request that was `sent` was not taken. `judged`: by the leader; otherwise the broker said that it is not,
        or its connection has ended."""
        partition = self._of(key)
        self._fails(partition, numbers, partition.node_id if judged else NOWHERE, now)
        self.answered(key)

    def refused(self, key: PartitionKey, numbers: BatchNumbers | None, now: float) -> None:
        """A request was sent nowhere, and its client is told so."""
        if numbers is not None and (key in self._partitions or len(self._partitions) < MOST):
            self._fails(self._of(key), numbers, NOWHERE, now)

    def _fails(self, partition: _Partition, numbers: BatchNumbers | None, node_id: int, now: float) -> None:
        if numbers is not None and partition.failure is None:
            partition.failure = _Failure(numbers, node_id, now)

    def _of(self, key: PartitionKey) -> _Partition:
        partition = self._partitions.get(key)
        if partition is None:
            partition = self._partitions[key] = _Partition()
        return partition
