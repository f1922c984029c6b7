"""A client's own connection to its broker, for everything that no policy needs.

In: the client's request frames, cut through as they arrive, and for each that will be answered an Expected. Out: the
responses in the client's slots, cut through too, except those that name brokers: they are rewritten, or filtered.
Requests keep the client's correlation ids, since nobody else speaks on this connection.

    (none) → connecting → open → closed, and from there on to connecting again at the next request
Opened when the first such request comes: a client that only produces costs its broker no connection. A broker that
closes it while nothing is awaited has found it idle: that is no failure. One that closes it while something is awaited
takes the client's connection with it, as if there were no proxy.
After SaslHandshake v0 a broker's frames are SASL tokens, without a header, until it answers the client's next request.
Where Forebay logs in at brokers, it does so again between two requests when the session is about to end (KIP-368): what
the client sends meanwhile waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol, cast

from librt.strings import read_i32_be

from forebay_codecs.api_keys import (
    API_VERSIONS,
    FETCH,
    JOIN_GROUP,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHARE_FETCH,
    SYNC_GROUP,
)
from forebay_codecs.api_versions import rewrite_api_versions
from forebay_codecs.apis import APIS, Api, Treatment
from forebay_codecs.errors import Malformed
from forebay_codecs.frame import Frame, FrameSplitter, Head, Run
from forebay_codecs.primitives import Buffer
from forebay_codecs.response_filter import ResponseFilter
from forebay_policies.inbound_memory import READ
from forebay_policies.response_memory import ResponseMemory
from forebay_proxy.brokers.session import LEAST_S, Session
from forebay_proxy.clients.bounded_reads import BoundedReads
from forebay_proxy.clients.descriptors import unconfirmed
from forebay_proxy.clients.response_orderer import PASSED, UNTOUCHED, ResponseOrderer, Slot
from forebay_proxy.metrics.traffic import TrafficMetrics

MAX_RESPONSE = 0x7FFFFFFF
"""Any size will do: a cut-through response is not held, and those that are gathered share a bound."""

MAX_HELD = 256 * 1024
"""Bytes of responses behind a slower one before the broker is not read any more: a few chunks of the event loop."""

FAREWELL_S: Final = 0.5
"""How often a connection is looked at that was closed here and is still there."""

OWN_CORRELATION_ID: Final = 0
"""Of what we say ourselves: whoever waits for it gets the next response."""

_AUTHENTICATE: Final = APIS[SASL_AUTHENTICATE]
_HANDSHAKE: Final = APIS[SASL_HANDSHAKE]

CORRELATION_ID_SIZE: Final = 4

KERBEROS: Final = (b"\x60", b"\x05")
"""What its tokens begin with (RFC 2743, RFC 4121). No other mechanism leaves a client's last token unanswered."""

_REWRITE: Final = Treatment.REWRITE
_LOCAL: Final = Treatment.LOCAL
_STREAM: Final = Treatment.STREAM
"""Members of an enum are looked up anew wherever they are named."""

LONG_WAITS: Final = frozenset({FETCH, JOIN_GROUP, SYNC_GROUP, SHARE_FETCH})
"""APIs whose answer may wait for new records, or for other members of a group."""


class Expected:
    """What becomes of the next response: into `slot`, treated as its API wants, or whole to `capture`.

    `heard` is told of one that goes to `slot`, before it does.
    `behind`: how many acks=0 requests went out before it: its response shows that they were not refused.
    `closes`: its last byte is the slot's last. `gathered`: its response is taken whole, not passed on as it comes.
    """

    __slots__ = (
        "api",
        "behind",
        "capture",
        "client_correlation_id",
        "closes",
        "gathered",
        "heard",
        "sent_at",
        "slot",
        "streamed",
        "version",
    )

    def __init__(
        self,
        api: Api,
        version: int,
        client_correlation_id: int,
        slot: Slot | None = None,
        capture: Callable[[bytes | None], None] | None = None,
        behind: int = 0,
        *,
        closes: bool = True,
        heard: Callable[[bytes], None] | None = None,
    ) -> None:
        self.api = api
        self.heard = heard
        self.version = version
        self.client_correlation_id = client_correlation_id
        self.slot = slot
        self.capture = capture
        self.behind = behind
        self.closes = closes
        self.sent_at = -1.0
        """When its request was written, by `monotonic`; −1: not yet."""
        treatment = api.response_treatment(version)
        self.gathered = capture is not None or heard is not None or treatment is _REWRITE or treatment is _LOCAL
        self.streamed = treatment is _STREAM


