"""Sequence numbers, by which a broker recognises a batch that it has already (KIP-98, KIP-360).

A broker keeps, for each partition and producer id, the epoch and the sequences of the last five batches. A batch that
is sent again with the same id, epoch and sequences is answered as before and not appended again. So a batch whose
answer was lost can be sent again, as long as everything else about these numbers is exact.

In: batches as they leave, and what became of each. Out: the numbers that each carries. The queue's rules:

1. The next sequence is used by one batch at a time, since at most one batch of a queue is away. It is taken when the
   batch is drained; acknowledged, the queue goes on behind it; refused for certain, the next batch gets the same.
2. **A sequence whose batch may have been appended is never given to another batch.** A broker tells batches apart by
   epoch, first and last sequence alone, so another one of as many records would be "acknowledged" and lost. Whoever
   drops such a batch raises the epoch, and sequences begin at 0 again.
3. The epoch is raised for one partition, never for the producer: on other partitions batches may be away.
4. Once a batch of the raised epoch is appended, late copies of what was dropped are refused.

    away       answer       what the broker has      next
    0–4        none         0–4, or nothing          the same batch again as 0–4
    0–4        0–4 is here  0–4                      5
    5–7        refused      0–4                      5
    5–9        none, and nobody waits any more       epoch + 1, sequence 0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from forebay_policies.throttling import CLIENT_ID

if TYPE_CHECKING:
    from forebay_policies.producer_batch import ProducerBatch

MAX_EPOCH: Final = 32767
SEQUENCE_MASK: Final = 0x7FFFFFFF
"""After 2147483647 comes 0."""

MAX_IDS: Final = 1000
"""Of a worker: one for acks=1, one for acks=all, and two for each client id while a broker meters clients. What further
client ids send leaves without: brokers remember each id that was ever asked for, for a day."""

UNUSED_S: Final = 3600.0
"""Then a client id's makes room for others."""

Kind = tuple[bool, bool, str | None]
"""Which queues of different partitions share a producer id: (acks=all, of one client id only, client id). Queues of one
partition do not: each is sent by itself, so one's batch could overtake another's."""


def _nobody_asks() -> None:
    """Before anybody observes."""


class ProducerId:
    """A producer id that a broker gave out. `first_epoch`: what a queue that begins to use it begins with."""

    __slots__ = ("first_epoch", "number", "unused_since", "users")

    def __init__(self, number: int, first_epoch: int) -> None:
        self.number = number
        self.first_epoch = first_epoch
        self.users = 0
        """Queues that go on with it."""
        self.unused_since: float | None = None
        """When it was first seen without any (`drop_unused`), unless it has had some since."""

    def taken(self) -> None:
        """Another queue begins to use it."""
        self.users += 1
        self.unused_since = None


