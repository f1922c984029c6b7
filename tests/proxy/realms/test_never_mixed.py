"""No request holds records of two principals, whatever happens to them on the way; whoever breaks that is found out.

Realms of many principals share one memory. Clients append, expire, leave; batches are sent, acknowledged, refused,
lost, split, moved, taken apart by client id; leaders change. Each request is looked at as a sender looks at it, and
once more record by record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from random import Random
from typing import NoReturn

import pytest

from forebay_codecs import compression
from forebay_policies.accumulator import Accumulator, PartitionQueue
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.memory_shares import MemoryRequest
from forebay_policies.producer_batch import Lane, ProducerBatch, RecordRun
from forebay_proxy.produce import one_principal
from tests.policies.batches import client_batch

PARTITIONS, NODES = 4, (1, 2, 3)
CHUNK = 64
MEMORY = 4096 * CHUNK
BATCHES = {
    codec: [client_batch(*[b"x" * size] * count, codec=codec) for size in (1, 40) for count in (1, 3)]
    for codec in (compression.NONE, compression.GZIP)
}


class Owner:
    """A request of a client that is known to be `principal`."""

    def __init__(self, principal: str, client: str) -> None:
        self.principal = principal
        self.client = client
        self.client_id: str | None = client
        self.timeout_ms = 1000
        self.done = self.left = False

    def acknowledged(self, *_: object) -> None: ...

    def failed(self, *_: object) -> None: ...

    def throttle(self, throttle_time_ms: int) -> None: ...


class Realm:
    """One principal's accumulator, and connections that are logged in as it."""

    def __init__(self, principal: str, pool: BufferPool, rng: Random) -> None:
        self.principal = principal
        self.accumulator = Accumulator(pool, 4 * CHUNK, 64 * CHUNK)
        self.accumulator.observe(opened=lambda queue, batch: None, ready=lambda leader: None)
        self.topic = self.accumulator.topic("topic")
        self.away: list[tuple[PartitionQueue, ProducerBatch]] = []
        self.paused: list[PartitionQueue] = []
        self.elect(rng)

    def elect(self, rng: Random, now: float = 0.0) -> None:
        self.accumulator.set_leaders(self.topic, [rng.choice(NODES) for _ in range(PARTITIONS)], now)