class Owner(Protocol):
    """Who has the connection: the client's side of the pair."""

    orderer: ResponseOrderer
    metrics: TrafficMetrics
    patience: float
    """Seconds that a broker may take to read what was written before the connection was closed, and to answer what a
    renewal waits for."""

    @property
    def unsent(self) -> int:
        """Bytes of responses that were written to the client and have not left."""

    @property
    def left(self) -> bool:
        """The client sends no more, and waits for nothing that takes long."""

    def translate(self, node_id: int, host: str, port: int, /) -> tuple[str, int] | None:
        """(host, port) where the client finds that broker; None: nowhere."""

    def upstream_paused(self, *, paused: bool) -> None:
        """The broker takes no more bytes for now, or does again."""

    def upstream_lost(self, why: str, awaited: Expected | None) -> None:
        """`awaited` is the next request whose response will not come; None: records without acks were on their way."""

    def upstream_left(self) -> None:
        """The broker closed an idle connection."""

    def upstream_malformed(self, error: Malformed) -> None:
        """The broker broke the protocol; the connection has been closed."""

    def produce_answered(self, response: bytes, version: int) -> None:
        """A broker's answer to a Produce request. Malformed as any decoder."""

    def topics_changed(self) -> None:
        """A response is here to a request that may have made, ended or moved topics."""

    def not_taken(self) -> None:
        """The client does not take its responses, and others need the memory: its connection ends."""

    def upstream_unread(self) -> None:
        """The broker has not read in time what was written before the connection was closed: it is given up."""

    def upstream_closed(self, connection: OpaqueConnection) -> None:
        """`connection`, which was closed on this side, is gone: all that it had to send has left, or never will."""


