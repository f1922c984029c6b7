"""Who is let in, who makes room and who is closed: over fake connections, with the clock in the test's hands."""

from __future__ import annotations

import asyncio
from math import inf
from random import Random
from typing import Any, cast

import pytest
import structlog

from forebay_policies.inbound_memory import InboundMemory
from forebay_policies.response_memory import ResponseMemory
from forebay_policies.untaken_answers import UntakenAnswers
from forebay_proxy.clients import connections
from forebay_proxy.clients.client_connection import ClientConnection
from forebay_proxy.clients.connections import GIVES_WAY_S, ConnectionRegistry
from forebay_proxy.config.settings import HostPort
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.metrics.traffic import TrafficMetrics
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, until
from tests.kit.ports import LOOPBACK


class FakeConnection:
    def __init__(self, dock: Dock) -> None:
        self.dock = dock
        self.last_active = dock.now
        self.waits = False
        self.left_at: float | None = None
        self.retires_at = inf
        self.settled = True
        self.host = "10.0.0.1"
        self.peer = "10.0.0.1:1"
        self.did: list[str] = []

    hung_up = False
    done = False

    def leaving_for(self, now: float) -> float:
        return now - self.left_at if self.left_at is not None else 0.0

    def close(self) -> None:
        self.did.append("close")
        self.dock.connections.gone(cast(ClientConnection, self))

    def retire(self) -> None:
        self.did.append("retire")

    def abort(self) -> None:
        self.did.append("abort")

    def hang_up(self) -> None:
        self.did.append("hang up")

    def leave_idle_broker(self) -> None:
        self.did.append("leave broker")


class Dock:
    def __init__(self, most: int = 100, **changed: Any) -> None:
        self.now = 1000.0
        self.stats = MetricRegistry()
        self.connections = ConnectionRegistry(
            settings((HostPort(LOOPBACK, 1),), 2, **changed),
            most,
            InboundMemory(-1, 1.0),
            ResponseMemory(),
            UntakenAnswers(),
            TrafficMetrics(self.stats),
            RateLimited(get_logger()),
            Random(7),
            lambda: self.now,
        )

    def make(self, connections: ConnectionRegistry, node_id: int | None) -> ClientConnection:
        return cast(ClientConnection, FakeConnection(self))

    def accepted(self, host: str = "10.0.0.1") -> FakeConnection | None:
        """None: it was closed at once."""
        connection = cast(object, self.connections.accepted(self.make, None))
        if not isinstance(connection, FakeConnection):
            return None
        connection.host = host
        return connection if self.connections.admits(cast(ClientConnection, connection)) else None

    def let_in(self, host: str = "10.0.0.1") -> FakeConnection:
        connection = self.accepted(host)
        assert connection is not None
        return connection

    def refused(self, reason: str) -> float:
        return self.stats.take().counters["forebay_frames_refused_total", (reason,)]


def test_where_all_places_are_taken_the_new_one_is_refused() -> None:
    dock = Dock(most=2)
    first = dock.let_in()
    dock.let_in()
    dock.now += GIVES_WAY_S - 1
    assert dock.accepted() is None
    assert dock.refused("max_connections") == 1
    first.close()
    assert dock.accepted() is not None


def test_the_one_that_has_been_idle_for_longest_makes_room() -> None:
    dock = Dock(most=3)
    busy, idle, idlest = [dock.let_in() for _ in range(3)]
    busy.last_active, busy.waits = dock.now - 3, True
    idle.last_active, idlest.last_active = dock.now - 1, dock.now - 2
    dock.now += GIVES_WAY_S
    fourth = dock.let_in()
    assert idlest.did == ["close"]
    fifth = dock.let_in()
    assert idle.did == ["close"]
    assert dock.accepted() is None
    assert not busy.did + fourth.did + fifth.did
    assert len(dock.connections) == 3


