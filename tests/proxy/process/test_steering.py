"""What people do to a running Forebay; over HTTP and with real processes in test_supervisor_reload.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from forebay_proxy.config.settings import Settings
from forebay_proxy.console.api import NOTHING_TOLD
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.registry import Key, MetricRegistry, Snapshot
from forebay_proxy.process.in_force import Read, SettingsInForce
from forebay_proxy.process.overrides import DEFAULT_S, Overrides
from forebay_proxy.process.reloading import Reloading
from forebay_proxy.process.steering import Steering
from forebay_proxy.security.renewals import Outcome
from tests.kit.event_loop import in_loop, turns, until

NOW = Settings(bootstrap_servers=())


class Workers:
    def __init__(self) -> None:
        self.written = NOW
        self.committed: list[Settings] = []
        self.renewed = 0
        self.outcomes = [Outcome("brokers")]
        self.found_first: list[Outcome] = []
        """Instead, the first time."""
        self.may_renew = asyncio.Event()
        self.may_renew.set()
        self.up = {1: True, 2: True, 3: False}
        self.queued = self.in_flight = 0.0
        self.silent: list[int] = []
        in_force = SettingsInForce(Read(NOW, NOTHING_TOLD), self)
        reloading = Reloading(in_force, lambda: Read(self.written, NOTHING_TOLD), MetricRegistry())
        self.steering = Steering(reloading, Overrides(in_force, lambda: 0.0, lambda: 0.0), self)
        self.steering.on_reload(self.renew)

    async def renew(self) -> list[Outcome]:
        self.renewed += 1
        await self.may_renew.wait()
        return self.found_first if self.found_first and self.renewed == 1 else self.outcomes

    async def looked_at(self) -> tuple[Snapshot, list[int]]:
        gauges: dict[Key, float] = {("forebay_broker_up", (str(node),)): up for node, up in self.up.items()}
        gauges["forebay_broker_queued_bytes", ("1",)] = self.queued
        gauges["forebay_broker_in_flight_requests", ("1",)] = self.in_flight
        return Snapshot(gauges=gauges), self.silent

    async def dumps(self) -> list[dict[str, Any]]:
        return [{"worker": 0}, {"worker": 1, "error": "no answer within 5 s"}]

    async def prepare(self, settings: Settings) -> Callable[[], None]:
        return lambda: self.committed.append(settings)

    async def replace(self, settings: Settings) -> Callable[[], None]:
        raise AssertionError("no setting of workers has changed")


@in_loop
async def test_a_reload_is_what_sighup_does_and_is_waited_for() -> None:
    workers = Workers()
    workers.written = msgspec.structs.replace(NOW, topics_include=("a",))
    told = {"generation": 2, "changes": {"topics.include": "* → a"}, "renewed": ["brokers"], "not_renewed": {}}
    assert await workers.steering.reload() == told
    workers.written = msgspec.structs.replace(NOW, topics_include=("b",))
    workers.steering.hang_up()
    await until(lambda: len(workers.committed) == 2)
    assert workers.renewed == 2


@in_loop
async def test_why_it_was_refused_is_raised() -> None:
    workers = Workers()
    workers.written = msgspec.structs.replace(NOW, workers=2)
    with pytest.raises(StartError, match="workers cannot change without a restart"):
        await workers.steering.reload()


@in_loop
async def test_where_settings_have_changed_it_counts_what_could_not_be_renewed_with_them() -> None:
    """A certificate is somewhere else, say: workers that were about to leave did not find it."""
    workers = Workers()
    workers.found_first = [Outcome("brokers", "no such file")]
    workers.written = msgspec.structs.replace(NOW, topics_include=("a",))
    assert (await workers.steering.reload())["not_renewed"] == {}


@in_loop
async def test_what_could_not_be_renewed_is_told_or_that_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers()
    workers.outcomes = [Outcome("brokers", "it is empty"), Outcome("listener ssl")]
    told = {"generation": 1, "changes": {}, "renewed": ["listener ssl"], "not_renewed": {"brokers": "it is empty"}}
    assert await workers.steering.reload() == told
    workers.written = msgspec.structs.replace(NOW, workers=2)
    told_all = "nothing was changed; renewed all the same: listener ssl; brokers not renewed: it is empty"
    with pytest.raises(StartError, match=rf"without a restart; {told_all}$"):
        await workers.steering.reload()
    monkeypatch.setattr("forebay_proxy.process.steering.RENEW_WAIT_S", 0.001)
    workers.written = NOW
    workers.may_renew.clear()
    told = await workers.steering.reload()
    assert told["not_renewed"] == {"certificates and secrets": "not done within 0.001 s"}
    workers.may_renew.set()
    await turns()


@in_loop
async def test_who_does_not_wait_any_more_stops_nothing() -> None:
    workers = Workers()
    workers.written = msgspec.structs.replace(NOW, topics_include=("a",))
    asking = asyncio.create_task(workers.steering.reload())
    await asyncio.sleep(0)
    asking.cancel()
    await until(lambda: len(workers.committed) == 1)


@in_loop
async def test_an_override_is_for_an_hour_unless_it_is_said() -> None:
    steering = Workers().steering
    (row,) = await steering.override({"linger.ms": 5}, "a test", None)
    assert row["expires_at"] == DEFAULT_S == 3600
    (row,) = await steering.override({"linger.ms": 5}, "a test", 60.0)
    assert row["expires_at"] == 60
    assert steering.overrides() == [row]
    assert await steering.restore("linger.ms") == []


@in_loop
async def test_a_broker_is_avoided_for_a_while_beside_those_that_are_anyway() -> None:
    workers = Workers()
    workers.up[4] = True
    workers.written = msgspec.structs.replace(NOW, brokers_avoid=(4,))
    await workers.steering.reload()
    (row,) = await workers.steering.avoid(1, "a test", 60.0)
    assert (row["name"], row["value"], row["expires_at"], row["adds"]) == ("brokers.avoid", "1", 60.0, True)
    assert await workers.steering.no_longer_avoid(1) == []
    assert [settings.brokers_avoid for settings in workers.committed] == [(4,), (4, 1), (4,)]
    with pytest.raises(StartError, match=r"broker 4 is avoided by brokers\.avoid in the settings"):
        await workers.steering.no_longer_avoid(4)


@in_loop
async def test_one_that_can_be_reached_is_always_left() -> None:
    workers = Workers()
    with pytest.raises(LookupError, match="broker 7 is not known"):
        await workers.steering.avoid(7, "a test", None)
    await workers.steering.avoid(1, "a test", None)
    with pytest.raises(StartError, match="without broker 2 no other would be left"):
        await workers.steering.avoid(2, "a test", None)
    await workers.steering.avoid(1, "again", None)
    workers.up[3] = True
    assert len(await workers.steering.avoid(2, "a test", None)) == 2
    assert workers.committed[-1].brokers_avoid == (1, 2)


@in_loop
async def test_what_waits_for_a_broker_is_told() -> None:
    workers = Workers()
    nothing = {"queued_bytes": 0, "in_flight_requests": 0, "silent_workers": [], "drained": True}
    assert await workers.steering.drained(1) == nothing
    workers.queued, workers.in_flight = 5.0, 1.0
    told = {**nothing, "queued_bytes": 5, "in_flight_requests": 1, "drained": False}
    assert await workers.steering.drained(1) == told
    assert await workers.steering.drained(2) == nothing
    workers.silent = [1]
    assert await workers.steering.drained(2) == {**nothing, "silent_workers": [1], "drained": False}
    with pytest.raises(LookupError, match="broker 7 is not known"):
        await workers.steering.drained(7)


@in_loop
async def test_a_dump_has_all_workers_and_what_is_overridden() -> None:
    steering = Workers().steering
    await steering.override({"linger.ms": 5}, "a test", None)
    told = await steering.dump()
    assert [row["name"] for row in told["overrides"]] == ["linger.ms"]
    assert [worker["worker"] for worker in told["workers"]] == [0, 1]
