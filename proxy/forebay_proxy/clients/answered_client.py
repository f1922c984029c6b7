"""A client connection as the Produce and Metadata handlers see it (produce.client, metadata_handler.MetadataClient).

In: a place reserved for each request that will be answered, the answers in any order. Out: answers in their places;
the connection's end where there is no answer, or records without acks were refused.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from time import monotonic

from forebay_codecs.header import peek
from forebay_codecs.primitives import Buffer
from forebay_policies.departed_brokers import DepartedBrokers
from forebay_policies.eligibility import Eligibility
from forebay_policies.hold_reason import HoldReason
from forebay_policies.untaken_answers import LARGE, UntakenAnswers
from forebay_proxy.clients.client_identity import ClientIdentity
from forebay_proxy.clients.client_upstream import ClientUpstream
from forebay_proxy.clients.connection_life import ConnectionLife
from forebay_proxy.clients.connection_state import Cause
from forebay_proxy.clients.metadata_handler import LastAnswer
from forebay_proxy.clients.response_orderer import ResponseOrderer, Slot
from forebay_proxy.produce.completion import OnDone, ProduceCompletion
from forebay_proxy.security.principals import as_kafka_writes

_numbers = itertools.count(1)


class AnsweredClient:
    """Each request is answered once, in its place; an answer that comes after the connection's end goes nowhere."""

    def __init__(
        self,
        life: ConnectionLife,
        orderer: ResponseOrderer,
        who: ClientIdentity,
        upstream: ClientUpstream,
        release: Callable[[HoldReason], None],
        departed: DepartedBrokers,
        node_id: int | None,
        most: int,
        answers: UntakenAnswers,
    ) -> None:
        """`node_id`: the broker on whose port the client is; None: on the bootstrap port.

        `most` Produce requests may be under way before the client is held as IN_FLIGHT; it is released below that.
        """
        self.number = next(_numbers)
        self.host = self.rack = ""
        self.principal = ""
        """As whom it is served here (`served_as`); else what it sends with a login of its own is untouched."""
        self.user = ""
        self.told: tuple[LastAnswer, ...] = ()
        self.judged_by: Eligibility | None = None
        self._life = life
        self._state = life.state
        self._orderer = orderer
        self._who = who
        self._upstream = upstream
        self._release = release
        self._departed = departed
        self.node_id = node_id
        self._loop = asyncio.get_running_loop()
        self._most = most
        self._producing = 0
        """Produce requests that have been reserved a place and are not answered."""
        self._when_alone: Callable[[], None] | None = None
        self._throttled_until = 0.0
        self._heard: Callable[[bytes], None] | None = None
        self._gone = False
        self._answers = answers
        self._room: Callable[[], None] | None = None
        """Who waits for room for an answer."""
        self.holds_answer = False
        """It may not have taken all of a large answer."""

    @property
    def own_login(self) -> bool:
        return self._upstream.own_login and not self.principal

    @property
    def sees_one_broker(self) -> bool:
        return self._upstream.sees_one_broker

    @property
    def topics_settle(self) -> bool:
        return self._upstream.topics_settle

    @property
    def producing(self) -> bool:
        """Records of it, with or without acks, whose fate is not known."""
        return self._producing > 0

    @property
    def full(self) -> bool:
        """As many of its Produce requests are under way as may be."""
        return self._producing >= self._most

    @property
    def passing(self) -> bool:
        return self._upstream.has_records

    @property
    def left(self) -> bool:
        return self._state.over or self._state.done

    @property
    def over(self) -> bool:
        return self._state.over

    def served_as(self, principal: str) -> None:
        """It has proved to be `principal` (security.principals); empty: it is served as nobody."""
        self.principal = principal
        self.user = as_kafka_writes(principal)
        if principal:
            self._who.is_somebody(self.user)

    def is_user(self, user: str, principal: str, introduction: bytes) -> None:
        """It has logged in here as `user`, as Kafka writes it, and is served as `principal`; empty: as Forebay.

        `introduction`: the first request of its login; empty: it needed none.
        """
        self.user = user
        self.principal = principal
        if introduction:
            key, version, _ = peek(introduction, 0)
            self._who.begins(key, version)
            self._who.says(introduction, self.host)
        self._who.is_somebody(user)

    def hold(self, why: HoldReason) -> None:
        self._life.hold(why)

    def release(self, why: HoldReason) -> None:
        self._release(why)
        if self._gone:
            self._forget_connection()

    def gone(self) -> None:
        """The connection has ended: nobody but who has a request of it in hand knows of it any more."""
        self._gone = True
        self._answers.gone(self)
        self._tell_room()
        self._forget_connection()

    def _forget_connection(self) -> None:
        """Unless its memory counts on being told that a request waits no longer."""
        if HoldReason.PENDING_REQUEST not in self._state.holds:
            self._release = _nothing

    def throttled(self, milliseconds: int) -> None:
        now = monotonic()
        until = now + milliseconds / 1000
        if until > self._throttled_until:
            if self._throttled_until <= now:
                self._life.hold(HoldReason.THROTTLED)
                self._loop.call_later(milliseconds / 1000, self._throttle_over)
            self._throttled_until = until

    def _throttle_over(self) -> None:
        left = self._throttled_until - monotonic()
        if left > 0:
            self._loop.call_later(left, self._throttle_over)
        else:
            self._throttled_until = 0.0
            self._release(HoldReason.THROTTLED)

    def translate(self, node_id: int, host: str, port: int, *, cached: bool = False) -> tuple[str, int] | None:
        return self._upstream.translate(node_id, host, port, cached=cached)

    def produced(self, records: int, reasons: Iterable[str]) -> None:
        self._who.produced(records, reasons)

    def idempotent_null_keys(self, records: int) -> None:
        self._who.idempotent_null_keys(records)

    @property
    def at_leisure(self) -> bool:
        return self._upstream.is_open and not self._upstream.has_records

    def hears(self, answer: Callable[[bytes], None] | None) -> None:
        self._heard = answer

    def heard(self) -> Callable[[bytes], None] | None:
        """Who is to be told of the response to the request that goes on as it came now."""
        heard = self._heard
        if heard is not None:
            self._heard = None
        return heard

    def null_keys_went(self, topic: str, partitions: int, partition: int, size: int, *, old: bool) -> None:
        self._who.null_keys_went(topic, partitions, partition, size, monotonic(), old=old)

    def reserve(self, acks: int) -> OnDone:
        self._producing += 1
        if self.node_id is not None:
            self._departed.request_began(self.node_id)
        if acks == 0:
            return self._done_without_response
        slot = self._orderer.open()

        def done(completion: ProduceCompletion, frame: bytes | None) -> None:
            self._one_produced()
            if not self._state.over and frame is not None:
                slot.took = completion.took
                if completion.any_refused:
                    self._who.failed()
                self._orderer.write(slot, frame, last=True)

        return done

    def reserve_answer(self) -> Callable[[bytes | None], None]:
        return self.answer_in(self._orderer.open())

    def answer_in(self, slot: Slot) -> Callable[[bytes | None], None]:
        """Whom to give the frame for `slot`; None ends the connection."""

        def answer(frame: bytes | None) -> None:
            if self._state.over:
                return
            if frame is None:
                self._life.end(Cause.NO_ANSWER)
            else:
                self._orderer.write(slot, frame, last=True)

        return answer

    # A large answer (untaken_answers.Holder)

    def room_for(self, size: int, ready: Callable[[], None]) -> bool:
        """Whether an answer of so many bytes may be given now. False: `ready` is called then, or once it has left."""
        if size < LARGE or self._state.over:
            return True
        if self._answers.admits(self, size):
            self.holds_answer = True
            return True
        self._room = ready
        return False

    @property
    def untaken(self) -> int:
        return self._orderer.held + self._upstream.unsent

    @property
    def client_slow(self) -> bool:
        return self._upstream.unsent > 0

    def answers_left(self) -> None:
        """Answers were written, or taken by the client."""
        self.holds_answer = self.untaken > 0
        self._answers.taken(self)  # by which its next may be given

    def go_on(self) -> None:
        self.holds_answer = True
        self._tell_room()

    def not_taken(self) -> None:
        self._life.end(Cause.NOT_TAKEN, client=self._life.peer)

    def no_room(self) -> None:
        if not self._state.over:
            self._life.end(Cause.NO_ROOM, client=self._life.peer)

    def _tell_room(self) -> None:
        ready, self._room = self._room, None
        if ready is not None:
            ready()

    def _done_without_response(self, completion: ProduceCompletion, frame: bytes | None) -> None:
        self._one_produced()
        if completion.any_refused and not self._state.over:
            self._life.end(Cause.RECORDS_REFUSED, client=self._life.peer)

    def when_alone(self, ready: Callable[[], None]) -> None:
        if self._producing == 1:
            ready()
        else:
            self._when_alone = ready

    def _one_produced(self) -> None:
        self._producing -= 1
        if self._producing == self._most - 1:
            self._loop.call_soon(self._release, HoldReason.IN_FLIGHT)
        if self.node_id is not None:
            self._departed.request_ended(self.node_id)
        if self._producing == 1 and self._when_alone is not None:
            self._loop.call_soon(self._when_alone)
            self._when_alone = None

    def send_own(
        self,
        frame: list[Buffer],
        version: int,
        correlation_id: int,
        acks: int,
        on_answer: Callable[[bytes | None], None],
    ) -> None:
        self._upstream.send_own(frame, version, correlation_id, acks, on_answer)

    def settle(self) -> None:
        self._upstream.settle()


def _nothing(why: HoldReason) -> None:
    """What held a connection that has ended holds it no more."""
