"""A scrape says what `expose` says, and while it is made others go on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client.parser import text_string_to_metric_families

from forebay_proxy.metrics.exposition import expose
from forebay_proxy.metrics.registry import Snapshot
from forebay_proxy.metrics.scrapes import SLICE, Scrapes
from forebay_proxy.metrics.topics_seen import NamedTopics
from tests.kit.event_loop import in_loop, turns
from tests.kit.metrics import everything

VERSION = "1.2.3"
ASKED = "forebay_throttled_requests_total"


class Taking:
    """A process with many brokers and topics, and how often a snapshot of it was taken."""

    def __init__(self) -> None:
        self.stats = everything(clock=lambda: 5.0)
        for number in range(70):
            self.stats.histogram("forebay_broker_latency_seconds", node=str(number)).observe(number / 7)
            self.stats.topics.sent(f"topic-{number}", 0, number, 9)
        self.taken = 0

    def __call__(self) -> Snapshot:
        self.taken += 1
        return self.stats.take()


def scrapes_of(take: Taking, most: int = 1000) -> Scrapes:
    return Scrapes(take, VERSION, NamedTopics(most))


def asked(body: bytes) -> float:
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    return families[ASKED.removesuffix("_total")].samples[0].value


@contextmanager
def turning() -> Iterator[list[int]]:
    """How often whoever else is in the loop had a turn."""
    count = [0]

    async def turn() -> None:
        while True:
            count[0] += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(turn())
    try:
        yield count
    finally:
        other.cancel()


@in_loop
async def test_it_is_what_is_told_in_one_piece() -> None:
    take = Taking()
    for most in (0, 3, 1000):
        told = await scrapes_of(take, most).metrics()
        assert told == expose(take.stats.take(), VERSION, NamedTopics(most))


@in_loop
async def test_while_it_is_made_others_have_their_turn() -> None:
    scrapes = scrapes_of(Taking())
    with turning() as count:
        body, _ = await scrapes.metrics()
    assert count[0] > len(body) // (2 * SLICE) > 5


@in_loop
async def test_who_asks_meanwhile_shares_the_next_one_and_gets_nothing_from_before() -> None:
    take = Taking()
    scrapes = scrapes_of(take)
    counter = take.stats.counter(ASKED)
    told = [asyncio.create_task(scrapes.metrics())]
    await turns(3)
    counter.value += 1
    told += [asyncio.create_task(scrapes.metrics()) for _ in range(5)]
    first, *others = [body for body, _ in await asyncio.gather(*told)]
    assert (asked(first), {asked(body) for body in others}) == (1, {2})
    assert take.taken == 2


@in_loop
async def test_counters_never_fall_whoever_asks_and_whoever_gives_up() -> None:
    take = Taking()
    scrapes = scrapes_of(take, 10)
    counter = take.stats.counter(ASKED)

    async def watch() -> None:
        before = 0.0
        for _ in range(4):
            counter.value += 1
            now = asked((await scrapes.metrics())[0])
            assert now > before
            before = now

    async def give_up() -> None:
        for number in range(12):
            asking = asyncio.create_task(scrapes.metrics())
            await turns(number)
            asking.cancel()

    await asyncio.gather(watch(), watch(), give_up())


@in_loop
async def test_one_that_is_cut_off_leaves_nothing_and_others_get_theirs() -> None:
    take = Taking()
    scrapes = scrapes_of(take)
    first, second = (asyncio.create_task(scrapes.metrics()) for _ in range(2))
    await turns(3)
    first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await first
    assert (await second)[0] == expose(take.stats.take(), VERSION, NamedTopics(1000))[0]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not [kept for kept in vars(scrapes).values() if isinstance(kept, bytes) and kept]
