"""A client's upstream connection from the client's side: when it is opened, what is written, what its end means."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Self

import pytest
import structlog

from forebay_codecs import api_versions
from forebay_codecs.api_keys import API_VERSIONS, JOIN_GROUP, PRODUCE, SASL_HANDSHAKE
from forebay_codecs.apis import APIS
from forebay_policies.hold_reason import HoldReason
from forebay_proxy.brokers.session import NEVER, Session
from forebay_proxy.clients import opaque_connection
from forebay_proxy.clients.connection_state import Cause, Phase
from forebay_proxy.security.authenticator import AuthenticationFailed, Call
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.wire import LIST_GROUPS
from tests.proxy.clients.upstream_kit import Stage

ERRORS = "forebay_errors_total"


def sends_without_acks(stage: Stage) -> None:
    """Records, which may wait for a connection."""
    stage.upstream.expect_none()
    stage.upstream.pass_on(b"records")
    stage.upstream.flush()


def introduces_itself(stage: Stage) -> bytes:
    """As what a client of the wire is known, and the frame that tells a broker so."""
    stage.who.begins(API_VERSIONS, 4)
    stage.who.says(api_versions.request(7, "till-7", 4, "till", "1.2"), "10.0.0.7")
    told = api_versions.request(0, "till-7", 3, "till", "1.2")
    return len(told).to_bytes(4, "big") + told


def asks(stage: Stage, frame: bytes) -> None:
    stage.upstream.expect(APIS[LIST_GROUPS], 0, 1)
    stage.upstream.pass_on(frame)
    stage.upstream.flush()


async def connected(stage: Stage) -> None:
    stage.gateway.may_connect.set()
    await turns()


class TestRequests:
    @in_loop
    async def test_it_is_opened_by_the_first_request_and_the_client_is_held_until_it_stands(self) -> None:
        stage = Stage()
        await connected(stage)
        assert not stage.upstream.is_open
        stage.gateway.may_connect.clear()
        stage.upstream.expect(APIS[LIST_GROUPS], 0, 1)
        stage.upstream.pass_on(b"one")
        stage.upstream.flush()
        assert stage.life.state.holds == {HoldReason.CONNECTING}
        await connected(stage)
        ((_, broker),) = stage.gateway.connections
        assert broker.wrote == [b"one"]
        assert (stage.life.state.taking, stage.takes) == (True, 1)

    @in_loop
    async def test_what_is_passed_on_leaves_together_and_in_order(self) -> None:
        stage = Stage()
        stage.upstream.expect_none()
        await connected(stage)
        stage.upstream.corked = True
        stage.upstream.pass_on(b"one,")
        stage.upstream.send_own([b"own ", b"two,"], 7, 1, 0, lambda answer: None)
        stage.upstream.pass_on(b"three")
        ((_, broker),) = stage.gateway.connections
        assert broker.wrote == []
        stage.upstream.corked = False
        stage.upstream.flush()
        assert broker.wrote == [b"one,own two,three"]

    @in_loop
    async def test_a_request_of_the_proxys_leaves_at_once_where_no_others_are_being_taken(self) -> None:
        stage = Stage()
        answers: list[bytes | None] = []
        stage.upstream.expect_none()
        await connected(stage)
        stage.upstream.send_own([b"own"], 7, 1, 1, answers.append)
        ((opaque, broker),) = stage.gateway.connections
        assert broker.wrote == [b"own"]
        opaque.connection_lost(None)
        assert answers == [None]

    @in_loop
    async def test_nothing_is_sent_for_a_client_that_is_gone(self) -> None:
        stage = Stage()
        answers: list[bytes | None] = []
        stage.life.end(Cause.CLIENT_LEFT)
        stage.upstream.pass_on(b"late")
        stage.upstream.flush()
        stage.upstream.send_own([b"own"], 7, 1, 1, answers.append)
        await connected(stage)
        assert (stage.gateway.connections, answers) == ([], [None])

    @in_loop
    async def test_a_request_of_the_proxys_that_never_left_is_answered_when_the_client_leaves(self) -> None:
        stage = Stage()
        answers: list[bytes | None] = []
        stage.upstream.send_own([b"own"], 7, 1, 1, answers.append)
        stage.life.end(Cause.CLIENT_LEFT)
        stage.upstream.close()
        assert answers == [None]
        await connected(stage)
        assert stage.gateway.connections == []

    @in_loop
    async def test_brokers_are_named_by_the_host_that_the_client_came_to(self) -> None:
        assert Stage().upstream.translate(4, "inner", 9092) == ("forebay", 9004)

    @in_loop
    async def test_a_slow_broker_holds_its_client(self) -> None:
        stage = Stage()
        stage.upstream.upstream_paused(paused=True)
        assert stage.life.state.holds == {HoldReason.BROKER_SLOW}
        stage.upstream.upstream_paused(paused=False)
        assert stage.life.state.taking


class TestSoftware:
    """What the client says of itself is told to its broker, too: by it brokers count connections, and choose whose
    metrics they want (KIP-511, KIP-714)."""

    @in_loop
    async def test_a_broker_is_told_of_it_before_the_first_request_on_each_connection(self) -> None:
        stage = Stage()
        told = introduces_itself(stage)
        await connected(stage)
        for _ in range(2):
            asks(stage, b"one,")
            await turns()
            asks(stage, b"two")
            opaque, broker = stage.gateway.connections[-1]
            assert b"".join(broker.wrote) == told + b"one,two"
            offered = b"\0\0\0\0" + b"\0\x23\0\0\0\0"
            answers = [b"\0\0\0\1one", b"\0\0\0\1two"]
            opaque.data_received(b"".join(len(frame).to_bytes(4, "big") + frame for frame in (offered, *answers)))
            opaque.connection_lost(None)
        assert stage.out == 2 * b"".join(len(frame).to_bytes(4, "big") + frame for frame in answers)
        assert stage.life.state.phase is Phase.OPEN

    @in_loop
    async def test_so_it_is_before_records_that_are_sent_for_it(self) -> None:
        stage = Stage()
        told = introduces_itself(stage)
        await connected(stage)
        stage.upstream.send_own([b"own"], 7, 1, 1, lambda answer: None)
        await turns()
        ((_, broker),) = stage.gateway.connections
        assert broker.wrote == [told + b"own"]

    @in_loop
    async def test_not_before_records_without_acks_which_an_answer_that_nobody_reads_could_cost(self) -> None:
        stage = Stage()
        told = introduces_itself(stage)
        await connected(stage)
        sends_without_acks(stage)
        await turns()
        ((_, broker),) = stage.gateway.connections
        assert broker.wrote == [b"records"]
        asks(stage, b"one")
        assert broker.wrote == [b"records", told + b"one"]

    @in_loop
    async def test_a_client_that_logs_in_itself_tells_it_itself(self) -> None:
        stage = Stage()
        introduces_itself(stage)
        stage.upstream.own_login = True
        await connected(stage)
        asks(stage, b"one")
        await turns()
        ((_, broker),) = stage.gateway.connections
        assert broker.wrote == [b"one"]

    @in_loop
    async def test_nothing_is_made_up_for_a_client_that_tells_none(self) -> None:
        stage = Stage()
        stage.who.begins(API_VERSIONS, 2)
        stage.who.says(api_versions.request(7, "till-7", 2, "", ""), "10.0.0.7")
        await connected(stage)
        asks(stage, b"one")
        await turns()
        ((_, broker),) = stage.gateway.connections
        assert broker.wrote == [b"one"]


class TestEnd:
    @in_loop
    async def test_a_broker_that_cannot_be_reached_closes_the_client(self) -> None:
        stage = Stage()
        answers: list[bytes | None] = []
        stage.gateway.error = ConnectionRefusedError("refused")
        stage.upstream.send_own([b"own"], 7, 1, 1, answers.append)
        with structlog.testing.capture_logs() as logs:
            await connected(stage)
        assert [(line["event"], line["node"], line["error"]) for line in logs] == [
            ("no connection to the broker for a client", 3, "refused")
        ]
        assert stage.count(ERRORS, "upstream", "connect") == 1
        assert (stage.life.state.phase, stage.transport.closed, answers) == (Phase.CLOSING, True, [None])

    @in_loop
    async def test_a_client_that_leaves_meanwhile_is_not_connected(self) -> None:
        stage = Stage()
        stage.upstream.expect(APIS[LIST_GROUPS], 0, 1)
        await turns()
        stage.life.end(Cause.CLIENT_LEFT)
        stage.upstream.close()
        await connected(stage)
        assert stage.gateway.connections == []

    @in_loop
    async def test_records_without_acks_of_a_client_that_leaves_meanwhile_are_sent_and_then_it_closes(self) -> None:
        stage = Stage()
        sends_without_acks(stage)
        await turns()
        stage.upstream.leave_if_idle()
        stage.life.end(Cause.CLIENT_LEFT)
        stage.upstream.close()
        await connected(stage)
        ((opaque, broker),) = stage.gateway.connections
        assert (broker.wrote, broker.closed) == ([b"records"], True)
        assert stage.gateway.departing == {opaque}
        opaque.connection_lost(None)
        assert stage.gateway.departing == set()

    @in_loop
    async def test_records_without_acks_that_reach_no_broker_are_told_though_the_client_has_left(self) -> None:
        stage = Stage()
        stage.gateway.error = ConnectionRefusedError("refused")
        sends_without_acks(stage)
        await turns()
        stage.life.end(Cause.CLIENT_LEFT)
        stage.upstream.close()
        assert len(stage.gateway.departing) == 1
        with structlog.testing.capture_logs() as logs:
            await connected(stage)
        assert [line["event"] for line in logs] == ["no connection to the broker for a client"]
        assert stage.gateway.departing == set()

    @in_loop
    async def test_records_without_acks_that_come_once_the_client_is_gone_have_a_connection_of_their_own(self) -> None:
        stage = Stage()
        sends_without_acks(stage)
        stage.life.end(Cause.TOLD_TO_ABORT)
        stage.upstream.send_own([b", more"], 7, 1, 0, lambda answer: None)
        stage.life.end(Cause.CLIENT_LEFT)
        stage.upstream.close()
        stage.upstream.send_own([b"late"], 7, 2, 0, lambda answer: None)
        stage.upstream.close()
        await connected(stage)
        found = {tuple(broker.wrote): broker.closed for _, broker in stage.gateway.connections}
        assert found == {(b"records, more",): True, (b"late",): True}
        assert stage.gateway.departing == {opaque for opaque, _ in stage.gateway.connections}

    @in_loop
    async def test_of_one_that_logs_in_itself_such_records_are_lost_with_a_line(self) -> None:
        stage = Stage()
        stage.upstream.own_login = True
        stage.life.end(Cause.CLIENT_LEFT)
        with structlog.testing.capture_logs() as logs:
            stage.upstream.send_own([b"late"], 7, 2, 0, lambda answer: None)
            await connected(stage)
        assert [line["event"] for line in logs] == ["no connection to the broker for a client"]
        assert (stage.count(ERRORS, "upstream", "connect"), stage.gateway.connections) == (1, [])

    @in_loop
    async def test_one_that_is_closed_with_records_without_acks_departs_until_it_is_gone(self) -> None:
        stage = Stage()
        sends_without_acks(stage)
        await connected(stage)
        ((opaque, broker),) = stage.gateway.connections
        broker.unsent = 7
        assert opaque.holds_records
        stage.upstream.leave_if_idle()
        assert not broker.closed
        broker.unsent = 0
        assert not opaque.holds_records
        stage.life.end(Cause.CLIENT_LEFT)
        stage.upstream.close()
        assert (broker.closed, stage.gateway.departing) == (True, {opaque})
        opaque.connection_lost(None)
        assert stage.gateway.departing == set()

    @in_loop
    async def test_what_a_broker_does_not_read_in_time_of_one_that_has_left_is_given_up_with_a_line(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage = Stage()
        sends_without_acks(stage)
        await connected(stage)
        ((opaque, broker),) = stage.gateway.connections
        broker.unsent = 7
        now, looked = 0.0, 0

        def clock() -> float:
            nonlocal looked
            looked += 1
            return now

        monkeypatch.setattr(opaque_connection, "monotonic", clock)
        stage.life.end(Cause.CLIENT_LEFT)
        stage.upstream.close()
        now = stage.gateway.patience - 0.1
        await until(lambda: looked == 2)
        assert not broker.aborted
        now = stage.gateway.patience
        with structlog.testing.capture_logs() as logs:
            await until(lambda: broker.aborted)
        assert [(line["event"], line["node"]) for line in logs] == [
            ("a broker does not read what a client sent before it left: given up", 3)
        ]
        opaque.connection_lost(None)
        assert stage.gateway.departing == set()

    @in_loop
    async def test_a_broker_that_leaves_it_idle_is_reached_again(self) -> None:
        stage = Stage()
        stage.upstream.send_own([b"own"], 7, 1, 1, lambda answer: None)
        await connected(stage)
        stage.gateway.connections[0][0].connection_lost(None)
        assert not stage.upstream.is_open
        assert stage.life.state.phase is Phase.OPEN
        stage.upstream.expect(APIS[LIST_GROUPS], 0, 2)
        await turns()
        assert len(stage.gateway.connections) == 2

    @in_loop
    async def test_one_that_owes_an_answer_takes_the_client_with_it_and_who_is_too_old_is_named(self) -> None:
        stage = Stage()
        stage.gateway.taken = False
        stage.who.says(b"\0\x10\0\0\0\0\0\1\0\1c", "10.0.0.1")
        stage.upstream.expect(APIS[LIST_GROUPS], 0, 1)
        assert stage.upstream.owed
        await connected(stage)
        with structlog.testing.capture_logs() as logs:
            stage.gateway.connections[0][0].connection_lost(None)
        assert [line["log_level"] for line in logs] == ["info", "warning"]
        assert "KIP-896" in logs[1]["event"]
        assert stage.count(ERRORS, "upstream", "connection_lost") == 1
        assert stage.life.state.phase is Phase.CLOSING

    @in_loop
    async def test_a_client_that_has_logged_in_does_not_outlive_it(self) -> None:
        stage = Stage()
        stage.upstream.expect(APIS[SASL_HANDSHAKE], 1, 1)
        await connected(stage)
        assert stage.upstream.own_login
        ((opaque, _),) = stage.gateway.connections
        opaque.data_received((10).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(6))
        assert not len(stage.orderer)
        stage.upstream.leave_if_idle()
        assert stage.upstream.is_open
        stage.upstream.upstream_left()
        assert stage.life.state.phase is Phase.CLOSING

    @in_loop
    async def test_one_that_breaks_the_protocol_ends_the_client_at_once(self) -> None:
        stage = Stage()
        stage.upstream.expect(APIS[PRODUCE], 7, 1)
        await connected(stage)
        stage.gateway.connections[0][0].data_received((8).to_bytes(4, "big") + bytes(8))
        assert stage.life.state.phase is Phase.ABORTED
        assert stage.count(ERRORS, "upstream", "protocol") == 1

    @in_loop
    async def test_a_client_that_does_not_take_its_answers_where_others_need_the_memory_is_closed(self) -> None:
        stage = Stage()
        stage.upstream.not_taken()
        assert stage.life.state.phase is Phase.ABORTED
        assert stage.count("forebay_frames_refused_total", "not_taken") == 1
        stage.life.end(Cause.CLIENT_LEFT)
        stage.upstream.not_taken()
        assert stage.count("forebay_frames_refused_total", "not_taken") == 1

    @in_loop
    async def test_only_an_idle_one_is_left(self) -> None:
        stage = Stage()
        stage.upstream.leave_if_idle()
        stage.upstream.expect(APIS[LIST_GROUPS], 0, 1)
        await connected(stage)
        ((opaque, broker),) = stage.gateway.connections
        stage.upstream.leave_if_idle()
        assert not broker.closed
        opaque.data_received((8).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(4))
        stage.upstream.leave_if_idle()
        assert broker.closed
        assert stage.out == (8).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(4)


class Renewing:
    """A client's connection that Forebay has logged in; the login is one request, answered when the test says so."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.session = Session(self._log_in, Random(1))
        self.stage.gateway.session = self.session
        self.refused = False

    async def _log_in(self, call: Call) -> float:
        await call(lambda number: b"login")
        if self.refused:
            raise AuthenticationFailed("no")
        return 3_600.0

    async def connect(self) -> None:
        self.stage.upstream.expect_none()
        self.stage.upstream.pass_on(b"one,")
        self.stage.upstream.flush()
        await connected(self.stage)
        self.session.due = 0.0

    @property
    def wrote(self) -> bytes:
        ((_, broker),) = self.stage.gateway.connections
        return b"".join(broker.wrote)

    def answer(self, correlation_id: int, body: bytes = b"") -> None:
        ((opaque, _),) = self.stage.gateway.connections
        response = correlation_id.to_bytes(4, "big") + body
        opaque.data_received(len(response).to_bytes(4, "big") + response)

    async def answers(self, correlation_id: int, body: bytes = b"") -> None:
        self.answer(correlation_id, body)
        await turns()

    def asks(self, correlation_id: int, body: bytes) -> None:
        self.stage.upstream.expect(APIS[LIST_GROUPS], 0, correlation_id)
        self.stage.upstream.pass_on(body)

    def comes_due_behind(self, *keys: int) -> None:
        """The session, behind such requests, with ids from 0 on; another follows."""
        upstream = self.stage.upstream
        self.session.due = NEVER
        for number, key in enumerate(keys):
            upstream.expect(APIS[key], 0, number)
            upstream.pass_on(b"two,")
        self.session.due = 0.0
        self.asks(len(keys), b"three")
        upstream.flush()

    def logs_in(self, correlation_id: int) -> None:
        self.stage.upstream.expect(APIS[SASL_HANDSHAKE], 1, correlation_id)
        self.stage.upstream.pass_on(b"handshake")

    async def loses_its_broker(self) -> None:
        """The broker leaves, which is said once."""
        ((opaque, _),) = self.stage.gateway.connections
        with structlog.testing.capture_logs() as logs:
            opaque.connection_lost(None)
            await turns()
        assert [line["reason"] for line in logs if "reason" in line] == ["closed by the broker"]