class World:
    """`lookup` finds the realm of a principal. `mixed`: what would have been sent as somebody else."""

    def __init__(self, seed: int, realms: int, lookup: Callable[[World, str], Realm] | None = None) -> None:
        self.rng = Random(seed)
        self.pool = BufferPool(MEMORY, CHUNK, 4 * CHUNK)
        self.freed = False
        self.pool.observe(self.memory_freed)
        self.realms = {f"user-{n}": Realm(f"user-{n}", self.pool, self.rng) for n in range(realms)}
        self.principals = list(self.realms)
        self.lookup = lookup or (lambda world, principal: world.realms[principal])
        self.now = 0.0
        self.owners: list[Owner] = []
        self.batches = self.requests = 0
        self.merged = 0

    def live(self, steps: int) -> None:
        rng = self.rng
        acts = [self.append] * 10 + [self.send] * 6 + [self.hear] * 8 + [self.lapse, self.resume, self.move, self.rest]
        for _ in range(steps):
            self.now += 0.01
            rng.choice(acts)()
            if self.freed:  # soon, as in MemoryGrants: not in the middle of what has freed it
                self.freed = False
                self.pool.grant()

    def memory_freed(self) -> None:
        self.freed = True

    def any_realm(self) -> Realm:
        return self.realms[self.rng.choice(self.principals)]

    def append(self) -> None:
        """Of a client of some principal; it waits for memory where there is none."""
        rng = self.rng
        principal = rng.choice(self.principals)
        realm = self.lookup(self, principal)
        owner = Owner(principal, rng.choice("abc"))
        self.owners.append(owner)
        codec = rng.choice(list(BATCHES))
        batch = rng.choice(BATCHES[codec])
        lane = Lane(rng.choice((1, -1)), codec, rng.random() < 0.5, principal)
        index = rng.randrange(PARTITIONS)
        queue = partial(realm.topic.queue, index, lane.acks, owner.client_id)

        def put() -> None:
            run = RecordRun(owner, 0, batch.record_count, moved=False, whole=True)
            realm.accumulator.append(queue(), lane, run, batch, self.now)

        asked = MemoryRequest((principal, owner.client), realm.accumulator.tenant)
        asked.add(queue, self.pool.whole_chunks(len(batch.section)))
        if self.pool.fits(asked):
            put()
        else:
            self.pool.wait(asked, put)

    def send(self) -> None:
        """Everything of a realm that may go to one broker, in requests of one connection that is logged in as it."""
        realm, leader = self.any_realm(), self.rng.choice(NODES)
        realm.accumulator.flush_all(self.now)
        for group in realm.accumulator.ready_groups(leader):
            drained = realm.accumulator.drain_group(group, 1 << 20, self.now)
            if drained:
                self.requests += 1
                one_principal.ensure_one_principal(realm.principal, drained)
                for queue, batch in drained:
                    self.batches += 1
                    owners = {run.owner for run in batch.runs}
                    self.merged += len(owners) > 1
                    assert {getattr(owner, "principal", None) for owner in owners} == {realm.principal}
                    batch.encode()
                    realm.away.append((queue, batch))

    def hear(self) -> None:
        """What became of a batch that is away: acknowledged, lost, refused for now, refused as a whole."""
        rng, realm = self.rng, self.any_realm()
        if not realm.away:
            return
        queue, batch = realm.away.pop(rng.randrange(len(realm.away)))
        accumulator, now = realm.accumulator, self.now
        fate = rng.random()
        if fate < 0.5 or batch.tries > 3:
            accumulator.completed(queue, batch, now)
        elif fate < 0.6 and len(batch.runs) > 1 and not batch.tainted:
            numbers = accumulator.next_number(), accumulator.next_number()
            accumulator.replace(queue, batch, batch.halves(numbers, now), now)
        elif fate < 0.7 and batch.lane.movable and not batch.tainted:
            self.move_to(realm, queue, batch)
        else:
            batch.tries += 1
            batch.tainted = batch.tainted or fate > 0.9
            accumulator.clear_in_flight(queue, batch)
            accumulator.send_back(queue, (batch,), now, paused=fate < 0.8)
            if queue.paused:
                realm.paused.append(queue)

    def resume(self) -> None:
        realm = self.any_realm()
        while realm.paused:
            realm.accumulator.resume(realm.paused.pop(), self.now)

    def move(self) -> None:
        realm = self.any_realm()
        waiting = [(queue, batch) for queue in realm.topic.queues() for batch in queue.batches]
        waiting = [(queue, b) for queue, b in waiting if b.lane.movable and b.ready and not b.tainted]
        if waiting:
            self.move_to(realm, *self.rng.choice(waiting))

    def move_to(self, realm: Realm, queue: PartitionQueue, batch: ProducerBatch) -> None:
        target = realm.topic.queue((queue.index + 1) % PARTITIONS, batch.lane.acks)
        realm.accumulator.move(batch, queue, target, self.now)

    def lapse(self) -> None:
        """Some clients' time is up, or they have left."""
        for owner in self.owners[: self.rng.randrange(50)]:
            owner.done = self.rng.random() < 0.5
            owner.left = not owner.done
        self.owners = self.owners[-2000:]
        self.any_realm().accumulator.drop_done(self.now)

    def rest(self) -> None:
        """Leaders change, a broker throttles a client, or has not done so for long."""
        realm, rng = self.any_realm(), self.rng
        what = rng.random()
        if what < 0.4:
            realm.elect(rng, self.now)
        elif what < 0.7:
            realm.accumulator.throttled(rng.choice(NODES), rng.choice(("forebay", "a")), 0.01, self.now)
        else:
            self.now += 20.0
            realm.accumulator.settle(self.now)
            realm.accumulator.drop_abandoned(self.now)


class Ended(BaseException):
    """The process would have ended. No Exception: nothing may catch it on the way."""


@pytest.fixture(autouse=True)
def _exits(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(code: int) -> NoReturn:
        assert code == one_principal.EXIT_CODE
        raise Ended

    monkeypatch.setattr("os._exit", ends)


def holds(world: World, steps: int) -> None:
    world.live(steps)
    assert world.batches > steps // 20
    assert world.merged > steps // 200, "of several requests"


def test_no_request_holds_two_principals() -> None:
    holds(World(1, realms=50), 10_000)


@pytest.mark.whole
@pytest.mark.timeout(7200)
def test_no_request_of_ten_million_events_holds_two_principals() -> None:
    """In worlds that begin anew: in one that goes on ever more wait for memory, and each of them is looked at."""
    for seed in range(500):
        holds(World(seed, realms=50), 20_000)


def always_the_same(world: World, _: str) -> Realm:
    return world.realms["user-0"]


def by_its_first_letters(world: World, principal: str) -> Realm:
    """As if a key were cut off: user-1, user-10 … user-19 are one."""
    return world.realms[principal[:6]]


def once_in_a_thousand(turns: cycle[bool], world: World, principal: str) -> Realm:
    return world.realms["user-7"] if next(turns) else world.realms[principal]


@pytest.mark.parametrize(
    "broken",
    [always_the_same, by_its_first_letters, partial(once_in_a_thousand, cycle([*[False] * 999, True]))],
    ids=["always the same", "by its first letters", "once in a thousand"],
)
def test_a_broken_lookup_ends_the_process(broken: Callable[[World, str], Realm]) -> None:
    """The suite's own proof: with the realm's lookup broken, the test above cannot pass."""
    with pytest.raises(Ended):
        holds(World(1, realms=50, lookup=broken), 10_000)
