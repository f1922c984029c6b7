"""Settings are read again, put into force everywhere or nowhere, and it is told which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from structlog.testing import capture_logs

from forebay_proxy.config.settings import Settings
from forebay_proxy.console.api import NOTHING_TOLD, Told
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.process.in_force import Read, SettingsInForce
from forebay_proxy.process.reloading import NO_SOURCES, Reloaded, Reloading
from tests.kit.event_loop import in_loop, until

NOW = Settings(bootstrap_servers=())


class Place:
    """Settings that somebody writes, and somebody who serves with them."""

    def __init__(self) -> None:
        self.stats = MetricRegistry()
        self.written: Settings | StartError = NOW
        self.refuses = ""
        self.events: list[str] = []
        self.told: list[Told] = []
        self.preparing = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        in_force = SettingsInForce(Read(NOW, NOTHING_TOLD), self)
        in_force.on_change(self.told.append)
        self.reloading = Reloading(in_force, self.load, self.stats)

    def load(self) -> Read:
        if isinstance(self.written, StartError):
            raise self.written
        return Read(self.written, Told([{"topics": self.written.topics_include}], lambda client_id, topic: {}))

    async def prepare(self, settings: Settings) -> Callable[[], None]:
        self.preparing.set()
        await self.may_go_on.wait()
        if self.refuses:
            raise StartError(self.refuses)
        self.events.append(f"prepared {settings.topics_include}")
        return lambda: self.events.append(f"committed {settings.topics_include}")

    async def replace(self, settings: Settings) -> Callable[[], None]:
        raise AssertionError("no setting of workers has changed")

    def write(self, *topics: str) -> None:
        self.written = msgspec.structs.replace(NOW, topics_include=topics)

    @property
    def state(self) -> tuple[float, float]:
        """Whether the last reload succeeded, and the generation."""
        return self.stats.value("forebay_config_last_reload_successful"), self.stats.value("forebay_config_generation")

    async def reload(self) -> list[str]:
        """What the log says."""
        with capture_logs() as lines:
            self.reloading.now()
            await until(lambda: any("settings" in line["event"] for line in lines))
        return [f"{line['log_level']}: {line['event']}: {line.get('error', line.get('changes', ''))}" for line in lines]


@in_loop
async def test_all_are_prepared_before_any_is_in_force() -> None:
    place = Place()
    place.write("orders")
    lines = await place.reload()
    assert place.events == ["prepared ('orders',)", "committed ('orders',)"]
    assert lines == ["info: settings reloaded: {'topics.include': '* → orders'}"]
    assert place.state == (1, 2)
    assert [told.config for told in place.told] == [[{"topics": ("orders",)}]]


@in_loop
async def test_what_is_the_same_is_not_put_into_force() -> None:
    place = Place()
    assert await place.reload() == ["info: settings read again, nothing has changed: "]
    assert (place.events, place.state) == ([], (1, 1))


@in_loop
async def test_a_file_that_is_wrong_changes_nothing_until_it_is_right() -> None:
    place = Place()
    place.written = StartError("lingr.ms: unknown setting")
    assert await place.reload() == ["error: settings not reloaded: those in force stay: lingr.ms: unknown setting"]
    assert (place.events, place.state, place.told) == ([], (0, 1), [])
    place.write("orders")
    await place.reload()
    assert place.state == (1, 2)


@in_loop
async def test_a_setting_of_the_start_refuses_all_of_it_by_its_name() -> None:
    place = Place()
    place.written = msgspec.structs.replace(NOW, topics_include=("orders",), workers=7)
    (line,) = await place.reload()
    assert "workers cannot change without a restart; nothing was changed" in line
    assert (place.events, place.state) == ([], (0, 1))


@in_loop
async def test_one_that_refuses_keeps_all_from_it() -> None:
    place = Place()
    place.refuses = "worker 1: no answer within 10 s"
    place.write("orders")
    (line,) = await place.reload()
    assert "worker 1" in line
    assert (place.events, place.state) == ([], (0, 1))


@in_loop
async def test_asked_meanwhile_it_reads_again() -> None:
    place = Place()
    place.may_go_on.clear()
    place.write("first")
    place.reloading.now()
    await place.preparing.wait()
    place.write("second")
    place.reloading.now()
    place.reloading.now()
    place.may_go_on.set()
    await until(lambda: place.state[1] == 3)
    steps = [(what, topic) for topic in ("first", "second") for what in ("prepared", "committed")]
    assert place.events == [f"{what} ('{topic}',)" for what, topic in steps]


@in_loop
async def test_closed_it_puts_nothing_into_force() -> None:
    place = Place()
    place.may_go_on.clear()
    place.write("first")
    place.reloading.now()
    await place.preparing.wait()
    place.reloading.close()
    place.may_go_on.set()
    await asyncio.sleep(0)
    assert (place.events, place.state) == ([], (1, 1))


@in_loop
async def test_where_nobody_knows_where_settings_are_nothing_is_read() -> None:
    place = Place()
    stats = MetricRegistry()
    reloading = Reloading(SettingsInForce(Read(NOW, NOTHING_TOLD), place), None, stats)
    assert await reloading.now() == Reloaded(1, error=NO_SOURCES)
    assert place.events == []
    assert stats.value("forebay_config_last_reload_successful") == 1, "nothing that was written is wrong"


@in_loop
async def test_who_waits_for_it_is_told_what_has_changed() -> None:
    place = Place()
    place.write("first")
    assert await place.reloading.now() == Reloaded(2, {"topics.include": "* → first"})
    assert await place.reloading.now() == Reloaded(2)
    place.written = StartError("lingr.ms: unknown setting")
    assert await place.reloading.now() == Reloaded(2, error="lingr.ms: unknown setting")


@in_loop
async def test_all_who_ask_before_it_begins_share_one() -> None:
    place = Place()
    place.may_go_on.clear()
    place.write("first")
    running = place.reloading.now()
    await place.preparing.wait()
    waiting = [place.reloading.now() for _ in range(100)]
    place.write("second")
    place.may_go_on.set()
    assert await running == Reloaded(2, {"topics.include": "* → first"})
    assert {id(each) for each in waiting} == {id(waiting[0])}
    assert await waiting[0] == Reloaded(3, {"topics.include": "first → second"})
