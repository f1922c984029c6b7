"""The upstream side of a client that sees one broker for all (`producers.only`): a connection to each that it needs.

    opaque request   → any broker, always the same           ClientUpstream itself; its end is the client's
    Produce request  ┬ partitions led by broker 1 → link 1   BrokerLink; its end costs what was away on it
                     └ partitions led by broker 2 → link 2

In: what ClientUpstream takes, and whole Produce requests. Out: their answers, put together (divided_requests). Where a
leader is not known it is asked for, and the client held meanwhile. To whom a partition goes while its leader changes is
decided by policies.leader_handover.

    link cannot be made          NOT_LEADER_OR_FOLLOWER for what was to go there: nothing of it was sent
    link lost, or no answer      REQUEST_TIMED_OUT for what was away; the link is left
    acks=0, and any of it fails  the client's connection ends, as a broker ends it
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol, cast

from forebay_codecs import error_codes, produce_request, produce_response
from forebay_codecs.apis import Api
from forebay_codecs.errors import Malformed
from forebay_codecs.one_broker import REWRITTEN
from forebay_codecs.primitives import Buffer
from forebay_codecs.produce_request import ProduceRequest
from forebay_codecs.produce_response import ProduceResponse
from forebay_codecs.producers_only import MESSAGE
from forebay_policies import retry
from forebay_policies.divided_requests import DividedRequest, PartitionPart
from forebay_policies.hold_reason import HoldReason
from forebay_policies.leader_handover import NOWHERE, LeaderHandover
from forebay_proxy.clients.client_identity import ClientIdentity
from forebay_proxy.clients.client_upstream import ClientUpstream, UpstreamGateway
from forebay_proxy.clients.connection_life import ConnectionLife
from forebay_proxy.clients.connection_state import Cause
from forebay_proxy.clients.opaque_connection import Expected, OpaqueConnection
from forebay_proxy.clients.response_orderer import ResponseOrderer

SHORTEST_WAIT_S: Final = 1.0
"""As for merged records: some clients send timeouts of a few ms."""

PATIENCE: Final = 2 / 3
"""The part of a request's timeout after which a broker that does not answer is left. Java waits exactly as long itself,
and would then leave this port, with all that is away to other brokers."""

_TAKEN: Final = (error_codes.NONE, error_codes.DUPLICATE_SEQUENCE_NUMBER)


class Leaders(UpstreamGateway, Protocol):
    """What it asks of the gateway beside that."""

    def knows(self, topic: str, partition: int) -> bool:
        """Whether the partition is known to be there."""

    def why_unknown(self, topic: str) -> int:
        """The error code for a partition that is not, after asking."""

    def leader(self, topic: str, partition: int) -> int:
        """The node id of the partition's leader; NOWHERE where it has none that is known."""

    def want(self, topic: str, ready: Callable[[], None]) -> None:
        """Ask a broker about the topic; `ready` is called once it has answered."""

    def forget(self, topic: str, ready: Callable[[], None]) -> None:
        """`ready` is not wanted any more."""

    def leaders_told(self, response: ProduceResponse) -> None:
        """What a broker's answer says of leaders holds for everybody."""

    def leader_lost(self, topic: str) -> None:
        """The leader that was known of a partition did not take records."""


