"""A client's side of its own upstream connection: opened when it is needed, fed in order, and what its end means.

In: bytes of requests to pass on, and for each that will be answered what is expected. Out: these bytes on an
OpaqueConnection, of which there is one at a time. While it is being made, and while the broker takes no more, the
client is held.

    closed by the broker while nothing was awaited   the next request opens another; a client that logs in itself ends,
                                                     unless Forebay can log in as it (`vouched`)
    unreachable, when only ApiVersions was asked     `unreached` may answer it, and the next request opens another
    closed by the broker otherwise, or unreachable   the client's connection ends, as if there were no proxy
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from forebay_codecs import api_versions
from forebay_codecs.api_keys import API_VERSIONS, PRODUCE, SASL_HANDSHAKE
from forebay_codecs.apis import APIS, Api
from forebay_codecs.errors import Malformed
from forebay_codecs.primitives import Buffer
from forebay_policies.hold_reason import HoldReason
from forebay_policies.response_memory import ResponseMemory
from forebay_proxy.brokers.session import Session
from forebay_proxy.clients.client_identity import ClientIdentity
from forebay_proxy.clients.connection_life import ConnectionLife
from forebay_proxy.clients.connection_state import Cause
from forebay_proxy.clients.descriptors import sends_no_more
from forebay_proxy.clients.opaque_connection import OWN_CORRELATION_ID, Expected, OpaqueConnection
from forebay_proxy.clients.response_orderer import ResponseOrderer, Slot

_PRODUCE = APIS[PRODUCE]
_API_VERSIONS = APIS[API_VERSIONS]
_QUESTION = api_versions.request(OWN_CORRELATION_ID, None, 0, "", "")
"""Brokers answer what comes on a connection in its order."""


class Departing(Protocol):
    """It may still have records without acks to send, of a client that is gone."""

    def abort(self) -> None:
        """Leave them at once."""


class UpstreamGateway(Protocol):
    """What the client's side asks of the gateway."""

    responses: ResponseMemory
    departing: set[Departing]
    patience: float
    """Seconds that a request may take at most (`delivery.timeout.ms`)."""
    own_logins: bool
    """Clients log in at brokers by themselves: nothing is asked for them by anybody else."""

    def translate(
        self, advertised_host: str, node_id: int, host: str, port: int, *, cached: bool = False
    ) -> tuple[str, int] | None:
        """(host, port) where the client finds that broker; None: nowhere. `cached`: its own address is no news."""

    async def connect(self, node_id: int | None, protocol: OpaqueConnection) -> Session | None:
        """Connect `protocol` to a broker (None: to any), and the session that is to be renewed on it.

        Raises OSError, UnicodeError for a bad host name, or Malformed.
        """

    def takes(self, api_key: int, version: int) -> bool:
        """Whether brokers take such requests, as far as is known."""

    def produce_answered(self, response: bytes, version: int) -> None:
        """A broker's answer to untouched records. Raises Malformed."""

    def topics_changed(self, node_id: int | None, client_host: str) -> None:
        """A client has had that broker make, end or move topics."""

    def topics_settle(self, node_id: int | None, client_host: str) -> bool:
        """Whether that broker, by which the client changed topics, may be the only one to know."""


