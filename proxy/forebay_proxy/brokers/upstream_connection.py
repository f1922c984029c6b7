"""A connection of the proxy's own to a broker: requests written, responses handed to whoever asked.

In: request frames with an upstream correlation id. Out: each response, whole, to the request's callback; None to every
callback that is still waiting when the connection ends, because the request may have been carried out or not.
With a session (SASL), whoever sends looks first whether it is to be renewed, and waits for that: what was not written
is not lost where a broker does not renew it.
A broker answers in the order of the requests. One that does not has broken the protocol (Malformed): that is logged,
and the connection is closed. A request that is not answered within `request.timeout.ms` closes it too. A broker that
answers in TLS where we speak without is not logged here: whoever asks is told, perhaps again and again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import cast

from librt.strings import read_i32_be

from forebay_codecs.errors import Malformed
from forebay_codecs.frame import Frame, FrameSplitter, Head
from forebay_codecs.primitives import Buffer
from forebay_proxy.brokers.session import NEVER, Session
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.security.tls import explain, is_tls

log = get_logger()

MAX_RESPONSE = 256 << 20
"""Our own requests have answers far smaller; Metadata of a million partitions takes about 60 MB."""

OnAnswer = Callable[[bytes | None], None]


class UpstreamConnection(asyncio.Protocol):
    """Gives every request that is sent exactly one answer: the response, or None.

    `versions` is what the broker offers, once whoever connected has asked. `principal`: for whom it was logged in
    (producer_batch.Lane); empty: Forebay itself, or nobody."""

    def __init__(self, name: str, request_timeout: float, stats: MetricRegistry) -> None:
        self.name = name
        self.versions: dict[int, tuple[int, int]] = {}
        self.principal = ""
        self.on_closed: Callable[[], None] | None = None
        self._request_timeout = request_timeout
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._splitter = FrameSplitter(4, MAX_RESPONSE)
        self._pending: deque[tuple[int, float, OnAnswer]] = deque()
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._joins = False
        self._session: Session | None = None
        self._renew_at = NEVER
        self._renewal: asyncio.Task[None] | None = None
        self._why = ""
        self._sent = stats.counter("forebay_request_bytes_total", side="upstream")
        self._received = stats.counter("forebay_response_bytes_total", side="upstream")
        self._protocol_errors = stats.counter("forebay_errors_total", side="upstream", kind="protocol")
        self._lost = stats.counter("forebay_errors_total", side="upstream", kind="connection_lost")
        self._timeouts = stats.counter("forebay_errors_total", side="upstream", kind="timeout")

    @property
    def closed(self) -> bool:
        """No request can be sent. True as soon as the end is known, before `on_closed` is told."""
        return self._transport is None or self._transport.is_closing()

    def next_correlation_id(self) -> int:
        """For the request that is sent next."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def send(self, frame: list[Buffer], on_answer: OnAnswer) -> None:
        """Write a frame that has the next correlation id. The connection must be open."""
        assert self._transport is not None
        for buffer in frame:
            self._sent.value += len(buffer)
        self._pending.append((self._correlation_id, monotonic() + self._request_timeout, on_answer))
        self._transport.writelines([b"".join(frame)] if self._joins else frame)
        if self._timer is None:
            self._timer = self._loop.call_later(self._request_timeout, self._check)

    async def call(self, build: Callable[[int], bytes]) -> bytes:
        """Send a request made without its size prefix and wait for the response, once the session is renewed.

        Raises ConnectionError.
        """
        if self.must_renew:
            await self.renew()
        return await self._call(build)

    async def _call(self, build: Callable[[int], bytes]) -> bytes:
        if self.closed:
            raise ConnectionError(f"the connection to {self.name} is closed{self._why}")
        answer: asyncio.Future[bytes | None] = self._loop.create_future()

        def answered(response: bytes | None) -> None:
            if not answer.done():
                answer.set_result(response)

        request = build(self.next_correlation_id())
        self.send([len(request).to_bytes(4, "big"), request], answered)
        response = await answer
        if response is None:
            raise ConnectionError(f"the connection to {self.name} was lost{self._why}")
        return response

    # The session

    async def log_in(self, session: Session) -> None:
        """Begin it; from now on it is renewed when that is due. Raises OSError where the broker refuses."""
        await session.renew(self._call)
        self._session = session
        self._renew_at = session.due

    @property
    def must_renew(self) -> bool:
        """Whether the session is to be renewed before the next request."""
        return monotonic() >= self._renew_at

    async def renew(self) -> None:
        """Renew the session, once for all who ask. Where the broker does not renew it, the connection is closed."""
        if self._renewal is None:
            self._renewal = self._loop.create_task(self._renew())
        await asyncio.shield(self._renewal)

    async def _renew(self) -> None:
        """What was written before is still answered."""
        assert self._session is not None
        renewed = False
        try:
            await self._session.renew(self._call)
            renewed = True
        except (OSError, Malformed) as error:
            log.warning("broker does not renew a session", broker=self.name, error=str(error))
            self._why = f": {error}"
        finally:
            if not renewed:
                self.close()
        if renewed:
            self._renewal = None
            self._renew_at = self._session.due

    def hand_over(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the connection to a `protocol` that begins where this one ends. Nothing may be awaited on it."""
        if self._transport is None or self.closed or self._pending:
            raise ConnectionError(f"the connection to {self.name} was lost{self._why}")
        transport, self._transport = self._transport, None
        if self._timer is not None:
            self._timer.cancel()
        transport.pause_reading()  # how it is read depends on the protocol
        transport.set_protocol(protocol)
        transport.resume_reading()
        protocol.connection_made(transport)

    def close(self) -> None:
        """Close at once; every request that is not answered yet is then answered None."""
        if self._transport is not None:
            self._transport.abort()

    def _check(self) -> None:
        """Give up on a broker that has not answered in time."""
        self._timer = None
        if not self._pending or self.closed:
            return
        deadline = self._pending[0][1]
        left = deadline - monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left + 0.01, self._check)
            return
        self._timeouts.value += 1
        log.warning("broker did not answer in time", broker=self.name, in_flight=len(self._pending))
        self.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class, of the same interface
        # With TLS each piece would become a record of its own.
        self._joins = transport.get_extra_info("sslcontext") is not None

    def data_received(self, data: bytes) -> None:
        self._received.value += len(data)
        try:
            self._splitter.feed(data)
            while (event := self._splitter.next_event()) is not None:
                if isinstance(event, Head):
                    self._splitter.collect()
                elif isinstance(event, Frame):
                    self._answer(event.data)
        except Malformed as error:
            self._protocol_errors.value += 1
            if self.versions or self._joins or not is_tls(self._splitter.front):
                log.error("broker broke the protocol", broker=self.name, error=str(error))
            else:
                self._why = ": it answers in TLS: set security.protocol=SSL or SASL_SSL"
            self.close()

    def eof_received(self) -> None:
        self.close()  # with TLS the transport would wait for an answer to our own farewell

    def _answer(self, response: bytes) -> None:
        upstream_correlation_id = read_i32_be(response, 0)
        if not self._pending or self._pending[0][0] != upstream_correlation_id:
            raise Malformed(f"an answer to request {upstream_correlation_id}, which is not the next")
        on_answer = self._pending.popleft()[2]
        on_answer(response)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if isinstance(exc, OSError):
            self._why = f": {explain(exc)}"
        pending, self._pending = self._pending, deque()
        if pending:
            self._lost.value += 1
        for _, _, on_answer in pending:
            on_answer(None)
        if self.on_closed is not None:
            self.on_closed()
