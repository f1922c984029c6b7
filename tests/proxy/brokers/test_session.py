"""When a login is due again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from time import monotonic

from forebay_proxy.brokers.session import NEVER, Session
from forebay_proxy.security.authenticator import Call
from tests.kit.event_loop import in_loop


async def nobody(build: Callable[[int], bytes]) -> bytes:
    raise AssertionError("the session itself says nothing")


def lasting(lifetime: float, seed: int = 1) -> Session:
    async def log_in(call: Call) -> float:
        assert call is nobody
        return lifetime

    return Session(log_in, Random(seed))


@in_loop
async def test_it_is_due_after_most_of_its_life_each_at_another_time() -> None:
    dues = set()
    for seed in range(50):
        session = lasting(1_000.0, seed)
        assert session.due == NEVER
        before = monotonic()
        await session.renew(nobody)
        left = session.due - before
        assert 850 <= left <= 951
        dues.add(round(left))
    assert len(dues) > 20


@in_loop
async def test_without_a_lifetime_it_is_never_due() -> None:
    session = lasting(0.0)
    await session.renew(nobody)
    assert session.due == NEVER


@in_loop
async def test_never_sooner_than_brokers_take_it() -> None:
    session = lasting(0.01)
    before = monotonic()
    await session.renew(nobody)
    assert session.due - before >= 1.0
