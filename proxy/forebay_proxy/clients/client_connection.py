"""One client's connection: requests in, responses out in their order.

In: the client's bytes. Each request frame goes the way that request_router tells: cut through on the client's own
upstream connection, gathered for the produce path, or answered here. Out: responses through the orderer.

The connection takes requests one after the other, and none while it is *held*, for any of the HELD reasons: then the
client is not read, and what has arrived waits. So a client never has more under way than it may, and order is kept.
A malformed frame, or one that is too large, closes this connection only, once what was asked before it is answered.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol, cast

from forebay_codecs import api_versions, metadata_request, produce_request
from forebay_codecs.apis import APIS, PRODUCE, SASL_HANDSHAKE, Api
from forebay_codecs.errors import Malformed
from forebay_codecs.frame import Frame, FrameSplitter, FrameTooLarge, Head
from forebay_codecs.header import LONGEST_HEADER, PEEK_SIZE, peek
from forebay_policies.intake import Intake
from forebay_proxy.clients.client_identity import ClientIdentity
from forebay_proxy.clients.descriptors import unread
from forebay_proxy.clients.gateway import Gateway
from forebay_proxy.clients.metadata_handler import MetadataHandler, Told
from forebay_proxy.clients.opaque_connection import Buffer, Expected, OpaqueConnection
from forebay_proxy.clients.request_router import Route, route
from forebay_proxy.clients.response_orderer import ResponseOrderer
from forebay_proxy.logs import RateLimited
from forebay_proxy.metrics.traffic import TrafficMetrics
from forebay_proxy.produce.completion import OnDone, ProduceCompletion
from forebay_proxy.produce.handler import ACKS, WAITS, ProduceHandler

# Why a client is held, beside the reasons of the produce path and of the intake.
CONNECTING = "connecting"
BROKER_SLOW = "broker slow"
CLIENT_SLOW = "client slow"
IN_FLIGHT = "in flight"
DRAINING = "draining"
CLOSING = "closing"

_PRODUCE = APIS[PRODUCE]
_numbers = itertools.count(1)


class Places(Protocol):
    """What a connection has a place in."""

    def admits(self, connection: ClientConnection) -> bool:
        """Whether one more of its address may stay."""

    def gone(self, connection: ClientConnection) -> None: ...


@dataclass(slots=True)
class Shared:
    """What all client connections of a process share."""

    gateway: Gateway
    handler: ProduceHandler
    metadata: MetadataHandler
    metrics: TrafficMetrics
    log: RateLimited
    intake: Intake
    max_request: int
    max_in_flight: int
    admin: str
    """Where the admin endpoint listens; empty: nowhere."""


class ClientConnection(asyncio.Protocol):
    """See the module. `node_id` is the broker that the listener stands for; None for the bootstrap listener."""

    def __init__(self, shared: Shared, places: Places, node_id: int | None) -> None:
        self._shared = shared
        self._places = places
        self.node_id = node_id
        self.number = next(_numbers)
        self.orderer = ResponseOrderer(self._write_out)
        self.last_active = monotonic()
        self.told: Told | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._splitter = FrameSplitter(PEEK_SIZE, shared.max_request)
        self._opaque: OpaqueConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._cut_through: list[Buffer] = []
        self._out: list[bytes | memoryview] = []  # leave at the end of this turn: each write is a system call
        self._api: Api | None = None
        self._route = Route.REFUSED
        self._held: set[str] = set()
        self._pumping = False
        self._authenticating = False
        self._closed = False
        self._arriving = False  # a request has begun and is not whole
        self._passing = False  # its first bytes are on their way to the broker
        self._draining = False
        self._left_at: float | None = None
        self._producing = 0  # requests that have been reserved a place and are not answered
        self._when_alone: Callable[[], None] | None = None
        self._who = ClientIdentity(shared.metrics, shared.log)
        self.received = 0
        self._advertised_host = self.host = self.peer = ""

    # What others ask of the connection

    @property
    def awaiting(self) -> int:
        """Requests not yet answered."""
        return len(self.orderer)

    @property
    def has_upstream(self) -> bool:
        return self._opaque is not None and not self._opaque.closed

    @property
    def owing(self) -> bool:
        """Answers are outstanding that do not wait for something to happen, as those of Fetch do."""
        return bool(self._out) or (self._opaque is not None and self._opaque.owed and not self._passing)

    @property
    def held(self) -> bool:
        return bool(self._held)

    def hold(self, why: str) -> None:
        if not self._held and self._transport is not None:
            self._transport.pause_reading()
        self._held.add(why)

    def release(self, why: str) -> None:
        self._held.discard(why)
        if why == WAITS:
            self._shared.intake.waits(self, 0)
        if not self._held and self._transport is not None and not self._closed:
            self._transport.resume_reading()
            self._pump()

    def pending(self) -> int:
        assert self._transport is not None
        return unread(self._transport)

    def stalled(self) -> None:
        self._shared.metrics.refused("stalled")
        self._shared.log.warning("closing a client whose request does not go on", client=self.peer)
        self._closed = True
        self.abort()

    def drain(self) -> None:
        """Take no more requests; one that the broker has begun to receive is passed on to its end."""
        if self._passing:
            self._draining = True
        else:
            self.hold(DRAINING)

    def reserve(self, acks: int) -> OnDone:
        self._producing += 1
        if acks == 0:
            return self._done_without_response
        slot = self.orderer.open()

        def done(completion: ProduceCompletion, frame: bytes | None, refused: bool) -> None:
            self._one_produced()
            if not self._closed and frame is not None:
                self.orderer.write(slot, frame, True)

        return done

    def when_alone(self, ready: Callable[[], None]) -> None:
        if self._producing == 1:
            ready()
        else:
            self._when_alone = ready

    def _one_produced(self) -> None:
        self._producing -= 1
        if self._producing == 1 and self._when_alone is not None:
            self._loop.call_soon(self._when_alone)
            self._when_alone = None

    def produced(self, records: int) -> None:
        self._who.produced(records)

    def reserve_answer(self) -> Callable[[bytes | None], None]:
        slot = self.orderer.open()

        def answer(frame: bytes | None) -> None:
            if self._closed:
                return
            if frame is None:
                self.close()
            else:
                self.orderer.write(slot, frame, True)

        return answer

    def _done_without_response(self, completion: ProduceCompletion, frame: bytes | None, refused: bool) -> None:
        """acks=0: a broker that refuses closes the connection, since it has no other way to say so."""
        self._one_produced()
        if refused and not self._closed:
            self._shared.log.warning("acks=0 records refused, closing the client", client=self.peer)
            self.leave()

    def send_own(
        self,
        frame: list[Buffer],
        version: int,
        correlation_id: int,
        acks: int,
        on_answer: Callable[[bytes | None], None],
    ) -> None:
        if self._closed:
            on_answer(None)
            return
        opaque = self._open_opaque()
        if acks == 0:
            opaque.sent_unacknowledged()
        else:
            opaque.expect(Expected(_PRODUCE, version, correlation_id, capture=on_answer))
        self._cut_through += frame
        if not self._pumping:
            self._flush()

    def translate(self, node_id: int, host: str, port: int) -> tuple[str, int] | None:
        return self._shared.gateway.translate(self._advertised_host, node_id, host, port)

    def upstream_paused(self, paused: bool) -> None:
        (self.hold if paused else self.release)(BROKER_SLOW)

    def upstream_lost(self, why: str, awaited: Expected | None) -> None:
        self._shared.metrics.upstream_lost()
        self._shared.log.info("broker closed a client's connection", client=self.peer, node=self.node_id, reason=why)
        if awaited is not None and not self._shared.gateway.takes(awaited.api.key, awaited.version):
            self._who.too_old(awaited.api, awaited.version, self.peer)
        self.close()

    def produce_answered(self, response: bytes, version: int) -> None:
        self._shared.gateway.produce_answered(response, version)

    def topics_changed(self) -> None:
        self._shared.gateway.topics_changed()

    def upstream_left(self) -> None:
        if self._authenticating:
            self.close()

    def upstream_malformed(self, error: Malformed) -> None:
        self._shared.metrics.upstream_protocol()
        self._shared.log.error("broker broke the protocol", node=self.node_id, error=str(error))
        self.abort()

    def leave_idle_broker(self) -> None:
        """Close the upstream connection, if nothing is under way on it."""
        if self._opaque is not None and not self._opaque.awaited and not self._authenticating:
            self._opaque.close()

    def leaving_for(self, now: float) -> float:
        """Seconds since it was to be closed on this side: answers, or what was written, are still on their way."""
        return now - self._left_at if self._left_at is not None else 0.0

    def leave(self) -> None:
        """Take nothing more, and close once what was asked so far is answered: a broker works in order, too."""
        self._left_at = self._left_at or monotonic()
        self.hold(CLOSING)
        if not len(self.orderer):
            self.close()

    def close(self) -> None:
        """Close once what was written has gone out. Nothing more is taken from the client."""
        self._left_at = self._left_at or monotonic()
        self.hold(CLOSING)
        self._write_now()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class, of the same interface
        local, peer = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        self._advertised_host = local[0] if local else ""
        self.host = peer[0] if peer else ""
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._shared.metrics.opened(self.node_id)
        if not self._places.admits(self):
            self.close()

    def data_received(self, data: bytes) -> None:
        self.last_active = monotonic()
        self.received += len(data)
        self._shared.metrics.requests_in(len(data))
        self._splitter.feed(data)
        self._pump()

    def pause_writing(self) -> None:
        self.hold(CLIENT_SLOW)
        if self._opaque is not None:
            self._opaque.client_slow(True)

    def resume_writing(self) -> None:
        if self._opaque is not None:
            self._opaque.client_slow(False)
        self.release(CLIENT_SLOW)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._opaque is not None:
            self._opaque.close()
        if not self._splitter.between_frames:
            self._shared.metrics.cut_off()
            self._splitter.clear()
        self._shared.intake.arrived(self)
        self._shared.metrics.closed(self.node_id)
        self._who.gone()
        self._places.gone(self)

    # Requests

    def _pump(self) -> None:
        """Take requests until there are no more, or the client is held."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while not self._held and not self._closed and (event := self._splitter.next_event()) is not None:
                if isinstance(event, Head):
                    self._begin(event)
                elif isinstance(event, Frame):
                    self._gathered(event.data)
                else:
                    if not self._who.known:
                        self._who.says(bytes(event.data[4 : 4 + LONGEST_HEADER]), self.host)
                    self._cut_through.append(event.data)
                    if event.last:
                        self._passing = False
                        self._limit_in_flight()
                        if self._draining:
                            self.hold(DRAINING)
        except Malformed as error:
            self._shared.metrics.refused("too_large" if isinstance(error, FrameTooLarge) else "malformed")
            self._shared.log.warning("closing a client that broke the protocol", client=self.peer, error=str(error))
            self.leave()
        finally:
            self._pumping = False
        self._flush()
        self._tell_intake()

    def _tell_intake(self) -> None:
        """What has begun to arrive is bounded over all connections."""
        if not self._splitter.between_frames and not self._closed:
            self._arriving = True
            self._shared.intake.arriving(self, self._splitter.gathered, self._splitter.missing)
        elif self._arriving:
            self._arriving = False
            self._shared.intake.arrived(self)

    def _flush(self) -> None:
        if self._cut_through:
            runs, self._cut_through = self._cut_through, []
            if not self._closed:
                self._open_opaque().write(runs)

    def _begin(self, head: Head) -> None:
        key, version, correlation_id = peek(head.start, 0)
        self._route, self._api = route(key, version)
        if self._api is None or self._route is Route.REFUSED:
            self._refuse(key, version)
            return
        self._shared.metrics.request(self._api.name)
        self._who.begins(key, version)
        if self._route is Route.METADATA and self._authenticating:
            self._route = Route.OPAQUE  # what a client may know of is the broker's to say
        if self._route is not Route.OPAQUE:
            self._splitter.collect()
            return
        self._splitter.cut_through()
        self._passing = True
        if key == SASL_HANDSHAKE:
            # From here on the broker knows the client by name: its records must not mix with those of others.
            self._authenticating = True
        self._open_opaque().expect(Expected(self._api, version, correlation_id, self.orderer.open()))

    def _refuse(self, key: int, version: int) -> None:
        self._shared.metrics.refused("unknown_api" if self._api is None else "unsupported_version")
        self._shared.log.warning(
            "closing a client that asks for what is not offered",
            client=self.peer,
            api=self._api.name if self._api is not None else key,
            version=version,
        )
        self.leave()

    def _gathered(self, frame: bytes) -> None:
        _, version, correlation_id = peek(frame, 0)
        assert self._api is not None
        if not self._who.known:
            self._who.says(frame, self.host)
        if self._route is Route.API_VERSIONS:
            self._answer_api_versions(version, correlation_id)
        else:
            try:
                handled = self._metadata(frame) if self._route is Route.METADATA else self._produce(frame)
            except Malformed as error:  # by us; the broker may think otherwise
                self._shared.metrics.unread(self._api.name)
                self._shared.log.info(
                    "a request goes on unread", client=self.peer, api=self._api.name, error=str(error)
                )
                handled = False
            if not handled:
                acks = produce_request.peek_acks(frame) if self._route is Route.PRODUCE else None
                self._forward(frame, version, correlation_id, acks)
        if WAITS in self._held:
            self._shared.intake.waits(self, len(frame))
        self._limit_in_flight()

    def _metadata(self, frame: bytes) -> bool:
        return self._shared.metadata.handle(self, frame, metadata_request.parse_metadata_request(frame))

    def _produce(self, frame: bytes) -> bool:
        if self._authenticating:
            return False
        request = produce_request.parse(frame)
        # Acks that there are not: the broker's to refuse, if it knows the version.
        unheard_of = request.acks not in ACKS and request.version >= produce_request.RECORD_BATCHES_FROM
        return not unheard_of and self._shared.handler.handle(self, frame, request)

    def _forward(self, frame: bytes, version: int, correlation_id: int, acks: int | None) -> None:
        """A gathered frame, as it came. `acks` of a Produce request, where they can be read."""
        assert self._api is not None
        opaque = self._open_opaque()
        if acks == 0:
            opaque.sent_unacknowledged()
        else:
            opaque.expect(Expected(self._api, version, correlation_id, self.orderer.open()))
        self._cut_through += (len(frame).to_bytes(4, "big"), frame)

    def _answer_api_versions(self, version: int, correlation_id: int) -> None:
        assert self._api is not None
        if not self._api.supports(version):
            self.reserve_answer()(_framed(api_versions.unsupported_version_response(correlation_id)))
            return
        answer = self.reserve_answer()
        own_command = self._who.is_own_command  # is told where to ask further, nobody else

        def ready(response: bytes | None) -> None:
            if response is not None and own_command:
                response = api_versions.with_admin(response, self._shared.admin)
            own = correlation_id.to_bytes(4, "big", signed=True)
            answer(_framed(own + response[4:]) if response is not None else None)

        self._shared.gateway.api_versions(self.node_id, version, ready)

    def _limit_in_flight(self) -> None:
        if len(self.orderer) >= self._shared.max_in_flight:
            self.hold(IN_FLIGHT)
            self._shared.handler.hurry()

    # The client's own upstream connection

    def _open_opaque(self) -> OpaqueConnection:
        if self._opaque is None or self._opaque.closed:
            self._opaque = OpaqueConnection(self)
            self.hold(CONNECTING)
            self._connecting = self._loop.create_task(self._connect(self._opaque))
        return self._opaque

    async def _connect(self, opaque: OpaqueConnection) -> None:
        try:
            await self._shared.gateway.connect(self.node_id, opaque)
        except (OSError, UnicodeError) as error:  # the latter: a host name that cannot be one
            self._shared.metrics.connect_failed()
            self._shared.log.warning(
                "no connection to the broker for a client", client=self.peer, node=self.node_id, error=str(error)
            )
            opaque.connection_lost(error)
            self.close()
            return
        if opaque is self._opaque:
            self._connecting = None
            self.release(CONNECTING)

    # Responses

    def _write_out(self, buffers: list[bytes | memoryview]) -> None:
        if not self._out:
            self._loop.call_soon(self._write_now)
        self._out += buffers

    def _write_now(self) -> None:
        buffers, self._out = self._out, []
        if not buffers or self._transport is None or self._transport.is_closing():
            return
        self._shared.metrics.responses_out(sum(map(len, buffers)))
        self._transport.writelines(buffers)
        if IN_FLIGHT in self._held and len(self.orderer) < self._shared.max_in_flight:
            self._loop.call_soon(self.release, IN_FLIGHT)
        if self._opaque is not None:
            self._opaque.adjust_reading()
        if self._left_at is not None and not len(self.orderer):
            self.close()


def _framed(response: bytes) -> bytes:
    return len(response).to_bytes(4, "big") + response
