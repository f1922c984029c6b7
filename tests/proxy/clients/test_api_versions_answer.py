"""What a client is told when it asks what there is, over a gateway that hands out what the test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from forebay_codecs import api_versions, producers_only
from forebay_codecs.error_codes import UNSUPPORTED_VERSION
from forebay_proxy.clients import api_versions_answer
from forebay_proxy.clients.api_versions_answer import answer_api_versions, misreads
from forebay_proxy.clients.gateway import Gateway
from tests.kit.event_loop import in_loop, until


class Told:
    """A gateway whose broker answers `response`, and the frames that the client got."""

    def __init__(self, response: bytes | None) -> None:
        self.response = response
        self.hidden: frozenset[int] = frozenset()
        self.at_most = api_versions.NO_LIMITS
        self.asked: list[tuple[int | None, int]] = []
        self.frames: list[bytes | None] = []

    def api_versions(self, node_id: int | None, version: int, ready: Callable[[bytes | None], None]) -> None:
        self.asked.append((node_id, version))
        ready(self.response)

    def ask(self, version: int, admin: str | None = None) -> bytes | None:
        answer_api_versions(cast(Gateway, self), 2, version, -7, admin, self.frames.append, misread=False)
        (frame,) = self.frames
        return frame


def response() -> bytes:
    """Of v3: correlation id 0, no error, no APIs, no throttling, no tags."""
    return bytes(4) + bytes(2) + b"\1" + bytes(4) + b"\0"


def test_the_brokers_answer_comes_with_the_clients_correlation_id() -> None:
    told = Told(response())
    own = (-7).to_bytes(4, "big", signed=True) + response()[4:]
    assert told.ask(3) == len(own).to_bytes(4, "big") + own
    assert told.asked == [(2, 3)]


def test_where_only_producers_are_served_nothing_is_offered_that_names_other_leaders() -> None:
    describe_topic_partitions = b"\0\x4b" + bytes(4) + b"\0"
    produce = b"\0\0" + b"\0\0" + b"\0\x0c" + b"\0"
    told = Told(bytes(6) + b"\3" + produce + describe_topic_partitions + bytes(4) + b"\0")
    told.hidden, told.at_most = producers_only.NOT_OFFERED, producers_only.AT_MOST
    frame = told.ask(3)
    assert frame is not None
    assert frame[8:] == bytes(2) + b"\2" + produce.replace(b"\x0c", b"\x08") + bytes(4) + b"\0"


def test_a_version_that_is_too_new_is_answered_without_a_broker() -> None:
    told = Told(None)
    frame = told.ask(99)
    assert frame is not None
    assert frame[4:10] == (-7).to_bytes(4, "big", signed=True) + UNSUPPORTED_VERSION.to_bytes(2, "big")
    assert told.asked == []


@pytest.mark.parametrize("admin", [None, "127.0.0.1:9"])
def test_there_is_no_answer_where_no_broker_answers(admin: str | None) -> None:
    assert Told(None).ask(3, admin) is None


@pytest.mark.parametrize("admin", [None, "127.0.0.1:9"])
def test_the_admin_endpoint_is_told_to_whom_it_concerns(admin: str | None) -> None:
    frame = Told(response()).ask(3, admin)
    assert frame is not None
    assert api_versions.admin(frame[4:]) == admin


class Silent:
    """A gateway of brokers of which each answers when the test says so."""

    def __init__(self, last: bytes | None = None) -> None:
        self.last = last
        self.hidden: frozenset[int] = frozenset()
        self.at_most = api_versions.NO_LIMITS
        self.asked: list[tuple[int | None, Callable[[bytes | None], None]]] = []
        self.frames: list[bytes | None] = []

    def api_versions(self, node_id: int | None, version: int, ready: Callable[[bytes | None], None]) -> None:
        self.asked.append((node_id, ready))

    def last_api_versions(self, version: int) -> bytes | None:
        return self.last

    def another_node(self, node_id: int | None) -> int | None:
        return 5 if node_id != 5 else None

    def ask(self, version: int, node_id: int | None = 2) -> None:
        misread = misreads(version, None)
        answer_api_versions(cast(Gateway, self), node_id, version, 1, None, self.frames.append, misread=misread)

    def answers(self, response: bytes | None) -> int | None:
        """The broker that was asked last does; its id."""
        node_id, ready = self.asked[-1]
        ready(response)
        return node_id


def v0(number: int) -> bytes:
    """An answer with that for a code."""
    return bytes(4) + number.to_bytes(2, "big") + bytes(4)


def told(number: int) -> bytes:
    return (10).to_bytes(4, "big") + (1).to_bytes(4, "big") + v0(number)[4:]


@in_loop
async def test_who_would_take_no_answer_for_an_old_broker_has_its_own_brokers_or_the_last_of_any() -> None:
    for response, number in ((v0(1), 1), (None, 7)):
        gateway = Silent(last=v0(7))
        gateway.ask(0)
        assert gateway.frames == []
        assert gateway.answers(response) == 2
        assert gateway.frames == [told(number)]


@in_loop
async def test_where_none_has_ever_answered_any_is_asked_once() -> None:
    for response, frame in ((v0(3), told(3)), (None, None)):
        gateway = Silent()
        gateway.ask(0)
        assert gateway.answers(None) == 2
        assert gateway.frames == []
        assert gateway.answers(response) is None
        assert gateway.frames == [frame]
    gateway = Silent()
    gateway.ask(0, None)  # which was any
    assert gateway.answers(None) is None
    assert (gateway.frames, len(gateway.asked)) == ([None], 1)


@in_loop
async def test_it_does_not_wait_for_a_broker_that_hangs_where_another_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api_versions_answer, "STAND_IN_S", 0.0)
    nothing_known = Silent()
    nothing_known.ask(0)
    gateway = Silent(last=v0(7))
    gateway.ask(0)
    await until(lambda: gateway.frames)
    assert gateway.frames == [told(7)]
    gateway.answers(v0(1))  # too late
    assert gateway.frames == [told(7)]
    await until(lambda: len(nothing_known.asked) == 2)
    assert nothing_known.answers(None) == 5
    assert nothing_known.frames == [], "its own may still answer"
    assert nothing_known.answers(v0(1)) == 5
    assert nothing_known.frames == [told(1)]


@in_loop
async def test_those_of_today_take_it_for_an_outage_and_are_left_without() -> None:
    gateway = Silent(last=v0(7))
    gateway.ask(1)
    gateway.answers(None)
    assert gateway.frames == [None]


@pytest.mark.parametrize(
    ("version", "software", "so"),
    [
        (0, None, True),
        (0, "apache-kafka-java", True),
        (3, "kafka-python", True),
        (4, "kafka-python", True),
        (3, "apache-kafka-java", False),
        (3, "confluent-kafka-python", False),
        (2, None, False),
    ],
)
def test_who_takes_no_answer_for_one(version: int, software: str | None, so: bool) -> None:
    assert misreads(version, software) is so
