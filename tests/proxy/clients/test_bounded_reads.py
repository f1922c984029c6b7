"""Reads are as large as there is room for, on the event loop that is used and on asyncio's own."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from forebay_policies.inbound_memory import READ
from forebay_proxy.clients.bounded_reads import BoundedReads


class Reader(BoundedReads):
    def __init__(self, rooms: list[int]) -> None:
        self.rooms = rooms
        self.read: list[bytes] = []
        self.ended = asyncio.Event()

    def room(self) -> int:
        return self.rooms[min(len(self.read), len(self.rooms) - 1)]

    def data_received(self, data: bytes) -> None:
        self.read.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


@pytest.mark.parametrize("make", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_no_read_is_larger_than_there_is_room_for_and_none_is_lost(make: type[asyncio.AbstractEventLoop]) -> None:
    sent = bytes(range(256)) * 200

    async def run() -> None:
        ours, theirs = socket.socketpair()
        theirs.sendall(sent)
        theirs.close()
        reader = Reader([10, 1, 4096, 100, READ])
        ours.setblocking(False)
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: reader, ours)
        await reader.ended.wait()
        transport.close()
        assert [len(data) for data in reader.read] == [10, 1, 4096, 100, len(sent) - 4207]
        assert b"".join(reader.read) == sent

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(run())
