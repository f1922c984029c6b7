"""Many clients that come by TLS: `python -m bench.wire_crowd '{…Crowd as JSON…}'`, a process of its own.

    with crowd(Gathering(port, 2_000)) as clients:    # all have come, and have had an answer to what they sent first
        clients.again()                               # all leave, and all of them come back at once
        while (back := clients.back()) is None: …

    come_and_go(port, seconds)                        # each connection is a new one, and ends with its handshake

Each handshake is a full one, since no session is kept, and certificates are believed: verifying them is the clients'
CPU. Who is turned away tries again as Kafka's clients do, after 50 ms, then twice as long each time up to 1 s, give or
take a fifth (reconnect.backoff.ms, reconnect.backoff.max.ms).
"""

from __future__ import annotations

import asyncio
import random
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, process_time
from typing import Final, cast

import msgspec
import uvloop

from bench.wire_load import believing
from tests.kit.ports import LOOPBACK

AT_ONCE: Final = 32
"""Handshakes of those that come first, or come and go: nobody is turned away then."""
_BACKOFF_S: Final = (0.05, 1.0)
_JITTER: Final = 0.2
_PREFIX: Final = 4


class Gathering(msgspec.Struct, frozen=True):
    """`first`, in hex: a request that each sends and has answered once it is connected; empty: none.

    With `seconds` they come and go for so long, and nobody stays.
    """

    port: int
    count: int = AT_ONCE
    first: str = ""
    seconds: float = 0.0
    seed: int = 0


class Back(msgspec.Struct, frozen=True):
    """When all were back, in seconds since they left; `tries`: how often one of them connected, or tried to.

    `cpu` is the crowd's own, in seconds.
    """

    seconds: float
    tries: int
    cpu: float


class _Client(asyncio.Protocol):
    """`answered` once it has had an answer, or with the error that ended it before."""

    def __init__(self, first: bytes) -> None:
        self._first = first
        self._received = bytearray()
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._first:
            cast(asyncio.Transport, transport).write(self._first)
        else:
            self.answered.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._received += data
        received = len(self._received)
        if received >= _PREFIX and received >= _PREFIX + int.from_bytes(self._received[:_PREFIX], "big"):
            self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionResetError("closed by the other side"))

    def _end(self, error: Exception | None) -> None:
        if self.answered.done():
            return
        if error is None:
            self.answered.set_result(None)
        else:
            self.answered.set_exception(error)


class _Crowd:
    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._first = bytes.fromhex(gathering.first)
        self._context = believing()
        self._rng = random.Random(gathering.seed)
        self._here: list[asyncio.Transport] = []
        self._tries = 0

    async def _one(self) -> asyncio.Transport:
        """Raises OSError where it is turned away."""
        self._tries += 1
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(
            lambda: _Client(self._first), LOOPBACK, self._gathering.port, ssl=self._context
        )
        await client.answered
        return transport

    async def _comes(self, turns: asyncio.Semaphore | None) -> None:
        """Until it is there."""
        wait, longest = _BACKOFF_S
        while True:
            try:
                if turns is None:
                    self._here.append(await self._one())
                else:
                    async with turns:
                        self._here.append(await self._one())
            except OSError:
                await asyncio.sleep(wait * self._rng.uniform(1 - _JITTER, 1 + _JITTER))
                wait = min(longest, 2 * wait)
            else:
                return

    async def come(self, turns: asyncio.Semaphore | None = None) -> Back:
        """All of them, as many at once as there are `turns`."""
        for one in self._here:
            one.abort()
        self._here.clear()
        self._tries = 0
        began, cpu = monotonic(), process_time()
        await asyncio.gather(*(self._comes(turns) for _ in range(self._gathering.count)))
        return Back(monotonic() - began, self._tries, process_time() - cpu)

    async def come_and_go(self, until: float) -> None:
        while monotonic() < until:
            (await self._one()).close()


async def run(gathering: Gathering) -> None:
    """Come, and come again for each line of stdin, and tell of each; or come and go."""
    crowd = _Crowd(gathering)
    if gathering.seconds:
        until = monotonic() + gathering.seconds
        await asyncio.gather(*(crowd.come_and_go(until) for _ in range(gathering.count)))
        return
    _tell(await crowd.come(asyncio.Semaphore(AT_ONCE)))
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        _tell(await crowd.come())


def _tell(back: Back) -> None:
    print(msgspec.json.encode(back).decode(), flush=True)


class Clients:
    """A crowd that stands."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def again(self) -> None:
        """All leave and come back."""
        assert self._process.stdin is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()

    def back(self, wait: float = 0.0) -> Back | None:
        """None: not all are here. Waits `wait` seconds at most. Raises RuntimeError where the crowd broke up."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], wait)[0]:
            return None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the crowd has ended: its own words stand above")
        return msgspec.json.decode(line, type=Back)


@contextmanager
def crowd(gathering: Gathering, seconds: float = 120) -> Iterator[Clients]:
    """Those who have come within `seconds`; they leave with it."""
    process = subprocess.Popen(_command(gathering), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        clients = Clients(process)
        if clients.back(seconds) is None:
            raise RuntimeError(f"{gathering.count} clients did not all connect within {seconds:g} s")
        yield clients
    finally:
        process.kill()
        process.communicate()


def come_and_go(port: int, seconds: float) -> None:
    """Returns once it is over."""
    subprocess.run(_command(Gathering(port, seconds=seconds)), check=True, timeout=60 + seconds)


def _command(gathering: Gathering) -> list[str]:
    return [sys.executable, "-m", "bench.wire_crowd", msgspec.json.encode(gathering).decode()]


if __name__ == "__main__":
    uvloop.run(run(msgspec.json.decode(sys.argv[1], type=Gathering)))