class BrokerLink(ClientUpstream):
    """The connection to one broker. Its end is told to those who wait for an answer, and to nobody else."""

    def __init__(
        self,
        life: ConnectionLife,
        orderer: ResponseOrderer,
        who: ClientIdentity,
        gateway: Leaders,
        node_id: int,
        whole: DividedUpstream,
    ) -> None:
        super().__init__(life, orderer, who, gateway, node_id)
        self._whole = whole
        self._holds: set[HoldReason] = set()
        self._unheard = False
        """Something without acks was sent on it."""
        self.cost_answers = False
        """Its end did."""

    @property
    def connection(self) -> OpaqueConnection | None:
        """The one that was used last."""
        return self._opaque

    def expect_none(self) -> None:
        super().expect_none()
        self._unheard = True

    def leave(self) -> None:
        """The broker does not answer: what is away is lost, and the next request gets a new connection."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._opaque is not None:
            self._opaque.abort()
        self._let_go()

    def close(self) -> None:
        super().close()
        self._let_go()

    def _let_go(self) -> None:
        for why in tuple(self._holds):
            self.release(why)

    def hold(self, why: HoldReason) -> None:
        if why not in self._holds:
            self._holds.add(why)
            self._whole.hold(why)

    def release(self, why: HoldReason) -> None:
        if why in self._holds:
            self._holds.discard(why)
            self._whole.release(why)

    def _unreachable(self, error: Exception) -> None:
        self._note_unreachable(error)
        self._let_go()

    def upstream_lost(self, why: str, awaited: Expected | None) -> None:
        if not self._unmade:
            self._life.note(Cause.BROKER_LOST, client=self._life.peer, node=self._node_id, reason=why)
        self._let_go()
        if self._unheard:
            self._life.end(Cause.RECORDS_REFUSED, client=self._life.peer)

    def upstream_left(self) -> None:
        if self.cost_answers and not self._unmade:
            self._life.note(Cause.BROKER_LOST, client=self._life.peer, node=self._node_id, reason="answers lost")
        self.cost_answers = False
        self._let_go()

    def upstream_malformed(self, error: Malformed) -> None:
        self._life.note(Cause.BROKER_MALFORMED, node=self._node_id, error=str(error))
        self._let_go()

    def produce_answered(self, response: bytes, version: int) -> None:
        """Told by whoever asked."""


class DividedUpstream(ClientUpstream):
    """Every partition of a Produce request is sent to one broker, once, or fails here. Each request has one answer."""

    def __init__(
        self,
        life: ConnectionLife,
        orderer: ResponseOrderer,
        who: ClientIdentity,
        gateway: Leaders,
        node_id: int | None,
    ) -> None:
        super().__init__(life, orderer, who, gateway, node_id)
        self._handover = LeaderHandover()
        self._links: dict[int, BrokerLink] = {}
        self._reasons: dict[HoldReason, int] = {}
        """How often the client is held for each."""

    @property
    def sees_one_broker(self) -> bool:
        return True

    @property
    def _leaders(self) -> Leaders:
        """The gateway that the client has: from a login on, that of its identity."""
        return cast(Leaders, self._gateway)

    # Requests

    def expect(self, api: Api, version: int, correlation_id: int, heard: Callable[[bytes], None] | None = None) -> None:
        super().expect(REWRITTEN.get(api.key, api), version, correlation_id, heard)

    def send_own(
        self,
        frame: list[Buffer],
        version: int,
        correlation_id: int,
        acks: int,
        on_answer: Callable[[bytes | None], None],
    ) -> None:
        if self._state.over and acks:
            on_answer(None)
            return
        whole = b"".join(frame)[4:]
        self.produce(whole, produce_request.parse(whole), lambda answer: on_answer(answer[4:]))

    def produce(self, frame: bytes, request: ProduceRequest, on_answer: Callable[[bytes], None]) -> None:
        """A Produce request, which `frame` holds without its size. `on_answer` gets the response's frame.

        With acks=0 it is not called.
        """
        divided = DividedRequest(frame, request, on_answer)
        if request.transactional_id is None:
            PendingDivision(self, self._leaders, divided).start()
            return
        for part in divided.parts:
            part.fails(error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, MESSAGE)
        divided.close_one()

    def send(self, divided: DividedRequest) -> None:
        """Divide it, now that leaders are known, and send the parts."""
        request, now = divided.request, monotonic()
        by_broker: dict[int, list[PartitionPart]] = {}
        for part in divided.parts:
            node_id = self._broker_of(part, now)
            if node_id != NOWHERE:
                by_broker.setdefault(node_id, []).append(part)
        if request.acks == 0:
            for node_id, parts in by_broker.items():
                frame = divided.frame_of(parts)
                self._link(node_id).send_own(frame, request.version, request.correlation_id, 0, lambda answer: None)
            if self._state.over:
                self.close()  # it has gone on links of its own
            elif any(part.outcome is not None for part in divided.parts):
                self._life.end(Cause.RECORDS_REFUSED, client=self._life.peer)
            return
        for node_id, parts in by_broker.items():
            for part in parts:
                self._handover.sent((part.topic, part.partition), node_id)
        for node_id, parts in by_broker.items():
            PartAway(self, self._leaders, self._link(node_id), divided, parts).send()
        divided.close_one()

    def _broker_of(self, part: PartitionPart, now: float) -> int:
        """Where it goes; NOWHERE: it has failed."""
        topic, partition = key = part.topic, part.partition
        if not self._leaders.knows(topic, partition):
            part.fails(self._leaders.why_unknown(topic))
            return NOWHERE
        node_id = self._handover.broker(key, self._leaders.leader(topic, partition), part.numbers, now)
        if node_id == NOWHERE:
            part.fails(error_codes.NOT_LEADER_OR_FOLLOWER)
            self._handover.refused(key, part.numbers, now)
            if self._leaders.leader(topic, partition) == NOWHERE:
                self._leaders.leader_lost(topic)
        return node_id

    def _link(self, node_id: int) -> BrokerLink:
        link = self._links.get(node_id)
        if link is None:
            link = self._links[node_id] = BrokerLink(self._life, self.orderer, self._who, self._leaders, node_id, self)
        return link

    def told(self, parts: list[PartitionPart], *, lost: bool) -> None:
        """What became of parts that were sent."""
        now = monotonic()
        for part in parts:
            key = part.topic, part.partition
            outcome = part.outcome
            if outcome is not None and outcome.error_code in _TAKEN:
                self._handover.answered(key)
            else:
                judged = not lost and outcome is not None and not retry.leads_no_more(outcome.error_code)
                self._handover.failed(key, part.numbers, now, judged=judged)
            if lost:
                self._leaders.leader_lost(part.topic)

    # Held by any of several

    def hold(self, why: HoldReason) -> None:
        """One more reason of that kind not to read the client."""
        self._reasons[why] = self._reasons.get(why, 0) + 1
        self._life.hold(why)

    def release(self, why: HoldReason) -> None:
        """Drop one of the reasons that `hold` counted; the client is read again when none of that kind is left."""
        self._reasons[why] -= 1
        if not self._reasons[why]:
            self._life.release(why)

    # All connections together

    @property
    def is_open(self) -> bool:
        return super().is_open or any(link.is_open for link in self._links.values())

    @property
    def owed(self) -> bool:
        return super().owed or any(link.owed for link in self._links.values())

    @property
    def has_records(self) -> bool:
        return super().has_records or any(link.has_records for link in self._links.values())

    def settle(self) -> None:
        super().settle()
        for link in self._links.values():
            link.settle()

    def client_slow(self, *, slow: bool) -> None:
        super().client_slow(slow=slow)
        for link in self._links.values():
            link.client_slow(slow=slow)

    def adjust_reading(self) -> None:
        super().adjust_reading()
        for link in self._links.values():
            link.adjust_reading()

    def leave_if_idle(self) -> None:
        super().leave_if_idle()
        for link in self._links.values():
            link.leave_if_idle()

    def close(self) -> None:
        super().close()
        links = list(self._links.values())
        self._links.clear()
        for link in links:
            link.close()


class PartAway:
    """What one broker was sent of a request, until it has answered, or is left because it does not."""

    __slots__ = ("_connection", "_divided", "_leaders", "_link", "_parts", "_timer", "_upstream")

    def __init__(
        self,
        upstream: DividedUpstream,
        leaders: Leaders,
        link: BrokerLink,
        divided: DividedRequest,
        parts: list[PartitionPart],
    ) -> None:
        self._upstream = upstream
        self._leaders = leaders
        self._link = link
        self._divided = divided
        self._parts = parts
        self._connection: OpaqueConnection | None = None
        wait = _wait_s(divided.request, leaders.patience)
        self._timer = asyncio.get_running_loop().call_later(wait, link.leave)

    def send(self) -> None:
        """Send it."""
        request, frame = self._divided.request, self._divided.frame_of(self._parts)
        self._link.send_own(frame, request.version, request.correlation_id, request.acks, self._answered)
        self._connection = self._link.connection

    def _answered(self, answer: bytes | None) -> None:
        self._timer.cancel()
        if answer is None:
            self._lost()
            return
        try:
            response = produce_response.parse(answer, self._divided.request.version)
        except Malformed:
            self._lost()
            raise  # to the connection, which ends
        self._leaders.leaders_told(response)
        self._divided.answered(self._parts, response)
        self._upstream.told(self._parts, lost=False)
        self._divided.close_one()

    def _lost(self) -> None:
        never_left = self._connection is not None and not self._connection.stood
        self._link.cost_answers = True
        self._divided.lost(
            self._parts, error_codes.NOT_LEADER_OR_FOLLOWER if never_left else error_codes.REQUEST_TIMED_OUT
        )
        self._upstream.told(self._parts, lost=True)
        self._divided.close_one()


class PendingDivision:
    """A request until leaders of all its partitions are known, or were asked for in vain: then it is sent."""

    __slots__ = ("_divided", "_leaders", "_missing", "_timer", "_unknown", "_upstream")

    def __init__(self, upstream: DividedUpstream, leaders: Leaders, divided: DividedRequest) -> None:
        self._upstream = upstream
        self._leaders = leaders
        self._divided = divided
        self._missing: set[str] = set()
        self._unknown = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Send it now, or once brokers have told of its topics; the client is held meanwhile."""
        leaders = self._leaders
        missing = {part.topic for part in self._divided.parts if not leaders.knows(part.topic, part.partition)}
        if not missing:
            self._upstream.send(self._divided)
            return
        self._missing = missing
        self._unknown = len(missing)
        self._upstream.hold(HoldReason.CONNECTING)
        if self._divided.request.acks == 0:
            self._upstream.undivided += 1
            leaders.departing.add(self)
        wait = _wait_s(self._divided.request, leaders.patience)
        self._timer = asyncio.get_running_loop().call_later(wait, self._expired)
        for name in missing:
            leaders.want(name, self._topic_settled)

    def _topic_settled(self) -> None:
        self._unknown -= 1
        if not self._unknown and self._timer is not None:
            self._timer.cancel()
            self._go_on()

    def abort(self) -> None:
        """Nothing of it is sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._leaders.departing.discard(self)

    def _expired(self) -> None:
        for name in self._missing:
            self._leaders.forget(name, self._topic_settled)
        self._go_on()

    def _go_on(self) -> None:
        self._timer = None
        if self._divided.request.acks == 0:
            self._upstream.undivided -= 1
            self._leaders.departing.discard(self)
        self._upstream.send(self._divided)
        self._upstream.release(HoldReason.CONNECTING)


def _wait_s(request: ProduceRequest, patience: float) -> float:
    return min(patience, max(SHORTEST_WAIT_S, PATIENCE * request.timeout_ms / 1000))
