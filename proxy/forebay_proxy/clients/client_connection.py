"""One client's connection: requests in, responses out in their order.

    bytes in → splitter → route ┬ cut through → the client's own upstream connection ┐
                                ├ Produce     → produce handler                      │
                                ├ Metadata    → metadata handler                     ├ orderer → bytes out
                                ├ ApiVersions → answered here                        │
                                ├ checked     → answered here, or the upstream       │
                                ├ login       → the upstream, and looked at          │
                                └ refused     → the connection ends                  ┘

After SaslHandshake v0 frames without a header follow, SASL tokens, which are cut through until a request comes again.

Requests are taken one after the other, and none while the connection is held. So a client never has more under way than
it may, and order is kept. What cannot be read here, and a broker might, goes on as it came. Its life, and every way in
which it ends, stands in connection_state.
"""

from __future__ import annotations

import asyncio
from math import inf
from time import monotonic
from typing import Final, Protocol, cast

from forebay_codecs.api_keys import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from forebay_codecs.apis import Api
from forebay_codecs.errors import Malformed
from forebay_codecs.frame import Frame, FrameSplitter, FrameTooLarge, Head
from forebay_codecs.header import LONGEST_HEADER, PEEK_SIZE, may_be_request, peek
from forebay_policies.hold_reason import HoldReason
from forebay_policies.loop_turns import SLICE_S
from forebay_proxy.clients.answered_client import AnsweredClient
from forebay_proxy.clients.bounded_reads import BoundedReads
from forebay_proxy.clients.client_identity import ClientIdentity
from forebay_proxy.clients.client_upstream import ClientUpstream
from forebay_proxy.clients.connection_context import ConnectionContext
from forebay_proxy.clients.connection_life import ConnectionLife
from forebay_proxy.clients.connection_state import Cause
from forebay_proxy.clients.descriptors import hung_up, unconfirmed, unread
from forebay_proxy.clients.divided_upstream import DividedUpstream
from forebay_proxy.clients.gathered_requests import GatheredRequests
from forebay_proxy.clients.listener import plain_address
from forebay_proxy.clients.login_watch import LARGEST_LOGIN, LoginWatch
from forebay_proxy.clients.request_router import LOGINS, Route, route, route_of_producer
from forebay_proxy.clients.response_orderer import ResponseOrderer
from forebay_proxy.clients.response_writer import ResponseWriter
from forebay_proxy.clients.terminated_login import TerminatedLogin
from forebay_proxy.clients.tls_transport import CERTIFICATE
from forebay_proxy.clients.wrong_protocol import named

MAX_UNSENT: Final = 256 * 1024
"""Bytes of answers that one connection may have waiting here, beside what its transport holds and one more answer."""

WITHOUT_ACKS: Final = 10
"""So many times client.max.in.flight.requests may be under way without acks: no answer paces who sends, and how long
a broker takes is not to. Where that is 20 ms, 100 cost a client two thirds of its records a second, 1,000 a fifth."""

LENT: Final = 4096
"""Bytes of a read from which requests that are gathered are cut out of it, rather than out of a copy of it."""

FOR_GOOD: Final = frozenset(
    {HoldReason.CLIENT_SLOW, HoldReason.INBOUND_MEMORY, HoldReason.DRAINING, HoldReason.CLOSING}
)
"""What holds a client that is gone for ever, or idle: its answers are not read, its request does not go on."""


_OPAQUE: Final = Route.OPAQUE
_METADATA: Final = Route.METADATA
_REFUSED: Final = Route.REFUSED
_LOGIN_HERE: Final = Route.LOGIN_HERE
"""Members of an enum are looked up anew wherever they are named."""

OF_ANY_BROKER: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS, METADATA})
"""APIs that any broker answers alike."""


class ConnectionLimits(Protocol):
    """Who may be connected."""

    def admits(self, connection: ClientConnection) -> bool:
        """Whether one more of its address may stay."""

    def gone(self, connection: ClientConnection) -> None:
        """The connection has ended, whether it was admitted or not."""


