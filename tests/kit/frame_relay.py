"""A relay before a broker that knows frames: what is to happen to each of them a subclass decides.

    with HeldBroker(port, target) as broker:
        broker.hold()                             # Produce requests, and what comes behind them
        broker.held.wait(10)                      # one has come
        broker.let_go()

All frames of a connection pass in their order.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from forebay_codecs.api_keys import PRODUCE
from tests.kit.ports import LOOPBACK

_LIMIT = 1 << 26

Look = Callable[[bytes], Awaitable[None]]
"""Called with each frame, without its size, before it is passed on: which it is when this returns. ConnectionError
closes the connection instead, Silence lets nothing pass in this direction any more."""


class Silence(Exception):
    """The other side is to hear nothing, until it leaves by itself."""


class FrameRelay:
    """Listens on `port` before the broker on `target`, in a thread of its own. Each connection keeps its order."""

    def __init__(self, port: int, target: int) -> None:
        self._port = port
        self._target = target
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
        assert not self._thread.is_alive(), f"the relay on {self._port} does not end"

    def _looks(self) -> tuple[Look, Look]:
        """What looks at the requests, and at the responses, of a new connection."""
        raise NotImplementedError

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
        request, response = self._looks()
        await asyncio.gather(_pass_on(client, to_broker, request), _pass_on(broker, to_client, response))


class HeldBroker(FrameRelay):
    """From `hold` until `let_go` no Produce request passes, nor what comes behind it. `held` is set once one has come.

    Before and after that everything passes.
    """

    def __init__(self, port: int, target: int) -> None:
        super().__init__(port, target)
        self.held = threading.Event()
        self._free = asyncio.Event()
        self._free.set()

    def hold(self) -> None:
        self.held.clear()
        self._loop.call_soon_threadsafe(self._free.clear)

    def let_go(self) -> None:
        self._loop.call_soon_threadsafe(self._free.set)

    def _looks(self) -> tuple[Look, Look]:
        async def request(frame: bytes) -> None:
            if int.from_bytes(frame[:2], "big") == PRODUCE and not self._free.is_set():
                self.held.set()
                await self._free.wait()

        async def response(frame: bytes) -> None:
            pass

        return request, response


class BlackHole(FrameRelay):
    """While `swallows`, what comes is lost, and its connection hears nothing any more. Others are not touched."""

    def __init__(self, port: int, target: int) -> None:
        super().__init__(port, target)
        self.swallows = False

    def _looks(self) -> tuple[Look, Look]:
        async def look(frame: bytes) -> None:
            if self.swallows:
                raise Silence

        return look, look


class ForgetfulBroker(FrameRelay):
    """Drops every `every`th response to a Produce request, after the broker has carried the request out.

    Instead the connection is closed; of every `silent`th one that is dropped nothing is heard any more, until the
    other side closes it. `dropped` counts them.
    """

    def __init__(self, port: int, target: int, every: int, silent: int) -> None:
        super().__init__(port, target)
        self.dropped = 0
        self._answers = 0
        self._every = every
        self._silent = silent

    def _looks(self) -> tuple[Look, Look]:
        asked: deque[int] = deque()  # brokers answer in order

        async def request(frame: bytes) -> None:
            asked.append(int.from_bytes(frame[:2], "big"))

        async def response(frame: bytes) -> None:
            if asked.popleft() != PRODUCE:
                return
            self._answers += 1
            if self._answers % self._every == 0:
                self.dropped += 1
                if self.dropped % self._silent == 0:
                    raise Silence
                raise ConnectionResetError("dropped")

        return request, response


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, look: Look) -> None:
    try:
        while True:
            size = await source.readexactly(4)
            frame = await source.readexactly(int.from_bytes(size, "big"))
            await look(frame)
            target.write(size + frame)
            await target.drain()
    except Silence:
        with suppress(ConnectionError):
            while await source.read(_LIMIT):
                pass
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        target.close()