class ClientUpstream:
    """What is passed on reaches the broker in the order in which it was given, and nothing of it twice.

    `own_login`        the client logs in at the broker by itself, or will: nothing of it goes elsewhere
    `vouched`          it has, and the gateway's connections are logged in as it from now on
    `corked`           bytes gather until `flush`, so that requests which came together leave together
    `advertised_host`  as what host the client finds brokers
    `client_host`      where the client is
    """

    def __init__(
        self,
        life: ConnectionLife,
        orderer: ResponseOrderer,
        who: ClientIdentity,
        gateway: UpstreamGateway,
        node_id: int | None,
    ) -> None:
        self.orderer = orderer
        self.metrics = life.metrics
        self.patience = gateway.patience
        self.own_login = gateway.own_logins
        self.corked = False
        self.vouched = False
        self.unreached: Callable[[Slot], None] | None = None
        """Answers ApiVersions where the broker cannot be reached and nothing else was asked of it."""
        self.undivided = 0
        """Requests without acks that wait for their leaders (divided_upstream)."""
        self.advertised_host = self.client_host = ""
        self._life = life
        self._state = life.state
        self._who = who
        self._gateway = gateway
        self._node_id = node_id
        self._loop = asyncio.get_running_loop()
        self._opaque: OpaqueConnection | None = None
        self._client_slow = False
        self._unmade = False
        """The connection attempt failed; `_connect` reports it, so `upstream_lost` must not."""
        self._connecting: asyncio.Task[None] | None = None
        self._gathered: list[Buffer] = []

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, or one is being made."""
        return self._opaque is not None and not self._opaque.closed

    @property
    def owed(self) -> bool:
        """An answer is awaited that the broker gives as soon as it can."""
        return self._opaque is not None and self._opaque.owed

    @property
    def sees_one_broker(self) -> bool:
        """The client knows of one broker, which stands for all."""
        return False

    @property
    def topics_settle(self) -> bool:
        """Topics that the client has changed here may not be known to other brokers yet."""
        return self._gateway.topics_settle(self._node_id, self.client_host)

    @property
    def has_records(self) -> bool:
        """Records of the client are on their way here."""
        return self._opaque is not None and self._opaque.has_records

    def vouch(self, gateway: UpstreamGateway) -> None:
        """The client has proved who it is; `gateway` can do so again, in its place."""
        self._gateway = gateway
        self.vouched = True

    # Requests

    def expect(self, api: Api, version: int, correlation_id: int, heard: Callable[[bytes], None] | None = None) -> None:
        """A request follows whose response goes to the client; `heard` is told of it before."""
        if api.key == SASL_HANDSHAKE:
            self._before_login()
        opaque = self._introduced()
        if api.key == SASL_HANDSHAKE:
            # From here on the broker knows the client by name: its records must not mix with those of others.
            self.own_login = True
        opaque.expect(Expected(api, version, correlation_id, self.orderer.open(), heard=heard))

    def withdraw(self) -> bool:
        """The rest of the request that is passed on never comes: it has no response, and nothing may follow. False: it
        belongs to a login, or its response has begun to come."""
        if self.own_login or not self.is_open or self._opaque is None or not self._opaque.withdraw():
            return False
        self.orderer.withdraw()
        return True

    def expect_token(self, start: bytes, heard: Callable[[bytes], None] | None = None) -> None:
        """A SASL token without a header follows, which begins so; `heard` is told how the broker's begins."""
        self._opened().sent_token(start, heard)

    def expect_none(self) -> None:
        """A Produce request with acks=0 follows."""
        self._next().sent_unacknowledged()

    def pass_on(self, data: Buffer) -> None:
        """Bytes of the request that was announced last."""
        self._gathered.append(data)

    def send_own(
        self,
        frame: list[Buffer],
        version: int,
        correlation_id: int,
        acks: int,
        on_answer: Callable[[bytes | None], None],
    ) -> None:
        """A Produce request of the proxy's; see produce.client.Client."""
        if self._state.over:
            if acks == 0:
                self._send_apart(frame)
            else:
                on_answer(None)
            return
        if acks == 0:
            self.expect_none()
        else:
            self._introduced().expect(Expected(_PRODUCE, version, correlation_id, capture=on_answer))
        self._gathered += frame
        if not self.corked:
            self.flush()

    def settle(self) -> None:
        """Have the broker show that it has records without acks that were sent here, where nothing else will."""
        if self._opaque is not None and self._opaque.unasked:
            self._ask_versions(self._next(), _QUESTION)
            if not self.corked:
                self.flush()

    def flush(self) -> None:
        """Write what was passed on."""
        if self._gathered:
            buffers, self._gathered = self._gathered, []
            if not self._state.over:
                self._opened().write(buffers)

    def _send_apart(self, buffers: list[Buffer]) -> None:
        """Records without acks of a client that is gone, on a connection that closes behind them."""
        if self.own_login and not (self.vouched or self.is_open):
            self._note_unreachable(ConnectionError("the client, which logs in itself, is gone"))
            return
        self.expect_none()
        self._opened().write(buffers)
        self.close()

    def _introduced(self) -> OpaqueConnection:
        """The same as `_next`, for a request with an answer. The broker is told the client's software before the first.

        Not before records without acks: where the client then leaves, an answer that nobody reads would cost them.
        """
        opaque = self._next()
        if not opaque.introduced:
            opaque.introduced = True
            introduction = self._who.introduction
            if introduction and (self.vouched or not self.own_login):  # else its own words go there
                self._ask_versions(opaque, introduction)
        return opaque

    def _ask_versions(self, opaque: OpaqueConnection, request: bytes) -> None:
        """ApiVersions for its own sake: nobody reads the answer."""
        opaque.expect(Expected(_API_VERSIONS, 0, OWN_CORRELATION_ID, capture=_unread))
        self._gathered += [len(request).to_bytes(4, "big"), request]

    def _next(self) -> OpaqueConnection:
        """Where the next request goes; what was passed on before is whole."""
        opaque = self._opened()
        if opaque.must_renew:
            self._pause(opaque, opaque.renew)
        return opaque

    def _before_login(self) -> None:
        """The client's own login follows, and renews the session: a broker takes no other just before it."""
        opaque = self._opened()
        opaque.renews = False
        if opaque.renewed_lately:
            self._pause(opaque, opaque.rest)

    def _pause(self, opaque: OpaqueConnection, begin: Callable[[Callable[[], None]], None]) -> None:
        """The next request, and the client, wait for what `begin` begins; it is told what to call when that is over."""
        self.flush()
        self.hold(HoldReason.CONNECTING)
        begin(lambda: self._not_waited_for(opaque))

    def _opened(self) -> OpaqueConnection:
        if self._opaque is None or self._opaque.closed:
            self._opaque = OpaqueConnection(self, self._gateway.responses)
            self.hold(HoldReason.CONNECTING)
            self._connecting = self._loop.create_task(self._connect(self._opaque))
        return self._opaque

    async def _connect(self, opaque: OpaqueConnection) -> None:
        try:
            opaque.session = await self._gateway.connect(self._node_id, opaque)
        except (OSError, UnicodeError, Malformed) as error:  # the second: a host name that cannot be one
            slot = opaque.take_back() if self.unreached is not None and not self._state.over else None
            if slot is not None and self.unreached is not None:
                self.unreached(slot)
                self._not_waited_for(opaque)
                return
            held_records = opaque.holds_records
            self._unmade = True
            opaque.connection_lost(error)  # first: what is answered now still goes out
            self._unmade = False
            if not self._state.over:
                self._unreachable(error)
            elif held_records:
                self._note_unreachable(error)
            return
        if opaque is self._opaque:
            self._connecting = None
        self._not_waited_for(opaque)

    def _not_waited_for(self, opaque: OpaqueConnection) -> None:
        """It stands, or is lost: if there is another one by now, the client waits for that."""
        if opaque is self._opaque:
            self.release(HoldReason.CONNECTING)

    def _unreachable(self, error: Exception) -> None:
        self._life.end(Cause.BROKER_UNREACHABLE, client=self._life.peer, node=self._node_id, error=str(error))

    def _note_unreachable(self, error: Exception) -> None:
        self._life.note(Cause.BROKER_UNREACHABLE, client=self._life.peer, node=self._node_id, error=str(error))

    def hold(self, why: HoldReason) -> None:
        """Read no more of the client, for that reason."""
        self._life.hold(why)

    def release(self, why: HoldReason) -> None:
        """That reason is gone."""
        self._life.release(why)

    # Responses, and the end

    def client_slow(self, *, slow: bool) -> None:
        """Read no more responses while the client does not read them (`slow`)."""
        self._client_slow = slow
        self.adjust_reading()

    def adjust_reading(self) -> None:
        """Responses have left: the broker may be read again."""
        if self._opaque is not None:
            self._opaque.responses_left(client_slow=self._client_slow)

    def leave_if_idle(self) -> None:
        """Close the connection, if nothing is under way on it."""
        opaque = self._opaque
        if opaque is not None and not (opaque.awaited or opaque.holds_records or self.own_login):
            opaque.close()

    def close(self) -> None:
        """The client is gone. What was written still goes out, and records without acks as soon as they can."""
        opaque, self._opaque = self._opaque, None
        if opaque is None:
            return
        if self._connecting is not None and not opaque.holds_records:
            self._connecting.cancel()
            self._connecting = None
        if opaque.unheard and not opaque.closed:
            self._gateway.departing.add(opaque)
        held_back = opaque.held_back
        opaque.close()
        if held_back:
            self._send_apart(held_back)

    # What the opaque connection tells (opaque_connection.Owner)

    @property
    def unsent(self) -> int:
        transport = self._life.transport
        return transport.get_write_buffer_size() if transport is not None else 0

    @property
    def left(self) -> bool:
        transport = self._life.transport
        return transport is not None and sends_no_more(transport)

    def translate(self, node_id: int, host: str, port: int, /, *, cached: bool = False) -> tuple[str, int] | None:
        return self._gateway.translate(self.advertised_host, node_id, host, port, cached=cached)

    def upstream_paused(self, *, paused: bool) -> None:
        if paused:
            self.hold(HoldReason.BROKER_SLOW)
        else:
            self.release(HoldReason.BROKER_SLOW)

    def upstream_lost(self, why: str, awaited: Expected | None) -> None:
        if self._unmade:
            return
        peer = self._life.peer
        self._life.end(Cause.BROKER_LOST, client=peer, node=self._node_id, reason=why)
        if awaited is not None and not self._gateway.takes(awaited.api.key, awaited.version):
            self._who.too_old(awaited.api, awaited.version, peer)

    def upstream_left(self) -> None:
        if self.own_login and not self.vouched:
            self._life.end(Cause.LOGIN_LOST)

    def upstream_malformed(self, error: Malformed) -> None:
        self._life.end(Cause.BROKER_MALFORMED, node=self._node_id, error=str(error))

    def produce_answered(self, response: bytes, version: int) -> None:
        self._gateway.produce_answered(response, version)

    def topics_changed(self) -> None:
        self._gateway.topics_changed(self._node_id, self.client_host)

    def upstream_unread(self) -> None:
        self._life.note(Cause.BROKER_DEAF, client=self._life.peer, node=self._node_id)

    def upstream_closed(self, connection: OpaqueConnection) -> None:
        self._gateway.departing.discard(connection)

    def not_taken(self) -> None:
        if not self._state.over:
            self._life.end(Cause.NOT_TAKEN, client=self._life.peer)


def _unread(answer: bytes | None) -> None:
    """What the broker offers is asked for elsewhere (broker_versions)."""