class OpaqueConnection(BoundedReads):
    """Each request's response goes into its own slot, and no broker's address passes but as the client may use it."""

    def __init__(self, client: Owner, memory: ResponseMemory) -> None:
        self._client = client
        self._orderer = client.orderer
        self._metrics = client.metrics
        self._memory = memory
        self._transport: asyncio.Transport | None = None
        self._waiting: list[Buffer] = []
        self._expected: deque[Expected] = deque()
        self._splitter = FrameSplitter(CORRELATION_ID_SIZE, MAX_RESPONSE)
        self._current: Expected | None = None
        self._filter: ResponseFilter | None = None
        self._prefix_left = 0
        self._tokens = False  # until the next response
        self._owed_tokens: deque[tuple[Slot, Callable[[bytes], None] | None]] = deque()
        """Where a broker's tokens go that it is to send before it answers any request, and who is told of each."""
        self._reading = True
        self._received = 0
        self._to_gather = 0
        """Expected responses, the current one included, that are gathered whole."""
        self._untaken = 0
        """Bytes of large ones that were rewritten and that the client may not have taken yet."""
        self._counted = False  # in the memory
        self._waits = False  # for memory
        self.client_slow = False
        """The client does not read its responses."""
        self._paused = False
        self._joins = False
        self._unacknowledged = 0
        """acks=0 requests sent. They have no response: a broker that refuses one closes the connection."""
        self._settled = 0
        """Of these, how many were followed by a response."""
        self.closed = False
        self.session: Session | None = None
        """Of a connection that Forebay has logged in."""
        self.renews = True
        """It is Forebay that renews the session, not the client."""
        self._rests_until = 0.0
        """When the broker takes another login, behind a renewal."""
        self.introduced = False
        """The broker knows the client's software, as far as the client tells it."""
        self._renewal: asyncio.Task[None] | None = None
        self._answered_all: asyncio.Future[None] | None = None
        """Done once nothing is awaited any more, where a renewal waits for that."""
        self._behind = 0
        self._announced: list[Expected] = []
        """Requests that follow once the session is renewed."""
        self._unsent: list[Expected] = []
        """Those of which nothing has been written."""
        self._heard_at = 0.0
        self._ended = False
        self._farewell: asyncio.TimerHandle | None = None
        self._has_left = False
        """All that was written, when it was last looked at."""
        self._closed_at = 0.0

    @property
    def awaited(self) -> int:
        """Responses that have not wholly arrived."""
        return len(self._expected) + len(self._announced) + (self._current is not None)

    @property
    def owed(self) -> bool:
        """An answer is awaited that the broker gives as soon as it can."""
        return any(
            entry.api.key not in LONG_WAITS for entry in (self._current, *self._expected, *self._announced) if entry
        )

    @property
    def has_records(self) -> bool:
        """Records of the client are on their way here."""
        waits = any(entry.api.key == PRODUCE for entry in (self._current, *self._expected, *self._announced) if entry)
        return waits or self.unheard

    @property
    def unheard(self) -> bool:
        """Records without acks were sent, and nothing shows yet that the broker has them."""
        return self._unacknowledged != self._settled

    @property
    def unasked(self) -> bool:
        """The same, and no response is awaited that would show it."""
        entries = (self._current, *self._expected, *self._announced)
        return self.unheard and all(entry is None or entry.behind < self._unacknowledged for entry in entries)

    @property
    def holds_records(self) -> bool:
        """Records without acks may still be here, not at the broker."""
        if not self.unheard:
            return False
        if self._waiting:
            return True
        return self._transport is not None and not self.closed and self._transport.get_write_buffer_size() > 0

    @property
    def held_back(self) -> list[Buffer]:
        """Requests, records without acks among them, that wait for the session to be renewed: a close leaves them."""
        return self._waiting if self._renewal is not None and self.holds_records and not self.closed else []

    def expect(self, expected: Expected) -> None:
        """A request follows that has a response. Requests are announced in the order in which they are written."""
        expected.behind = self._unacknowledged
        self._to_gather += expected.gathered
        if expected.api.key == PRODUCE:
            self._metrics.produce_passed_on()
        if expected.slot is not None:
            expected.slot.path = UNTOUCHED if expected.api.key == PRODUCE else PASSED
            self._unsent.append(expected)
        if self._renewal is None:
            self._expected.append(expected)
        else:
            self._announced.append(expected)

    def withdraw(self) -> bool:
        """The request that was announced last never comes whole: no response is expected. False: one has come."""
        announced = self._announced or self._expected
        if not announced:
            return False
        expected = announced.pop()
        self._to_gather -= expected.gathered
        if expected in self._unsent:
            self._unsent.remove(expected)
        return True

    def take_back(self) -> Slot | None:
        """It could not be made. The place of an answer to ApiVersions, where that was all that was asked: nobody waits
        for it any more, then."""
        if self.awaited != 1 or self.unheard or self._owed_tokens:
            return None
        only = self._expected[0]
        if only.api.key != API_VERSIONS or only.slot is None:
            return None
        self._expected.clear()
        self.abort()
        return only.slot

    def sent_token(self, start: bytes, heard: Callable[[bytes], None] | None = None) -> None:
        """A token of the client follows, which begins so. `heard` is told the first bytes of the broker's.

        The broker's goes out before the answer to whatever the client asks next, also where that is Forebay's own.
        """
        if not start.startswith(KERBEROS):
            self._owed_tokens.append((self._orderer.open(), heard))

    def sent_unacknowledged(self) -> None:
        """A Produce request with acks=0 follows, which has no response."""
        self._unacknowledged += 1
        self._metrics.produce_passed_on()

    def write(self, buffers: list[Buffer]) -> None:
        """Bytes of requests; kept until the connection stands (the client is not read meanwhile)."""
        if self._transport is None or self._renewal is not None:
            self._waiting += [bytes(buffer) for buffer in buffers]
        elif not self._transport.is_closing():
            self._written()
            self._put(self._transport, buffers)

    def _written(self) -> None:
        """All that was announced is being written."""
        if self._unsent:
            now = monotonic()
            for expected in self._unsent:
                expected.sent_at = now
            self._unsent.clear()

    # The session

    @property
    def must_renew(self) -> bool:
        """Whether the session is to be renewed before the next request."""
        if self.session is None or self._renewal is not None or not self.renews:
            return False
        return monotonic() >= self.session.due

    def renew(self, done: Callable[[], None]) -> None:
        """Renew the session, once all is answered. What was announced must have been written wholly.

        `done` is called once it is renewed, or the connection has been lost meanwhile.
        """
        self._behind = self._unacknowledged
        self._renewal = asyncio.get_running_loop().create_task(self._renew(done))

    async def _renew(self, done: Callable[[], None]) -> None:
        assert self.session is not None
        why = "the login was not renewed"
        renewed = False
        try:
            if self._expected or self._current is not None:
                # A broker comes to it only then, which may take minutes (LONG_WAITS), and a login has less time.
                await self._wait_for_answers()
            await self.session.renew(self._call)
            renewed = True
        except (OSError, Malformed) as error:
            why += f": {error}"
        finally:
            if not renewed and not self.closed:  # else its end was told already
                awaited = next(iter((*self._expected, *self._announced)), None)
                self.close()
                self._client.upstream_lost(why, awaited)
        self._rests_until = monotonic() + LEAST_S
        self._go_on()
        done()

    async def _wait_for_answers(self) -> None:
        """Until nothing is awaited, or it is closed.

        Raises TimeoutError where an answer is due and nothing comes for `patience`.
        """
        answered = self._answered_all = asyncio.get_running_loop().create_future()
        patience = self._client.patience
        received = -1
        while not (answered.done() or self.closed):
            due = self._is_due()
            if due and self._received == received:
                raise TimeoutError(f"nothing was answered for {patience:g} s")
            received = self._received if due else -1
            await asyncio.wait([answered], timeout=patience)

    def _is_due(self) -> bool:
        """The broker gives the next answer as soon as it can, or nobody waits for it any more; and it would be read."""
        following = self._current or self._expected[0]
        return (following.api.key not in LONG_WAITS or self._client.left) and self._reading

    @property
    def renewed_lately(self) -> bool:
        """Whether the broker would refuse another login yet."""
        return self._renewal is None and monotonic() < self._rests_until

    def rest(self, done: Callable[[], None]) -> None:
        """Write nothing until the broker takes another login; otherwise as `renew`."""
        self._renewal = asyncio.get_running_loop().create_task(self._rest(done))

    async def _rest(self, done: Callable[[], None]) -> None:
        await asyncio.sleep(self._rests_until - monotonic())
        self._go_on()
        done()

    def _go_on(self) -> None:
        """Write what was announced meanwhile."""
        if self.closed:
            return
        self._renewal = None
        self._expected.extend(self._announced)
        self._announced.clear()
        waiting, self._waiting = self._waiting, []
        if waiting:
            self.write(waiting)

    async def _call(self, build: Callable[[int], bytes]) -> bytes:
        """A request of ours between those of the client; the response. Raises ConnectionError."""
        if self.closed or self._transport is None:
            raise ConnectionError("the connection is closed")
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        def answered(response: bytes | None) -> None:
            if not answer.done():
                answer.set_result(response)

        request = build(OWN_CORRELATION_ID)
        expected = Expected(_AUTHENTICATE, 0, OWN_CORRELATION_ID, capture=answered, behind=self._behind)
        self._expected.append(expected)
        self._put(self._transport, [len(request).to_bytes(4, "big") + request])
        response = await answer
        if response is None:
            raise ConnectionError("the connection was lost")
        return response

    def _put(self, transport: asyncio.Transport, buffers: list[Buffer]) -> None:
        size = 0
        for buffer in buffers:
            size += len(buffer)
        self._metrics.passed_on(size)
        # With TLS each piece would become a record of its own.
        transport.writelines([b"".join(buffers)] if self._joins else buffers)

    def responses_left(self, *, client_slow: bool) -> None:
        """Responses were written to the client, which reads them or does not (`client_slow`)."""
        self.client_slow = client_slow
        if self._untaken:
            self._untaken = min(self._untaken, self._client.unsent)
        self.adjust_reading()

    def adjust_reading(self) -> None:
        """Read the broker only while its responses can be passed on. What others wait for is always read."""
        gathered = self._splitter.gathered
        held = gathered + self._untaken
        if held or self._counted:
            self._counted = held > 0
            self._memory.set_held(self, held, gathering=gathered > 0 and self._may_read())
        self._read_or_not()

    def _may_read(self) -> bool:
        waits_here = self._orderer.held + self._splitter.gathered
        return not self.closed and not self.client_slow and (waits_here < MAX_HELD or self._is_next())

    def _read_or_not(self) -> None:
        wanted = not self._waits and self._may_read()
        if self._transport is None or self.closed or wanted == self._reading:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # response_memory.Holder

    @property
    def moved(self) -> int:
        return self._received - self._client.unsent

    def hold_reading(self, *, hold: bool) -> None:
        self._waits = hold
        self._read_or_not()

    def not_taken(self) -> None:
        self._client.not_taken()

    def _is_next(self) -> bool:
        """Whether the next response need not wait for others: it goes out at once, or not to the client."""
        if self._current is not None:
            slot = self._current.slot
        elif self._tokens and self._owed_tokens:
            slot = self._owed_tokens[0][0]
        elif self._expected:
            slot = self._expected[0].slot
        else:
            return True
        return slot is None or self._orderer.is_next(slot)

    def close(self) -> None:
        """Close once what was written has gone out: acks=0 records of a client that has left are still to be sent."""
        self.closed = True
        self._take_no_more()
        if self._transport is not None:
            self._leave(self._transport)
        elif not self.holds_records:  # else they leave as soon as the connection stands
            self.connection_lost(None)  # nothing was written: whoever waits for an answer need not wait

    def _take_no_more(self) -> None:
        """Of responses nothing is held any more, and nothing counts."""
        self._splitter.clear()
        self._untaken = 0
        self.adjust_reading()

    def _leave(self, transport: asyncio.Transport) -> None:
        transport.close()
        if not self._ended and self._farewell is None:
            self._closed_at = monotonic()
            self._look_later(transport)

    def _look_later(self, transport: asyncio.Transport) -> None:
        self._farewell = asyncio.get_running_loop().call_later(FAREWELL_S, self._still_there, transport)

    def _still_there(self, transport: asyncio.Transport) -> None:
        """Something has not left yet, or the broker has not answered TLS's farewell, which is not waited for."""
        if self._joins and self._done(transport):
            transport.abort()
        elif monotonic() - self._closed_at >= self._client.patience:
            self._client.upstream_unread()
            transport.abort()
        else:
            self._look_later(transport)

    def _done(self, transport: asyncio.Transport) -> bool:
        """Kafka does not answer a farewell that it read together with the last request: it looks at the connection
        again when that ends. So it ends once all that was written has left, seen twice: what is on its way from the
        transport's own buffer to the system's is in neither.
        """
        had_left = self._has_left
        self._has_left = not transport.get_write_buffer_size() and not unconfirmed(transport)
        return not self.unheard or (had_left and self._has_left)

    @property
    def stood(self) -> bool:
        """The broker was reached: what was written may have left."""
        return self._transport is not None

    def abort(self) -> None:
        """Close at once; nobody is told but those who wait for an answer."""
        self.closed = True
        self._take_no_more()
        if self._transport is not None:
            self._transport.abort()
        else:
            self.connection_lost(None)

    # asyncio.BufferedProtocol

    def room(self) -> int:
        return self._memory.next_read() if self._to_gather else READ

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class, of the same interface
        self._joins = transport.get_extra_info("sslcontext") is not None
        if self.closed and not self._waiting:
            self._transport.abort()
            return
        if self._waiting:
            self._written()
            self._put(self._transport, self._waiting)
            self._waiting = []
        if self.closed:
            self._leave(self._transport)

    def pause_writing(self) -> None:
        self._paused = True
        self._client.upstream_paused(paused=True)

    def resume_writing(self) -> None:
        self._paused = False
        self._client.upstream_paused(paused=False)

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        self._received += len(data)
        self._metrics.passed_back(len(data))
        self._heard_at = monotonic()
        try:
            self._splitter.feed(data)
            while not self.closed and (event := self._splitter.next_event()) is not None:
                if isinstance(event, Head):
                    self._begin(event)
                elif isinstance(event, Frame):
                    self._whole(event.data)
                else:
                    self._pass(event)
        except Malformed as error:
            self.close()
            self._client.upstream_malformed(error)
            return
        if self._answered_all is not None and self._current is None and not self._expected:
            self._all_answered(self._answered_all)
        self.adjust_reading()

    def _all_answered(self, told: asyncio.Future[None]) -> None:
        told.set_result(None)
        self._answered_all = None

    def eof_received(self) -> None:
        if self._joins and not self.closed and self._transport is not None:
            self._transport.abort()  # it would wait for an answer to our own farewell

    def connection_lost(self, exc: Exception | None) -> None:
        was_closed, self.closed, self._ended = self.closed, True, True
        if self._farewell is not None:
            self._farewell.cancel()
        self._expected.extend(self._announced)
        self._announced.clear()
        entries = [entry for entry in (self._current, *self._expected) if entry is not None]
        captures = [entry.capture for entry in entries if entry.capture is not None]
        awaited = self.awaited
        self._expected.clear()
        self._unsent.clear()
        self._waiting.clear()
        self._current = None
        if self._answered_all is not None:
            self._all_answered(self._answered_all)
        self._take_no_more()
        for capture in captures:
            capture(None)
        if was_closed:
            if self.stood and isinstance(exc, TimeoutError):  # by TLS, which has a time of its own (tls.SHUTDOWN_S)
                self._client.upstream_unread()
            self._client.upstream_closed(self)
            return
        if self._paused:
            self.resume_writing()
        if awaited > len(captures) or self.unheard:
            self._client.upstream_lost(str(exc) if exc else "closed by the broker", entries[0] if entries else None)
        else:
            self._client.upstream_left()

    # One response

    def _begin(self, head: Head) -> None:
        if self._tokens:
            if not self._is_response(head):
                self._pass_token(head)
                return
            if self._owed_tokens:  # brokers' tokens may hold what clients chose: it must not be read as an answer
                raise Malformed("a token that looks like a response")
            self._tokens = False
            self._splitter.shortest = CORRELATION_ID_SIZE
        if not self._expected:
            raise Malformed("a response to no request")
        expected = self._current = self._expected.popleft()
        if read_i32_be(head.start, 0) != expected.client_correlation_id:
            raise Malformed("a response to another request than the next")
        self._settled = expected.behind
        if expected.gathered:
            self._splitter.collect()
            return
        self._splitter.cut_through()
        if expected.streamed:
            assert expected.api.filter is not None
            self._filter = expected.api.filter(expected.version, head.size, self._client.translate)
            self._prefix_left = 4

    def _is_response(self, head: Head) -> bool:
        """To the next request, and no token."""
        if not self._expected or len(head.start) < CORRELATION_ID_SIZE:
            return False
        return read_i32_be(head.start, 0) == self._expected[0].client_correlation_id

    def _pass_token(self, head: Head) -> None:
        """Where it is owed; a Kerberos one before the answer to what the client has asked already, which it is not."""
        waits = bool(self._expected) and not self._owed_tokens
        if self._owed_tokens:
            slot, heard = self._owed_tokens.popleft()
            if heard is not None:
                heard(head.start)
        elif waits:
            if self._expected[0].slot is None:
                raise Malformed("a token that nobody waits for")
            slot = self._expected[0].slot
        else:
            slot = self._orderer.open()
        self._current = Expected(_HANDSHAKE, 0, 0, slot, closes=not waits)
        self._splitter.cut_through()

    def _whole(self, response: bytes) -> None:
        expected = self._current
        assert expected is not None
        self._current = None
        self._to_gather -= 1
        if expected.capture is not None:
            expected.capture(response)
        else:
            assert expected.slot is not None
            self._answered(expected, expected.slot)
            if expected.heard is not None:
                expected.heard(response)
            told = self._rewritten(response, expected)
            if len(told) > MAX_HELD:
                self._untaken += len(told)
            self._orderer.write(expected.slot, len(told).to_bytes(4, "big"), last=False)
            self._orderer.write(expected.slot, told, last=True)
        if expected.api.key == PRODUCE:
            self._client.produce_answered(response, expected.version)
        else:
            self._tokens_behind(expected)

    def _tokens_behind(self, expected: Expected) -> None:
        """Behind the answer to SaslHandshake v0 come tokens."""
        if expected.api.key == SASL_HANDSHAKE and expected.version == 0:
            self._tokens = True
            self._splitter.shortest = 0

    def _answered(self, expected: Expected, slot: Slot) -> None:
        """The last byte of the response is here."""
        if expected.sent_at >= 0:
            slot.took = self._heard_at - expected.sent_at

    def _rewritten(self, response: bytes, expected: Expected) -> bytes:
        if expected.api.key == API_VERSIONS:
            return rewrite_api_versions(response, expected.version)
        rewrite = expected.api.rewrite
        return rewrite(response, expected.version, self._client.translate) if rewrite is not None else response

    def _pass(self, run: Run) -> None:
        expected = self._current
        assert expected is not None
        assert expected.slot is not None
        if run.last:
            self._current = None
            self._answered(expected, expected.slot)
            if expected.api.changes_topics:
                self._client.topics_changed()
            else:
                self._tokens_behind(expected)
        if self._filter is None:
            self._orderer.write(expected.slot, run.data, last=run.last and expected.closes)
            return
        prefix = min(self._prefix_left, len(run.data))
        self._prefix_left -= prefix
        pieces: list[Buffer] = [run.data[:prefix]] if prefix else []
        if len(run.data) > prefix:
            pieces += self._filter.feed(run.data, prefix, len(run.data))
        if run.last:
            self._filter = None
            self._orderer.write(expected.slot, b"".join(pieces), last=True)
        else:
            for piece in pieces:
                self._orderer.write(expected.slot, piece, last=False)