class Watched:
    """The client of `renewing`: `looks` at whether it has left, one whenever nothing was answered for milliseconds."""

    def __init__(self, renewing: Renewing) -> None:
        self.looks = 0
        self.at_each_look: Callable[[], None] = lambda: None
        renewing.stage.upstream.patience = 0.005
        self._client, ours = socket.socketpair()
        self._ours = renewing.stage.transport.socket = ours
        renewing.stage.transport.looked = self._looked

    def _looked(self) -> None:
        asyncio.get_running_loop().call_soon(self.at_each_look)
        self.looks += 1

    def leaves(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._ours.close()


LOGIN = b"\0\0\0\x05login"


class TestSession:
    @in_loop
    async def test_it_is_renewed_between_two_requests_and_what_follows_waits(self) -> None:
        renewing = Renewing()
        await renewing.connect()
        upstream, life = renewing.stage.upstream, renewing.stage.life
        upstream.corked = True
        renewing.session.due = NEVER
        renewing.asks(7, b"two,")
        renewing.session.due = 0.0
        renewing.asks(8, b"three,")
        upstream.expect_none()
        upstream.pass_on(b"four")
        upstream.flush()
        await turns()
        assert renewing.wrote == b"one,two,"  # a login's time runs, and a broker comes to it only behind the answer
        assert life.state.holds == {HoldReason.CONNECTING}
        assert upstream.owed
        ((opaque, _),) = renewing.stage.gateway.connections
        opaque.data_received(b"\0\0\0\x09\0\0\0\x07fir")
        await turns()
        assert renewing.wrote == b"one,two,"
        opaque.data_received(b"st")
        await turns()
        assert renewing.wrote == b"one,two," + LOGIN
        await renewing.answers(0)
        assert renewing.wrote == b"one,two," + LOGIN + b"three,four"
        assert life.state.taking
        await renewing.answers(8, b"second")
        assert renewing.stage.out == b"\0\0\0\x09\0\0\0\x07first\0\0\0\x0a\0\0\0\x08second"

    @in_loop
    async def test_a_clients_own_login_renews_it_and_no_other_is_sent_just_before(self) -> None:
        renewing = Renewing()
        await renewing.connect()
        renewing.logs_in(7)
        renewing.asks(8, b", two")
        renewing.stage.upstream.flush()
        await turns()
        assert renewing.wrote == b"one,handshake, two"
        assert renewing.stage.life.state.taking

    @in_loop
    async def test_a_clients_own_login_waits_until_the_broker_takes_one_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(opaque_connection, "LEAST_S", 0.3)
        renewing = Renewing()
        await renewing.connect()
        renewing.asks(7, b"two,")
        renewing.stage.upstream.flush()
        await turns()
        began = monotonic()
        await renewing.answers(0)
        renewing.logs_in(8)
        renewing.stage.upstream.flush()
        assert renewing.stage.life.state.holds == {HoldReason.CONNECTING}
        await until(lambda: renewing.wrote == b"one," + LOGIN + b"two,handshake")
        assert monotonic() - began >= 0.29  # the loop counts in whole milliseconds
        assert renewing.stage.life.state.taking

    @in_loop
    async def test_records_without_acks_that_wait_for_it_when_the_client_leaves_are_sent_on_another(self) -> None:
        renewing = Renewing()
        await renewing.connect()
        stage = renewing.stage
        sends_without_acks(stage)
        await turns()
        stage.life.end(Cause.CLIENT_LEFT)
        stage.upstream.close()
        await turns()
        (first, before), (second, after) = stage.gateway.connections
        assert (before.wrote, before.closed) == ([b"one,", LOGIN], True)
        assert (after.wrote, after.closed) == ([b"records"], True)
        assert stage.gateway.departing == {first, second}
        first.connection_lost(None)
        await turns()
        second.connection_lost(None)
        assert not stage.gateway.departing

    @in_loop
    async def test_a_broker_that_leaves_before_it_has_answered_ends_the_client_once(self) -> None:
        renewing = Renewing()
        await renewing.connect()
        renewing.session.due = NEVER
        renewing.asks(7, b"two,")
        renewing.session.due = 0.0
        renewing.asks(8, b"three")
        await turns()
        await renewing.loses_its_broker()
        assert renewing.wrote == b"one,two,"
        assert not renewing.stage.life.state.holds & {HoldReason.CONNECTING}

    @in_loop
    async def test_a_broker_that_answers_nothing_before_it_ends_the_client(self) -> None:
        renewing = Renewing()
        renewing.stage.upstream.patience = 0.05
        await renewing.connect()
        with structlog.testing.capture_logs() as logs:
            renewing.comes_due_behind(LIST_GROUPS)
            await until(lambda: renewing.stage.life.state.phase is Phase.CLOSING)
        reasons = [line["reason"] for line in logs if "reason" in line]
        assert reasons == ["the login was not renewed: nothing was answered for 0.05 s"]
        ((_, broker),) = renewing.stage.gateway.connections
        assert (renewing.wrote, broker.closed) == (b"one,two,", True)

    @in_loop
    async def test_what_may_take_long_is_waited_for_until_the_client_leaves(self) -> None:
        renewing = Renewing()
        with Watched(renewing) as client:
            await renewing.connect()
            renewing.comes_due_behind(JOIN_GROUP)
            await until(lambda: client.looks > 3)
            assert renewing.stage.life.state.phase is Phase.OPEN
            client.leaves()
            await until(lambda: renewing.stage.life.state.phase is Phase.CLOSING)

    @in_loop
    async def test_each_answer_before_it_gives_the_broker_its_time_anew(self) -> None:
        renewing = Renewing()
        with Watched(renewing) as client:
            client.leaves()
            await renewing.connect()
            client.at_each_look = lambda: renewing.answer(client.looks - 1)
            renewing.comes_due_behind(JOIN_GROUP, JOIN_GROUP, JOIN_GROUP, JOIN_GROUP)
            await until(lambda: renewing.wrote == b"one,two,two,two,two," + LOGIN)
            await renewing.answers(0)
            assert renewing.stage.life.state.taking

    @in_loop
    async def test_what_is_not_read_is_waited_for(self) -> None:
        """The client takes its answers slowly: the broker may have given its own."""
        renewing = Renewing()
        stage = renewing.stage
        with Watched(renewing) as client:
            client.leaves()
            await renewing.connect()
            renewing.comes_due_behind(JOIN_GROUP)
            stage.upstream.client_slow(slow=True)
            await until(lambda: client.looks > 3)
            assert stage.life.state.phase is Phase.OPEN
            stage.upstream.client_slow(slow=False)
            await until(lambda: stage.life.state.phase is Phase.CLOSING)

    @in_loop
    async def test_a_login_that_is_not_renewed_ends_the_client_and_nothing_of_it_goes_out(self) -> None:
        renewing = Renewing()
        await renewing.connect()
        renewing.refused = True
        renewing.asks(7, b"two,")
        renewing.stage.upstream.flush()
        await turns()
        with structlog.testing.capture_logs() as logs:
            await renewing.answers(0)
        assert [line["reason"] for line in logs if "reason" in line] == ["the login was not renewed: no"]
        assert renewing.wrote == b"one," + LOGIN
        assert renewing.stage.life.state.phase is Phase.CLOSING

    @in_loop
    async def test_a_broker_that_leaves_meanwhile_ends_the_client_once(self) -> None:
        renewing = Renewing()
        await renewing.connect()
        renewing.asks(7, b"two,")
        renewing.stage.upstream.flush()
        await turns()
        await renewing.loses_its_broker()
        assert renewing.wrote == b"one," + LOGIN

    @in_loop
    async def test_a_broker_that_leaves_meanwhile_with_a_request_of_ours_holds_the_client_no_longer(self) -> None:
        renewing = Renewing()
        await renewing.connect()
        stage = renewing.stage
        renewing.session.due = NEVER
        renewing.asks(7, b"two,")
        stage.upstream.flush()
        await renewing.answers(7)
        renewing.session.due = 0.0
        answers: list[bytes | None] = []
        stage.upstream.send_own([b"records"], 9, 8, 1, answers.append)
        await turns()
        assert stage.life.state.holds == {HoldReason.CONNECTING}
        ((opaque, _),) = stage.gateway.connections
        opaque.connection_lost(None)
        await turns()
        assert answers == [None]
        assert stage.life.state.taking
