"""Why KIP-794 replaced KIP-480: with one slow broker, switching on new batches feeds the slow partition.

A small world without chance but the seed: one record of 1 KB a tick, three partitions, one batch in flight for each,
linger 0. Partition 0 takes 60 ticks to acknowledge a batch of at most 16 records, the others 1: it can take
16 / 60 = 0.27 of the records and no more.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from forebay_policies.builtin_partitioners import make_partitioner
from forebay_policies.partitioner import Partitioner
from tests.policies.fakes import FakeTopic

KB = 1024
BATCH_SIZE = 16 * KB
SERVICE_TICKS = {0: 60, 1: 1, 2: 1}
TICKS = 6_000


def shares(partitioner: Partitioner) -> list[float]:
    """The share of the records that each partition gets."""
    topic = FakeTopic(3)
    queued: dict[int, list[int]] = {partition: [] for partition in SERVICE_TICKS}  # sizes of batches, the last one open
    away: dict[int, tuple[int, int]] = {}  # partition: (acknowledged at, size)
    records: Counter[int] = Counter()

    def opens_batch(partition: int) -> bool:
        return not queued[partition] or queued[partition][-1] + KB > BATCH_SIZE

    for tick in range(TICKS):
        for partition in [p for p, (at, _) in away.items() if at <= tick]:
            topic.load[partition] -= away.pop(partition)[1]

        partition = partitioner.partition(topic, KB, float(tick))
        if opens_batch(partition) and partitioner.on_new_batch(topic, partition):
            partition = partitioner.partition(topic, KB, float(tick))
        if opens_batch(partition):
            queued[partition].append(0)
        queued[partition][-1] += KB
        topic.load[partition] = topic.load.get(partition, 0) + KB
        records[partition] += 1

        for partition, batches in queued.items():
            if batches and partition not in away:
                away[partition] = (tick + SERVICE_TICKS[partition], batches.pop(0))
    return [records[partition] / TICKS for partition in SERVICE_TICKS]


def made(name: str) -> Partitioner:
    return make_partitioner(name, rng=Random(7), batch_size=BATCH_SIZE)


def test_sticky_on_new_batch_feeds_the_slow_partition() -> None:
    slow, *fast = shares(made("sticky"))
    assert slow > 3 * max(fast)


def test_uniform_does_not() -> None:
    # 375 turns of 16 records: a share of 1/3 has a standard deviation of sqrt(1/3 * 2/3 / 375) = 0.024.
    assert all(abs(share - 1 / 3) < 4 * 0.024 for share in shares(made("uniform")))


def test_adaptive_gives_it_no_more_than_it_can_take() -> None:
    slow, *_ = shares(made("adaptive"))
    assert slow < BATCH_SIZE / KB / SERVICE_TICKS[0]
