"""What the client's transport is told to do, in order, over a transport that only takes notes."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from forebay_policies.hold_reason import HoldReason
from forebay_proxy.clients.connection_life import ConnectionLife
from forebay_proxy.clients.connection_state import Cause, Phase
from forebay_proxy.clients.response_orderer import ResponseOrderer
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.metrics.traffic import TrafficMetrics


class NotedTransport:
    """Notes of the calls it got, and of what the life called back."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def pause_reading(self) -> None:
        self.did.append("pause")

    def resume_reading(self) -> None:
        self.did.append("resume")

    def close(self) -> None:
        self.did.append("close")

    def abort(self) -> None:
        self.did.append("abort")

    unsent = 0

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_extra_info(self, name: str) -> None: ...


class Stage:
    def __init__(self, begun: bool = True) -> None:
        self.transport = NotedTransport()
        self.orderer = ResponseOrderer(lambda buffers: None)
        did = self.transport.did
        metrics, log = TrafficMetrics(MetricRegistry()), RateLimited(get_logger())
        self.life = ConnectionLife(self.orderer, metrics, log, lambda: did.append("take"), lambda: did.append("write"))
        if begun:
            self.begin()

    def begin(self) -> None:
        self.life.begin(cast(asyncio.Transport, self.transport), "client:1")

    def did(self) -> list[str]:
        """Since asked last."""
        did = list(self.transport.did)
        self.transport.did.clear()
        return did


def test_the_client_is_read_only_while_nothing_holds_it() -> None:
    stage = Stage()
    stage.life.hold(HoldReason.CONNECTING)
    stage.life.hold(HoldReason.IN_FLIGHT)
    assert stage.did() == ["pause"]
    stage.life.release(HoldReason.CONNECTING)
    assert stage.did() == []
    stage.life.release(HoldReason.IN_FLIGHT)
    assert stage.did() == ["take", "resume"]


def test_one_that_leaves_is_closed_once_all_is_answered() -> None:
    stage = Stage()
    stage.orderer.open()
    stage.life.end(Cause.MALFORMED, client="client:1")
    assert stage.did() == ["pause"]
    stage.life.answered()
    assert stage.did() == ["write", "close"]
    stage.life.answered()
    assert stage.did() == []


def test_one_that_owes_nothing_is_closed_as_soon_as_it_leaves() -> None:
    stage = Stage()
    stage.life.end(Cause.UNKNOWN_API, client="client:1")
    assert stage.did() == ["pause", "write", "close"]


def test_answers_do_not_close_one_that_stays() -> None:
    stage = Stage()
    stage.life.hold(HoldReason.IN_FLIGHT)
    stage.life.answered()
    assert stage.did() == ["pause"]
    assert stage.life.state.phase is Phase.OPEN


def test_what_was_written_goes_out_before_it_closes() -> None:
    stage = Stage()
    stage.orderer.open()
    stage.life.end(Cause.TOLD_TO_CLOSE)
    assert stage.did() == ["pause", "write", "close"]
    stage.life.end(Cause.TOLD_TO_CLOSE)
    assert stage.did() == []


@pytest.mark.parametrize("before", [None, Cause.RECORDS_REFUSED, Cause.TOLD_TO_CLOSE])
def test_one_that_is_aborted_writes_nothing_more(before: Cause | None) -> None:
    stage = Stage()
    stage.orderer.open()
    if before is not None:
        stage.life.end(before)
    stage.did()
    stage.life.end(Cause.TOLD_TO_ABORT)
    assert stage.did() == ["abort"]
    stage.life.release(HoldReason.CLOSING)
    assert stage.did() == []


@pytest.mark.parametrize("cause", [Cause.BROKER_UNREACHABLE, Cause.NO_ANSWER])
def test_where_its_broker_is_away_it_ends_as_that_has_unless_something_would_be_lost(cause: Cause) -> None:
    stage = Stage()
    stage.life.end(cause)
    assert stage.did() == ["pause", "write", "abort"]
    owed = Stage()
    owed.transport.unsent = 1
    owed.life.end(cause)
    assert owed.did() == ["pause", "write", "close"]


def test_a_lost_transport_is_not_touched() -> None:
    stage = Stage()
    stage.life.end(Cause.CLIENT_LEFT)
    stage.life.hold(HoldReason.PENDING_REQUEST)
    stage.life.release(HoldReason.PENDING_REQUEST)
    assert stage.did() == []
    with pytest.raises(RuntimeError, match="after CLOSED"):
        stage.life.end(Cause.TOLD_TO_CLOSE)


def test_one_that_is_told_to_close_before_it_stands_closes_then() -> None:
    stage = Stage(begun=False)
    stage.life.end(Cause.TOLD_TO_CLOSE)
    assert stage.did() == []
    stage.begin()
    assert stage.did() == ["close"]


def test_a_drain_holds_it_at_once_or_behind_the_request_that_passes() -> None:
    stage, passing = Stage(), Stage()
    stage.life.drain()
    assert stage.did() == ["pause"]
    passing.life.state.passing = True
    passing.life.drain()
    assert passing.did() == []