def test_a_flood_of_silent_connections_keeps_nobody_out_for_long() -> None:
    dock = Dock(most=1000)
    for _ in range(1000):
        dock.let_in("10.6.6.6")
    assert dock.accepted() is None
    dock.now += GIVES_WAY_S
    assert all(dock.accepted() is not None for _ in range(500))


def changed(dock: Dock, most: int = 100, **to: Any) -> None:
    dock.connections.change(settings((HostPort(LOOPBACK, 1),), 2, **to), most)


def test_limits_that_change_count_for_who_comes_and_close_nobody() -> None:
    dock = Dock()
    there = [dock.let_in() for _ in range(3)]
    changed(dock, most=2)
    assert dock.accepted() is None
    changed(dock, max_connections_per_ip=1)
    assert dock.accepted() is None
    changed(dock)
    assert dock.accepted() is not None
    assert [connection.did for connection in there] == [[], [], []]


def test_an_idle_time_that_changes_counts_for_who_is_idle_already() -> None:
    dock = Dock(connections_max_idle_ms=-1)
    connection = dock.let_in()
    dock.now += 100
    changed(dock, connections_max_idle_ms=60_000)
    dock.connections.sweep(dock.now)
    assert connection.did == ["close"]


def test_an_age_that_changes_begins_then_and_one_that_does_not_goes_on() -> None:
    dock = Dock(connections_max_age_ms=-1)
    connection = dock.let_in()
    dock.now += 1000
    changed(dock, connections_max_age_ms=100_000)
    begun = connection.retires_at
    assert 90 <= begun - dock.now <= 110
    dock.now += 50
    changed(dock, connections_max_age_ms=100_000, max_connections_per_ip=5)
    assert connection.retires_at == begun
    changed(dock, connections_max_age_ms=-1)
    assert aged(dock, [connection], begun + 1000) == []


def test_connections_from_one_address_are_limited_and_others_are_not_concerned() -> None:
    dock = Dock(max_connections_per_ip=2)
    first = dock.let_in("10.0.0.1")
    dock.let_in("10.0.0.1")
    with structlog.testing.capture_logs() as logs:
        assert dock.accepted("10.0.0.1") is None
    assert [line["most"] for line in logs] == [2]
    assert dock.refused("max_connections_per_ip") == 1
    dock.let_in("10.0.0.2")
    for connection in list(dock.connections):
        if connection.host == "10.0.0.1" and connection is not cast(object, first):
            dock.connections.gone(connection)
    dock.let_in("10.0.0.1")
    assert dock.accepted("10.0.0.1") is None


def test_nobody_is_let_in_once_it_is_closed() -> None:
    dock = Dock()
    dock.connections.close()
    assert dock.accepted() is None


@pytest.mark.parametrize(
    ("idle_ms", "idle_s", "did"),
    [(100_000, 89, []), (100_000, 91, ["leave broker"]), (100_000, 101, ["close"]), (-1, 10_000, [])],
)
def test_the_idle_leave_their_broker_first_and_then_are_closed(idle_ms: int, idle_s: float, did: list[str]) -> None:
    dock = Dock(connections_max_idle_ms=idle_ms)
    connection, waits = dock.let_in(), dock.let_in()
    waits.waits = True
    dock.connections.sweep(dock.now + idle_s)
    assert connection.did == did
    assert waits.did == []


@pytest.mark.parametrize("idle_ms", [600_000, -1])
def test_one_that_does_not_leave_is_cut_off_after_the_request_timeout(idle_ms: int) -> None:
    """Its broker does not answer what was asked before, or the client does not read its last answers."""
    dock = Dock(request_timeout_ms=5_000, connections_max_idle_ms=idle_ms)
    connection = dock.let_in()
    connection.left_at = dock.now
    connection.waits = True
    dock.connections.sweep(dock.now + 4.9)
    assert connection.did == []
    dock.connections.sweep(dock.now + 5.1)
    assert connection.did == ["abort"]


