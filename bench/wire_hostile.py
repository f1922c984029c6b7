"""Clients that mean harm: `python -m bench.wire_hostile KIND PORT`, a process of its own, until it is killed.

slow      1,000 connections that each send one byte of a request a second
endless   4 connections that announce requests of 50 MB and send them as fast as they are read, one after the other
garbage   200 connections a second, each with bytes that are no request, gone as soon as they are closed
Says "ready" when all have connected that stay.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal, get_args

import uvloop

from bench.wire_frames import frames
from tests.kit.ports import LOOPBACK

Kind = Literal["slow", "endless", "garbage"]
SLOW: Final = 1_000
ENDLESS: Final = 4
GARBAGE_A_SECOND: Final = 200
_HUGE: Final = 50_000_000
_GARBAGE: Final = (b"GET / HTTP/1.1\r\n\r\n", bytes.fromhex("16030100f1010000ed0303") + bytes(230), b"\xff" * 64)


@contextmanager
def hostile(kind: Kind, port: int) -> Iterator[None]:
    """They are there while the block runs."""
    command = [sys.executable, "-m", "bench.wire_hostile", kind, str(port)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{kind}: the clients could not connect")
        yield
    finally:
        process.kill()
        process.communicate()


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(LOOPBACK, port)


async def _slow(port: int) -> None:
    request = frames("produce", 16_384)[0]
    clients = [await _connect(port) for _ in range(SLOW)]
    print("ready", flush=True)
    sent = 0
    while True:
        for number, (_, writer) in enumerate(clients):
            if not writer.is_closing():
                writer.write(request[sent : sent + 1])
            if number % 100 == 0:
                await asyncio.sleep(0.1)
        sent = (sent + 1) % (len(request) - 1)


async def _endless(port: int) -> None:
    head = bytearray(frames("produce", 16_384)[0])
    head[:4] = _HUGE.to_bytes(4, "big")
    piece = bytes(1 << 18)

    async def one() -> None:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await _connect(port)
                writer.write(head)
                for _ in range(_HUGE // len(piece)):
                    writer.write(piece)
                    await writer.drain()
                writer.transport.abort()
            await asyncio.sleep(0.01)

    print("ready", flush=True)
    await asyncio.gather(*[one() for _ in range(ENDLESS)])


async def _garbage(port: int) -> None:
    async def one(number: int) -> None:
        with contextlib.suppress(OSError):
            reader, writer = await _connect(port)
            writer.write(_GARBAGE[number % len(_GARBAGE)])
            async with asyncio.timeout(2):
                await reader.read()
            writer.transport.abort()

    print("ready", flush=True)
    number = 0
    running: set[asyncio.Task[None]] = set()
    while True:
        task = asyncio.create_task(one(number))
        running.add(task)
        task.add_done_callback(running.discard)
        number += 1
        await asyncio.sleep(1 / GARBAGE_A_SECOND)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=get_args(Kind))
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    attacks = {"slow": _slow, "endless": _endless, "garbage": _garbage}
    uvloop.run(attacks[arguments.kind](arguments.port))