class ClientConnection(BoundedReads):
    """Every request that is taken is passed on or answered in its place, until the connection ends.

    `node_id` is the broker that the listener stands for; None for the bootstrap listener.
    """

    def __init__(self, shared: ConnectionContext, limits: ConnectionLimits, node_id: int | None) -> None:
        self._shared = shared
        self._limits = limits
        self.node_id = node_id
        self.began = self.last_active = monotonic()
        self.retires_at = inf
        """When it has been there long enough; the registry's clock."""
        self._retiring = False
        self.received = 0
        self.host = self.peer = ""
        self._loop = asyncio.get_running_loop()
        self._splitter = FrameSplitter(PEEK_SIZE, shared.max_request)
        self._api: Api | None = None
        self._route = Route.REFUSED
        self._tokens = False  # until the next request
        self._stood_in_for = node_id is not None and shared.gateway.stands_in(node_id)
        self._arriving = False  # the inbound memory knows of a request that is not whole
        self._writer = ResponseWriter(shared.metrics, self._written)
        self.orderer = ResponseOrderer(self._writer.write, shared.metrics.added)
        self._who = ClientIdentity(shared.metrics, shared.log)
        self._life = ConnectionLife(self.orderer, shared.metrics, shared.log, self._go_on, self._writer.flush)
        self._state = self._life.state
        broker = node_id if node_id is not None else shared.gateway.any_node()
        self._producers_only = shared.gateway.producers_only
        self._upstream: ClientUpstream
        if self._producers_only:
            self._upstream = DividedUpstream(self._life, self.orderer, self._who, shared.gateway, broker)
        else:
            self._upstream = ClientUpstream(self._life, self.orderer, self._who, shared.gateway, broker)
        self._client = AnsweredClient(
            self._life,
            self.orderer,
            self._who,
            self._upstream,
            self.release,
            shared.departed,
            node_id,
            WITHOUT_ACKS * shared.max_in_flight,
            shared.answers,
        )
        self._requests = GatheredRequests(shared, self._client, self._upstream, self._who, broker)
        self._logins: LoginWatch | None = None
        if shared.realms is not None:
            self._logins = LoginWatch(
                shared.realms, shared.gateway, self._client, self._upstream, self._life, self._requests.serve
            )
            self._requests.logins = self._logins
        self._login: TerminatedLogin | None = None
        if shared.door is not None:
            self._login = TerminatedLogin(
                shared.door,
                shared.gateway,
                broker,
                self._client,
                self.orderer,
                self._life,
                self._upstream,
                self._requests.serve,
                shared.metrics,
                shared.log,
            )

    # Bytes in

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        local, peer = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        self._upstream.advertised_host = plain_address(local[0]) if local else ""
        self.host = self._client.host = self._upstream.client_host = plain_address(peer[0]) if peer else ""
        self._client.rack = self._shared.racks.of(self.host)
        self.peer = f"{self.host}:{peer[1]}" if peer else "?"
        self._shared.metrics.opened(self.node_id)
        self._writer.transport = cast(asyncio.Transport, transport)  # uvloop's own class, of the same interface
        self._life.begin(self._writer.transport, self.peer)
        if not self._limits.admits(self):
            self._life.end(Cause.NOT_ADMITTED)
            return
        if self._shared.inbound_memory.shut(self.node_id):
            self._loop.call_soon(self._not_read)  # for the loop begins to read it after this
        if self._login is not None:
            self._login.begin(transport.get_extra_info(CERTIFICATE))

    def _not_read(self) -> None:
        if not self._state.over:
            self._shared.inbound_memory.came(self)

    def room(self) -> int:
        return self._shared.inbound_memory.next_read(self.node_id)

    def arrived(self, data: memoryview) -> None:
        if len(data) < LENT or self._splitter.buffered or self._route is _OPAQUE:
            self.data_received(data.tobytes())
            return
        self._count(len(data))
        self._splitter.lend(data)
        try:
            self._pump(self.last_active + SLICE_S)
        finally:
            self._splitter.keep()

    def data_received(self, data: bytes) -> None:
        self._count(len(data))
        self._splitter.feed(data)
        self._pump(self.last_active + SLICE_S)

    def _count(self, size: int) -> None:
        self.last_active = self.orderer.since = monotonic()
        self.received += size
        self._shared.metrics.requests_in(size)

    def _go_on(self) -> None:
        """Nothing holds it any more: what it has sent meanwhile waits for its turn."""
        if self._splitter.buffered and not self._upstream.corked:
            self.orderer.since = monotonic()
            self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        if HoldReason.TURN not in self._state.holds:
            self.hold(HoldReason.TURN)
            self._shared.turns.wait(self)

    def turn(self) -> None:
        """It is first in line (loop_turns)."""
        if self._state.release(HoldReason.TURN):
            try:
                self._pump(monotonic() + SLICE_S)
            except Exception as error:  # of what `data_received` lets out, the loop closes the connection itself
                self._shared.log.error("a client's requests could not be taken", client=self.peer, exc_info=error)
                self.abort()
            self._life.read_on()

    def _pump(self, until: float) -> None:
        """Take requests until there are no more, the client is held, or, by the monotonic clock, its time is over."""
        if self._upstream.corked:  # called from within the loop below
            return
        self._upstream.corked = True
        try:
            while self._state.taking and (event := self._splitter.next_event()) is not None:
                if isinstance(event, Head):
                    self._begin(event)
                elif isinstance(event, Frame):
                    self._gathered(event.data)
                else:
                    self._pass_on(event.data, last=event.last)
                if self._splitter.buffered and monotonic() >= until:
                    self._wait_for_turn()
        except Malformed as error:
            cause = Cause.TOO_LARGE if isinstance(error, FrameTooLarge) else Cause.MALFORMED
            self._life.end(cause, client=self.peer, error=str(error), **named(self._splitter.front))
        finally:
            self._upstream.corked = False
        self._upstream.flush()
        self._tell_intake()

    def _tell_intake(self) -> None:
        """What has begun to arrive is bounded over all connections."""
        if not self._splitter.between_frames and not self._state.over:
            self._arriving = True
            gathered = self._splitter.gathered
            resting = self._splitter.buffered - gathered
            self._shared.inbound_memory.arriving(self, gathered, self._splitter.missing, resting)
        elif self._arriving:
            self._arriving = False
            self._shared.inbound_memory.arrived(self)

    # Each request by its route

    def _begin(self, head: Head) -> None:
        if self._login is not None and self._login.takes(head):
            self._route = Route.LOGIN_HERE
            self._splitter.collect()
            return
        if self._tokens:
            if not may_be_request(head.start):
                if self._logins is not None and head.size <= LARGEST_LOGIN:
                    self._route = Route.TOKEN
                    self._splitter.collect()
                    return
                self._cut_through()
                self._upstream.expect_token(head.start)
                return
            self._tokens = False
            self._splitter.shortest = PEEK_SIZE
        key, version, correlation_id = peek(head.start, 0)
        self._route, api = route_of_producer(key, version) if self._producers_only else route(key, version)
        self._api = api
        if api is None:
            self._life.end(Cause.UNKNOWN_API, client=self.peer, api=key, version=version)
            return
        if self._route is _REFUSED:
            self._life.end(Cause.UNSUPPORTED_VERSION, client=self.peer, api=api.name, version=version)
            return
        if self._login is not None and key in self._shared.gateway.hidden:
            self._life.end(Cause.UNKNOWN_API, client=self.peer, api=key, version=version)
            return
        if self._stood_in_for and key not in OF_ANY_BROKER:
            self._life.end(Cause.BROKER_UNKNOWN, client=self.peer, node=self.node_id)
            return
        self._shared.metrics.request(api.name)
        self._who.begins(key, version)
        if self._logins is not None:
            if not self._logins.admit(key):
                return
            if key in LOGINS:
                if head.size <= LARGEST_LOGIN:
                    self._route = Route.LOGIN
                else:
                    self._logins.unseen()
        if self._route is _METADATA and self._client.own_login:
            self._route = _OPAQUE  # what a client may know of is the broker's to say
        if self._route is _OPAQUE:
            self._cut_through()
            self._upstream.expect(api, version, correlation_id)
        else:
            self._splitter.collect()
        if key == SASL_HANDSHAKE and version == 0:
            self._tokens = True
            self._splitter.shortest = 0

    def _cut_through(self) -> None:
        self._splitter.cut_through()
        self._state.passing = True

    def _pass_on(self, data: bytes | memoryview, *, last: bool) -> None:
        if not self._who.known:
            self._who.says(bytes(data[4 : 4 + LONGEST_HEADER]), self.host)
        self._upstream.pass_on(data)
        if last:
            drained = self._state.passed()
            self._limit_in_flight()
            if drained:
                self.hold(HoldReason.DRAINING)

    def _gathered(self, frame: bytes) -> None:
        if self._route is _LOGIN_HERE:
            assert self._login is not None
            self._login.take(frame)
            self._splitter.shortest = self._login.shortest
            self._limit_in_flight()
            return
        assert self._api is not None
        if not self._who.known:
            self._who.says(frame, self.host)
        self._requests.take(frame, self._api, self._route, self.peer)
        if not self._state.taking and HoldReason.PENDING_REQUEST in self._state.holds:
            self._shared.inbound_memory.set_waiting(self, self.node_id, len(frame))
        self._limit_in_flight()

    def _limit_in_flight(self) -> None:
        """Requests under way are bounded in number, their answers in bytes: small questions have large answers."""
        if not self._has_room():
            self.hold(HoldReason.IN_FLIGHT)
            self._requests.handler.send_now(self._client)
        if self._writer.unsent >= MAX_UNSENT:
            self._writer.flush()  # a client that does not read is found out before it has asked for more

    def _has_room(self) -> bool:
        if len(self.orderer) >= self._shared.max_in_flight or self._client.full:
            return False
        return self.orderer.held < MAX_UNSENT

    # Responses out

    def _written(self) -> None:
        """Responses have left: there may be room for more requests, or it was the last."""
        self._upstream.adjust_reading()
        if self._client.holds_answer:
            self._client.answers_left()
        if self._state.taking:
            if self._retiring:
                self.retire()
            return
        if HoldReason.IN_FLIGHT in self._state.holds and self._has_room():
            self._loop.call_soon(self.release, HoldReason.IN_FLIGHT)
        if not len(self.orderer):
            self._life.answered()

    def pause_writing(self) -> None:
        self.hold(HoldReason.CLIENT_SLOW)
        self._upstream.client_slow(slow=True)

    def resume_writing(self) -> None:
        self._upstream.client_slow(slow=False)
        if self._client.holds_answer:
            self._client.answers_left()
        self.release(HoldReason.CLIENT_SLOW)

    # Held, released, ended

    def eof_received(self) -> bool:
        """The client sends no more. Whether the connection stays, until all that it has asked is answered."""
        self._writer.flush()
        if self._state.passing:
            if not self._upstream.withdraw():
                return False
            self._state.passing = False
        if not len(self.orderer) or self._state.over:
            return False
        self._state.done = True
        if not self._splitter.between_frames:  # the rest of it never comes
            self._life.note(Cause.CLIENT_CUT_OFF)
            self._splitter.clear()
            self._tell_intake()
        self._requests.handler.send_now(self._client)
        self._life.end(Cause.CLIENT_DONE)
        return True

    def hang_up(self) -> None:
        """The client has `hung_up`."""
        holds = self._state.holds
        if HoldReason.LOGIN in holds or not (holds.isdisjoint(FOR_GOOD) and self.eof_received()):
            self.abort()

    @property
    def hung_up(self) -> bool:
        """The client is gone, or sends no more, which nobody has noticed, since it is not being read.

        What it sent before is to be taken first, unless it is held for what only the client could change.
        """
        transport = self._life.transport
        if self._state.taking or self._state.done or transport is None:
            return False
        if self._splitter.buffered and self._state.holds.isdisjoint(FOR_GOOD):
            return False
        waits = HoldReason.INBOUND_MEMORY in self._state.holds
        return hung_up(transport, self._splitter.missing if waits else 0)

    @property
    def done(self) -> bool:
        """The client sends no more: it has left, or waits for its last answers."""
        return self._state.done

    @property
    def held(self) -> bool:
        return bool(self._state.holds)

    def hold(self, why: HoldReason) -> None:
        """Take no further requests."""
        self._life.hold(why)

    def release(self, why: HoldReason) -> None:
        """Take them again, unless it is held for another reason."""
        if why is HoldReason.PENDING_REQUEST:
            self._state.release(why)
            self._shared.inbound_memory.set_waiting(self, self.node_id, 0)
        elif why is HoldReason.IN_FLIGHT and not self._has_room():
            return
        self._life.release(why)

    @property
    def party(self) -> int | None:
        """Whose requests wait where its own do: those of the broker that it came to."""
        return self.node_id

    def pending(self) -> int:
        """Bytes that it has sent and that were not read, as far as the system tells."""
        assert self._life.transport is not None
        return unread(self._life.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._life.end(Cause.CLIENT_LEFT if self._splitter.between_frames else Cause.CLIENT_CUT_OFF)
        self._upstream.close()
        self._splitter.clear()
        self._shared.inbound_memory.arrived(self)
        self._shared.metrics.closed(self.node_id)
        self._who.gone()
        if self._logins is not None:
            self._logins.gone()
        if self._login is not None:
            self._login.gone()
        self._limits.gone(self)
        # From here on nothing that it owns refers to it: it is freed at once, not when cycles are looked for.
        self._writer.gone()
        self._client.gone()

    def stalled(self) -> None:
        self._life.end(Cause.STALLED, client=self.peer)

    def close(self) -> None:
        """Close once what was written has gone out. Nothing more is taken from the client."""
        self._life.end(Cause.TOLD_TO_CLOSE)

    def abort(self) -> None:
        """Close at once."""
        self._life.end(Cause.TOLD_TO_ABORT)

    def drain(self) -> None:
        """Take no more requests; one that the broker has begun to receive is passed on to its end."""
        self._life.drain()

    # What the registry asks

    @property
    def holds(self) -> list[str]:
        """Why it takes no requests for now; empty: it takes them."""
        return [why.value for why in self._state.holds]

    @property
    def awaiting(self) -> int:
        """Requests not yet answered."""
        return len(self.orderer)

    @property
    def waits(self) -> bool:
        """Requests are not yet answered, or not yet taken for another reason than the client: it is not idle."""
        if len(self.orderer) > 0 or not self._state.holds <= FOR_GOOD:
            return True
        return self._shared.inbound_memory.bars(self) and self.pending() > 0

    @property
    def owing(self) -> bool:
        """Answers are outstanding that do not wait for something to happen, as those of Fetch do, or where records
        without acks go is not known yet. Who sends no more has left, most likely, and holds up nobody for them."""
        if self._writer.unsent or self._upstream.undivided:
            return True
        return self._upstream.owed and not (self._state.passing or self._state.done)

    @property
    def answered(self) -> bool:
        """Whether it was answered anything."""
        return self._writer.wrote

    @property
    def quiet(self) -> bool:
        """Nothing that was taken of it is under way."""
        if len(self.orderer) or self._client.producing or self._state.passing or self._writer.unsent:
            return False
        return not self._upstream.undivided

    @property
    def undelivered(self) -> int:
        """Bytes of answers that are not known to have arrived: the system drops them where the connection is closed and
        the client sends on (RFC 2525, 2.17)."""
        transport = self._life.transport
        return unconfirmed(transport) if transport is not None else 0

    @property
    def has_upstream(self) -> bool:
        """Whether it has a connection to a broker, or one is being made."""
        return self._upstream.is_open

    @property
    def settled(self) -> bool:
        """All that it has sent was taken, is answered, and its records' fate is known, those without acks too; nor is
        it about to send what must follow."""
        transport = self._life.transport
        if not self._state.taking or transport is None or not self.quiet or self._logs_in:
            return False
        return self._splitter.between_frames and not unread(transport)

    @property
    def _logs_in(self) -> bool:
        """It has asked for a login, anew perhaps, that takes another request."""
        if self._logins is not None:
            return self._logins.under_way
        return self._login is not None and self._login.under_way

    def retire(self) -> None:
        """Close as soon as it is `settled`."""
        self._retiring = True
        if self.settled:
            self._life.end(Cause.TOO_OLD)

    def leaving_for(self, now: float) -> float:
        """Seconds since it was to be closed on this side: answers, or what was written, are still on their way."""
        return self._state.leaving_for(now)

    def leave_idle_broker(self) -> None:
        """Close the upstream connection, if nothing is under way on it."""
        self._upstream.leave_if_idle()
