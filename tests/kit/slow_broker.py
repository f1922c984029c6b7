"""A broker that serves slowly, as in KIP-794's scenario: a relay that holds each Produce response for a while, in turn.

(Or each response of another API.)

toxiproxy's latency delays all of a stream alike, so what is pipelined arrives together; a slow broker serves one
request after the other, over all its connections. All else passes at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from forebay_codecs.apis import PRODUCE
from tests.kit.ports import LOOPBACK

_LIMIT = 1 << 26


class SlowBroker:
    """Listens on `port` before the broker on `target`; each response of that API takes `hold_ms` of its own."""

    def __init__(self, port: int, target: int, hold_ms: float, api_key: int = PRODUCE) -> None:
        self._port = port
        self._target = target
        self._hold = hold_ms / 1000
        self._api_key = api_key
        self._free_at = 0.0
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._listening.wait(10):
            raise RuntimeError(f"cannot listen on {self._port}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def hold(self, hold_ms: float) -> None:
        """From now on; what is held already stays so."""
        self._hold = hold_ms / 1000

    async def _serve(self) -> None:
        async with await asyncio.start_server(self._relay, LOOPBACK, self._port, limit=_LIMIT):
            self._listening.set()
            await self._stop.wait()
        relays = asyncio.all_tasks() - {asyncio.current_task()}
        for task in relays:
            task.cancel()
        await asyncio.gather(*relays, return_exceptions=True)

    async def _relay(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        broker, to_broker = await asyncio.open_connection(LOOPBACK, self._target, limit=_LIMIT)
        held: set[bytes] = set()

        async def request(frame: bytes) -> None:
            if int.from_bytes(frame[:2], "big") == self._api_key:
                held.add(frame[4:8])

        async def response(frame: bytes) -> None:
            if frame[:4] in held:
                held.discard(frame[:4])
                self._free_at = max(self._free_at, self._loop.time()) + self._hold
                await asyncio.sleep(self._free_at - self._loop.time())

        await asyncio.gather(_pass_on(client, to_broker, request), _pass_on(broker, to_client, response))


async def _pass_on(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, look: Callable[[bytes], Awaitable[None]]
) -> None:
    try:
        while True:
            size = await source.readexactly(4)
            frame = await source.readexactly(int.from_bytes(size, "big"))
            await look(frame)
            target.write(size + frame)
            await target.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        target.close()
