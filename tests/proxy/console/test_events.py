"""What changes is told once, in words."""

from __future__ import annotations

from forebay_proxy.console.events import MOST, Events
from forebay_proxy.metrics.registry import Snapshot

UP = ("forebay_broker_up", ("1",))


def kinds(before: Snapshot, after: Snapshot) -> list[str]:
    events = Events()
    events.compare(before, after, 5)
    return [event.kind for event in events.newest_first()]


def test_brokers_come_and_go() -> None:
    unknown, up, down = Snapshot(), Snapshot(gauges={UP: 1}), Snapshot(gauges={UP: 0})
    assert kinds(unknown, up) == ["broker_new"]
    assert kinds(up, down) == ["broker_down"]
    assert kinds(down, up) == ["broker_up"]
    assert kinds(up, unknown) == ["broker_gone"]
    assert kinds(up, up) == []


def test_readiness_and_reloads() -> None:
    ready, reloaded = ("forebay_ready", ()), ("forebay_security_last_reload_successful", ("client",))
    good, bad = Snapshot(gauges={ready: 1, reloaded: 1}), Snapshot(gauges={ready: 0, reloaded: 0})
    assert kinds(good, bad) == ["reload_failed", "not_ready"]
    assert kinds(bad, good) == ["ready"]


def test_other_settings_are_told_once_they_are_in_force() -> None:
    first, second = (Snapshot(gauges={("forebay_config_generation", ()): number}) for number in (1, 2))
    assert kinds(first, second) == ["settings"]
    assert kinds(second, second) == kinds(Snapshot(), first) == []


def test_what_is_counted_says_how_much_more() -> None:
    key = ("forebay_journal_rows_dropped_total", ())
    events = Events()
    events.compare(Snapshot(counters={key: 5}), Snapshot(counters={key: 1205}), 7)
    (event,) = events.newest_first()
    assert (event.at, event.severity, event.text) == (7, "warning", "1,200 journal rows were dropped")


def test_the_oldest_make_room() -> None:
    events = Events()
    for number in range(MOST + 3):
        events.add(number, "info", "broker_new", f"broker {number} is known")
    found = events.newest_first()
    assert (len(found), found[0].at, found[-1].at) == (MOST, MOST + 2, 3)


def test_what_happens_again_and_again_takes_one_place() -> None:
    restarts = ("forebay_worker_restarts_total", ())
    events = Events()
    for number in range(MOST + 3):
        events.compare(Snapshot(counters={restarts: number}), Snapshot(counters={restarts: number + 1}), number)
    events.compare(Snapshot(gauges={UP: 1}), Snapshot(gauges={UP: 0}), MOST + 3)
    down, restarted = events.newest_first()
    assert (down.kind, down.times) == ("broker_down", 1)
    text = "workers that died or did not start: 1"
    assert (restarted.at, restarted.times, restarted.text) == (MOST + 2, MOST + 3, text)


def test_what_can_wait_is_a_warning_as_its_alert_is() -> None:
    reloaded, restarts = ("forebay_security_last_reload_successful", ("client",)), ("forebay_worker_restarts_total", ())
    events = Events()
    before = Snapshot(counters={restarts: 0}, gauges={UP: 1, reloaded: 1})
    events.compare(before, Snapshot(counters={restarts: 1}, gauges={UP: 0, reloaded: 0}), 5)
    assert {event.kind: event.severity for event in events.newest_first()} == dict.fromkeys(
        ("worker_restarted", "broker_down", "reload_failed"), "warning"
    )