class ProducerIds:
    """The producer ids of a worker, one for each kind of queue. No (id, partition, epoch) is ever begun twice.

    Whoever asks brokers for ids calls `observe`, and looks at `wanted` when told. Until an id arrives, and without one,
    batches carry none.
    """

    def __init__(self) -> None:
        self.wanted: dict[Kind, None] = {}
        """Kinds that need an id, in the order in which they did."""
        self.bumps = 0
        """Epochs raised so far."""
        self.ran_out = False
        """There was no room for a client id's, at least once; `wanted` is told of that, too."""
        self._on_wanted: Callable[[], None] = _nobody_asks
        self._enabled = False
        self._current: dict[Kind, ProducerId] = {}

    @property
    def enabled(self) -> bool:
        """Whether batches are to carry sequences."""
        return self._enabled

    @property
    def count(self) -> int:
        """Ids in use."""
        return len(self._current) if self._enabled else 0

    def observe(self, wanted: Callable[[], None]) -> None:
        """From now on ids are asked for: `wanted` is told when there is news in `wanted`."""
        self._on_wanted = wanted
        self.enable()

    def enable(self) -> None:
        """Brokers may be asked for ids, the first time or again."""
        self._enabled = True
        for waits in (False, True):
            self.of((waits, False, CLIENT_ID))

    def disable(self) -> None:
        """Brokers give out no ids, or do not take them: from now on batches leave without."""
        self._enabled = False
        self.wanted.clear()

    def of(self, kind: Kind) -> ProducerId | None:
        """The id for queues of that kind that have none yet; None where it has to arrive first."""
        found = self._current.get(kind)
        if found is None and self._enabled and kind not in self.wanted and self._has_room(kind):
            self._want(kind)
        return found

    def arrived(self, kind: Kind, number: int, epoch: int) -> None:
        """A broker gave out this id, which is used from this epoch on."""
        self.wanted.pop(kind, None)
        self._current[kind] = ProducerId(number, epoch)

    def used_up(self, kind: Kind, number: int) -> None:
        """A partition cannot go on with this id: the kind gets another one, which replaces it as queues need one."""
        current = self._current.get(kind)
        if current is not None and current.number == number:
            del self._current[kind]
            if self._enabled:
                self._want(kind)

    def renew(self) -> None:
        """Another cluster may have given these ids to others. Of client ids that no queue has nobody misses one."""
        for kind, current in list(self._current.items()):
            if kind[1] and current.users <= 0:
                del self._current[kind]
            else:
                self.used_up(kind, current.number)

    def forgotten(self, kind: Kind, number: int, epoch: int) -> None:
        """A queue that used the id up to `epoch` is gone. Should it come back, it does not know how far it was."""
        current = self._current.get(kind)
        if current is not None and current.number == number:
            current.users -= 1
            if current.first_epoch <= epoch:
                if epoch >= MAX_EPOCH:
                    self.used_up(kind, number)
                else:
                    current.first_epoch = epoch + 1

    def drop_unused(self, now: float) -> None:
        """To be called every few seconds: what no queue of a client id has used for long makes room."""
        for kind, current in list(self._current.items()):
            if kind[1] and current.users <= 0:
                if current.unused_since is None:
                    current.unused_since = now
                elif now - current.unused_since >= UNUSED_S:
                    del self._current[kind]

    def _has_room(self, kind: Kind) -> bool:
        if not kind[1] or len(self._current) + len(self.wanted) < MAX_IDS:
            return True
        if not self.ran_out:
            self.ran_out = True
            self._on_wanted()
        return False

    def _want(self, kind: Kind) -> None:
        if kind not in self.wanted:
            self.wanted[kind] = None
            self._on_wanted()


class QueueSequence:
    """Where one queue of one partition stands: its producer id, its epoch, and the sequence of its next record."""

    __slots__ = ("_ids", "_kind", "epoch", "next", "outdated", "plain", "producer_id")

    def __init__(self, ids: ProducerIds, kind: Kind) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.next = 0
        self.outdated = False
        """Its id is to be replaced as soon as there is another."""
        self.plain = False
        """The partition's broker takes no sequences for it (an old message format)."""
        self._ids = ids
        self._kind = kind

    def assign(self, batch: ProducerBatch) -> None:
        """The batch leaves: it gets the next sequence, unless it has one since an earlier attempt."""
        if batch.producer_id >= 0 or not self._ids.enabled or self.plain:
            return
        if self.producer_id < 0 or self.outdated:
            found = self._ids.of(self._kind)
            if found is not None:
                found.taken()
                self.producer_id, self.epoch, self.next, self.outdated = found.number, found.first_epoch, 0, False
            elif self.producer_id < 0:
                return
        batch.producer_id, batch.producer_epoch, batch.base_sequence = self.producer_id, self.epoch, self.next

    def acknowledged(self, batch: ProducerBatch) -> None:
        """Its records are in the log."""
        if self._is_ours(batch):
            self.next = (batch.base_sequence + batch.record_count) & SEQUENCE_MASK
        batch.unsequence()

    def given_back(self, batch: ProducerBatch) -> None:
        """It is certain that no attempt of the batch was appended: the next one gets its sequence."""
        batch.unsequence()

    def bump(self, batch: ProducerBatch) -> None:
        """Its sequence must not be used again: raise the epoch. 32767 is the last one, then the id is used up."""
        if self._is_ours(batch):
            if self.epoch >= MAX_EPOCH:
                self.renew()
            else:
                self.epoch += 1
                self.next = 0
                self._ids.bumps += 1
        batch.unsequence()

    def renew(self) -> None:
        """The broker knows a later epoch of this id than we do, or there is none left: another id is needed."""
        if self.producer_id >= 0:
            self._ids.used_up(self._kind, self.producer_id)
            self.producer_id = -1

    def forgotten(self) -> None:
        """The queue is given up, and may be made again later."""
        if self.producer_id >= 0:
            self._ids.forgotten(self._kind, self.producer_id, self.epoch)
            self.producer_id = -1

    def disable(self) -> None:
        """Brokers do not take what carries an id: all batches leave without from now on."""
        self._ids.disable()

    def _is_ours(self, batch: ProducerBatch) -> bool:
        return batch.producer_id == self.producer_id >= 0 and batch.producer_epoch == self.epoch
