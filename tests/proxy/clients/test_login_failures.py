"""Logins that fail, or never end: nothing of them is left, whatever they presented."""

from __future__ import annotations

import asyncio
import gc
import os
from functools import partial
from itertools import cycle, islice

import pytest

from forebay_codecs import sasl
from tests.kit.event_loop import in_loop, until
from tests.kit.fake_broker import BAD_SIGNATURE
from tests.kit.memory import resident
from tests.kit.wire import framed
from tests.proxy.clients.test_login_watch import Town, handshake, presents, records, town
from tests.proxy.clients.test_login_watch_tokens import token

WAVE = 100
SLACK = 2_000_000
"""Bytes: an allocator's reserves."""


def attempts() -> list[list[bytes]]:
    """What clients send that never get in: wrong, cut short, out of order, or nothing more."""
    wrong, bearer = sasl.plain("alice", "wrong"), handshake(1, mechanism="OAUTHBEARER")
    refused = sasl.bearer(token("alice", signature=BAD_SIGNATURE))
    return [
        [],
        [handshake(1)],
        [handshake(1), presents(2, wrong)],
        [handshake(1), presents(2, b"garbage")],
        [handshake(1), presents(2, wrong)[:-3]],
        [handshake(1, 0), framed(wrong)],
        [handshake(1, 0), framed(wrong)[:7]],
        [bearer, presents(2, refused)],
        [bearer, presents(2, refused), presents(3, sasl.BEARER_REFUSED)],
        [handshake(1, mechanism="SCRAM-SHA-256"), presents(2, b"n,,n=alice,r=nonce")],
        [records("alice-ponds", "stolen")],
        [handshake(1), records("alice-ponds", "stolen")],
    ]


async def fail(it: Town, sent: list[bytes]) -> None:
    """Says all of it, and leaves after what was told so far."""
    client = await it.forebay.client(0)
    client.send(*sent)
    await asyncio.sleep(0)
    client.close()


async def wave(it: Town) -> None:
    await asyncio.gather(*(fail(it, sent) for sent in islice(cycle(attempts()), WAVE)))
    it.forebay.close_clients()  # which forgets them, too
    await until(lambda: len(it.forebay.app._connections) == 0)
    await until(lambda: not any(broker.connections for broker in it.cluster.brokers.values()))
    for broker in it.cluster.brokers.values():
        broker.forget()


@partial(in_loop, seconds=1000)
@pytest.mark.parametrize("many", [500, pytest.param(20_000, marks=[pytest.mark.whole, pytest.mark.timeout(1200)])])
async def test_of_logins_that_fail_or_never_end_nothing_is_left(many: int) -> None:
    async with town() as it:
        it.sweep(1e9)
        it.sweep(2e9)  # of the one that looked up the brokers nothing is left either
        assert it.identities == 0
        await wave(it)
        grown = []
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(2):  # what is left behind would grow both times, the allocator's reserves do once
            gc.collect()
            before = resident(os.getpid())
            for _ in range(many // WAVE // 2):
                await wave(it)
            gc.collect()
            grown.append(resident(os.getpid()) - before)
        assert it.identities == 0
        assert it.cluster.log == {}
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 5
        assert min(grown) <= SLACK, grown
        client = await it.user("alice")
        client.send(records("alice-ponds", "a"))
        await client.receives(1)
        assert sum(map(len, it.cluster.log.values())) == 1