def test_one_whose_client_left_while_it_was_held_is_told() -> None:
    dock = Dock()
    gone, there = dock.let_in(), dock.let_in()
    gone.hung_up = True
    dock.connections.sweep(dock.now)
    assert (gone.did, there.did) == (["hang up"], [])


def test_one_that_sends_no_more_is_the_first_to_make_room_though_it_waits() -> None:
    dock = Dock(most=2)
    there, done = dock.let_in(), dock.let_in()
    done.done = done.waits = True
    done.left_at = dock.now
    dock.now += GIVES_WAY_S + 1
    dock.let_in()
    assert (there.did, done.did) == ([], ["abort"])


def aged(dock: Dock, connections: list[FakeConnection], now: float) -> list[FakeConnection]:
    """Those that are told to retire then."""
    for connection in connections:
        connection.did.clear()
    dock.connections.retire(now)
    return [connection for connection in connections if connection.did]


def test_the_old_retire_a_tenth_sooner_or_later_at_random() -> None:
    dock = Dock(most=1000, connections_max_age_ms=100_000)
    begun = dock.now
    connections = [dock.let_in() for _ in range(1000)]
    assert aged(dock, connections, begun + 90) == []
    assert 200 < len(aged(dock, connections, begun + 95)) < 300
    assert 450 < len(aged(dock, connections, begun + 100)) < 550
    assert len(aged(dock, connections, begun + 110)) == 1000


def test_by_default_nobody_is_too_old() -> None:
    dock = Dock()
    assert aged(dock, [dock.let_in()], dock.now + 10**9) == []


def test_the_old_retire_in_a_pause_and_where_there_is_none_a_tenth_later_as_soon_as_nothing_is_owed() -> None:
    dock = Dock(connections_max_age_ms=100_000)
    owed, busy, pauses = connections = [dock.let_in() for _ in range(3)]
    for connection in connections:
        connection.retires_at = dock.now + 100
    owed.settled = False
    busy.last_active = dock.now + 100
    assert aged(dock, connections, dock.now + 99) == []
    assert aged(dock, connections, dock.now + 100) == [pauses]
    busy.last_active = dock.now + 109.8
    assert aged(dock, connections, dock.now + 109.9) == [pauses]
    assert aged(dock, connections, dock.now + 110) == connections


@in_loop
async def test_a_fault_towards_one_ends_the_watch_over_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "TICK_S", 0.0)
    dock = Dock()

    class Faulty:
        looks = 0

        def tick(self) -> None:
            self.looks += 1
            raise RuntimeError("ABORTED after CLOSED")

    faulty = Faulty()
    monkeypatch.setattr(dock.connections, "_response_memory", faulty)
    with structlog.testing.capture_logs() as logs:
        watch = asyncio.get_running_loop().create_task(dock.connections.run())
        await until(lambda: faulty.looks > 2)
        assert not watch.done()
        watch.cancel()
    assert {line["event"] for line in logs} == {"a look at connections failed"}


def test_one_that_cannot_be_closed_keeps_no_place_of_others() -> None:
    dock = Dock()
    leaving = [dock.let_in() for _ in range(9)]
    for connection in leaving:
        connection.left_at = dock.now
    leaving[4].abort = _at_fault  # type: ignore[method-assign]
    dock.now += 1000
    dock.connections.sweep(dock.now)
    assert [connection.did for connection in leaving] == [["abort"]] * 4 + [[]] + [["abort"]] * 4


def test_one_that_cannot_retire_keeps_no_other_from_it() -> None:
    dock = Dock(connections_max_age_ms=1000)
    old = [dock.let_in() for _ in range(9)]
    old[4].retire = _at_fault  # type: ignore[method-assign]
    dock.now += 1000
    for connection in old:
        connection.retires_at = dock.now
    dock.connections.retire(dock.now)
    assert [connection.did for connection in old] == [["retire"]] * 4 + [[]] + [["retire"]] * 4


def _at_fault() -> None:
    raise RuntimeError("ABORTED after CLOSED")
