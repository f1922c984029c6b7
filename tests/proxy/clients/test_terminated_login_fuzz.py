"""Bytes of all kinds before a login that is terminated here: none gets in, none reaches a broker, nothing is left."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from forebay_codecs import api_versions, sasl
from forebay_codecs.api_keys import PRODUCE
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.wire import echo, framed, metadata
from tests.proxy.clients.test_terminated_login import Gate, gate, handshake, presents, records

WAVE = 50


def login(right: bytes) -> list[bytes]:
    return [framed(api_versions.request(1, "c", 3, "c", "1")), handshake(2), presents(3, right), metadata(4, "ponds")]


def damaged(rng: Random) -> bytes:
    """A login of somebody who is nobody, with a few bytes changed, moved, doubled or left out, and what follows it."""
    frames = login(sasl.plain("alice", "wrong"))
    frames += [records("stolen"), echo(5), handshake(6, 0), framed(rng.randbytes(rng.randrange(40)))]
    rng.shuffle(frames)
    data = bytearray(b"".join(frames[: rng.randrange(1, len(frames))]))
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(data))
        change = rng.randrange(3)
        if change == 0:
            data[at] = rng.randrange(256)
        elif change == 1:
            del data[at : at + rng.randrange(1, 9)]
        else:
            data[at:at] = data[at : at + rng.randrange(1, 9)]
        if not data:
            break
    return bytes(data)


async def fails(it: Gate, rng: Random) -> None:
    client = await it.forebay.client(0)
    data = damaged(rng)
    cut = rng.randrange(len(data) + 1)
    client.send(data[:cut])
    await asyncio.sleep(0)
    client.send(data[cut:])
    await turns(rng.randrange(8))
    client.close()


async def waves(count: int) -> None:
    rng = Random(count)
    async with gate() as it:
        for _ in range(count):
            await asyncio.gather(*(fails(it, rng) for _ in range(WAVE)))
            await until(lambda: len(it.forebay.app._connections) == 0)
        assert it.logins("accepted") == 0
        assert it.forebay.clients() == []
        assert not it.asked
        assert not any(broker.requests(PRODUCE) for broker in it.cluster.brokers.values())
        client = await it.user("alice")
        client.send(metadata(4, "ponds"))
        await client.receives(4)


@in_loop
async def test_logins_that_are_damaged_leave_nothing() -> None:
    await waves(4)


@pytest.mark.whole
@pytest.mark.timeout(900)
def test_twenty_thousand_do_not_either() -> None:
    in_loop(lambda: waves(20_000 // WAVE), 800)()
