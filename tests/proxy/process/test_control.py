"""The channel between the supervisor and a worker, over real sockets and the loop that Forebay runs on."""

from __future__ import annotations

import socket

from forebay_proxy.process.control import Ask, Channel, Drain
from tests.kit.event_loop import in_loop, until


@in_loop
async def test_messages_arrive_whole_and_in_order() -> None:
    ours, theirs = [await Channel.over(end) for end in socket.socketpair()]
    ours.send(Ask(1))
    ours.send(Drain())
    assert (await theirs.receive(), await theirs.receive()) == (Ask(1), Drain())
    await ours.close()
    assert await theirs.receive() is None
    await theirs.close()


@in_loop
async def test_what_is_sent_to_an_end_that_is_gone_raises_nothing() -> None:
    end, other = socket.socketpair()
    channel = await Channel.over(end)
    other.close()
    channel.send(Ask(1))
    assert await channel.receive() is None
    await until(channel._writer.is_closing)
    channel.send(Ask(2))
    await channel.close()
