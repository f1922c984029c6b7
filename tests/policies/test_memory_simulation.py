"""Honest clients beside brokers that hang, partitions that are stuck or without a leader, and clients that flood.

One topic of three partitions a broker: 0 to 3 honest clients' own, 4 to 7 and 8 to 11 for everybody, and 12 without a
leader. A step of the clock: whoever has nothing unanswered sends, then each broker that is well takes `TAKES` bytes and
answers what it took before. A flood answers each answer with the next request and never gives up, on twenty
connections of one client id, to partitions of all kinds. Requests take up to a sixteenth of the memory: 2 MiB of 32.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_policies.accumulator import NO_LEADER, PartitionQueue
from forebay_policies.memory_shares import MemoryRequest
from forebay_policies.producer_batch import ProducerBatch, RecordRun
from tests.policies.accumulator_kit import KIB, Bench
from tests.policies.batches import KEPT, FakeOwner, client_batch

MEMORY = 256 * KIB
BROKERS = 4
EVERYBODYS = range(BROKERS, 3 * BROKERS + 1)
TAKES = 8 * KIB
ORDINARY = 1 * KIB
PATIENCE = MEMORY // TAKES + 2
"""Steps in which a broker takes as much as all memory holds, and answers it."""
STEPS = 3 * PATIENCE
CONNECTIONS = 20


class Owner(FakeOwner):
    """One request; gives back what its client is charged with once it is told."""

    def __init__(self, world: World, client: str) -> None:
        super().__init__(client=client)
        self.world = world
        self.charged = (0, 0)

    def acknowledged(self, run: RecordRun, base_offset: int, log_append_time: int, log_start_offset: int) -> None:
        self.done = True
        self.world.bench.pool.charge(self.client, self.charged[0], -self.charged[1])


class Connection:
    """Sends one request after the other, each when the one before is answered."""

    def __init__(self, world: World, client: str, size: int, partitions: list[int]) -> None:
        self.world = world
        self.client = client
        self.batch = client_batch(bytes(size))
        self.partitions = partitions
        self.owner: Owner | None = None
        self.since = 0.0
        self.waits = False
        self.longest_wait = 0.0
        self.sent = 0

    def step(self) -> None:
        if self.owner is not None and not self.owner.done:
            if self.waits:
                self._waited()
            return
        world = self.world
        pool = world.bench.pool
        self.owner = Owner(world, self.client)
        self.since = world.bench.now
        self.waits = True
        queue = world.bench.queue(world.rng.choice(self.partitions))
        asked = MemoryRequest(self.client)
        asked.add(lambda: queue, pool.whole_chunks(len(self.batch.section)))
        if pool.fits(asked):
            self._let_in(queue)
        else:
            pool.wait(asked, lambda: self._let_in(queue))

    def _waited(self) -> None:
        self.longest_wait = max(self.longest_wait, self.world.bench.now - self.since)

    def _let_in(self, queue: PartitionQueue) -> None:
        self.waits = False
        self._waited()
        self.sent += 1
        owner, bench = self.owner, self.world.bench
        assert owner is not None
        used = bench.pool.used
        run = RecordRun(owner, 0, self.batch.record_count, moved=False, whole=True)
        bench.accumulator.append(queue, KEPT, run, self.batch, bench.now)
        owner.charged = queue.leader, (bench.pool.used - used) * bench.pool.chunk_size
        bench.pool.charge(self.client, *owner.charged)


class World:
    def __init__(self, hung: set[int], stuck: set[int], floods: int, flood_size: int, honest_size: int, seed: int):
        self.rng = Random(seed)
        self.bench = Bench(memory=MEMORY, chunk=256, batch_size=4 * KIB, max_size=8 * KIB)
        self.bench.lead(*[1 + index % BROKERS for index in range(3 * BROKERS)], NO_LEADER)
        self.well = [leader for leader in range(1, BROKERS + 1) if leader not in hung]
        for index in stuck:
            self.bench.queue(index).paused = True
        self.taken: list[tuple[PartitionQueue, ProducerBatch]] = []
        self.honest = [Connection(self, f"honest {leader}", honest_size, [leader - 1]) for leader in self.well]
        self.floods = [
            Connection(self, f"flood {client}", flood_size, list(EVERYBODYS))
            for client in range(floods)
            for _ in range(CONNECTIONS)
        ]

    def run(self, honest_from: int = 0) -> None:
        for step in range(STEPS):
            self.bench.now += 1
            senders = self.floods + (self.honest if step >= honest_from else [])
            self.rng.shuffle(senders)
            for connection in senders:
                connection.step()
            self._brokers()

    def _brokers(self) -> None:
        taken, self.taken = self.taken, []
        for queue, batch in taken:
            for run in batch.runs:
                run.owner.acknowledged(run, 0, -1, 0)
            self.bench.accumulator.completed(queue, batch, self.bench.now)
        self.bench.flush()
        for leader in self.well:
            size = 0
            while size < TAKES and (drained := self.bench.drain(leader, TAKES)):
                size += sum(batch.size for _, batch in drained)
                self.taken += drained


@settings(max_examples=40, deadline=None)
@given(
    hung=st.sets(st.integers(1, BROKERS), max_size=BROKERS - 1),
    stuck=st.sets(st.integers(BROKERS, 3 * BROKERS - 1), max_size=2 * BROKERS),
    floods=st.integers(1, 3),
    flood_size=st.sampled_from([100, 1000, 4000, 16_000]),
    honest_from=st.sampled_from([0, 2 * PATIENCE]),
    seed=st.integers(0, 1 << 16),
)
def test_no_mix_of_stuck_parties_keeps_an_honest_one_from_its_share(
    hung: set[int], stuck: set[int], floods: int, flood_size: int, honest_from: int, seed: int
) -> None:
    world = World(hung, stuck, floods, flood_size, ORDINARY - 100, seed)
    world.run(honest_from)

    for connection in world.honest:
        assert connection.sent > 1, "it never got in"
        assert connection.longest_wait <= PATIENCE
    assert world.bench.pool.available > 0, "some is always left"


def test_what_hangs_fills_its_share() -> None:
    """Else the test above would show nothing: with one queue for all, nobody would get in here."""
    world = World({1, 2}, set(range(BROKERS, 2 * BROKERS)), 3, 4000, ORDINARY - 100, 1)
    world.run()

    shares = world.bench.pool.shares.brokers
    assert shares[1] + shares[2] + shares[NO_LEADER] > MEMORY // 3
    assert world.bench.pool.waiting > 0
