"""Overrides: above the sources, for a while, and gone again. Over HTTP and with workers: test_supervisor_reload.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from structlog.testing import capture_logs

from forebay_proxy.config.settings import Settings
from forebay_proxy.console.api import NOTHING_TOLD
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.process.in_force import Read, SettingsInForce
from forebay_proxy.process.overrides import LONGEST_S, MOST_REASON, Overrides
from forebay_proxy.process.reloading import Reloading
from tests.kit.event_loop import in_loop, turns, until

NOW = Settings(bootstrap_servers=())
ADAPTIVE = "partitioner.adaptive.partitioning.enable"
ALSO_ADAPTIVE = "enable.adaptive.partitioning"


class Scene:
    """What is in force, with the clock in the test's hands."""

    def __init__(self) -> None:
        self.now = 100.0
        self.written = NOW
        self.refuses = ""
        self.takes_s = 0.0
        """Until workers are prepared."""
        self.linger: list[int] = []
        """As it was committed, one after the other."""
        self.in_force = SettingsInForce(Read(NOW, NOTHING_TOLD), self)
        self.overrides = Overrides(self.in_force, lambda: self.now, lambda: self.now + 1_000_000)
        self.reloading = Reloading(self.in_force, lambda: Read(self.written, NOTHING_TOLD), MetricRegistry())

    async def prepare(self, settings: Settings) -> Callable[[], None]:
        if self.refuses:
            raise StartError(self.refuses)
        self.now += self.takes_s
        return lambda: self.linger.append(settings.linger_ms)

    async def replace(self, settings: Settings) -> Callable[[], None]:
        raise AssertionError("no setting of workers has changed")


@in_loop
async def test_when_its_time_is_up_what_the_sources_say_counts_again() -> None:
    scene = Scene()
    rows = await scene.overrides.add({"linger.ms": "5"}, "a test", 60.0)
    row = {"name": "linger.ms", "value": "5", "reason": "a test", "expires_at": 1_000_160.0, "adds": False}
    assert rows == [{**row, "instead_of": "-1"}]
    scene.now += 59.9
    assert await scene.overrides.expire()
    assert (scene.linger, len(scene.overrides.rows())) == ([5], 1)
    scene.now += 0.1
    assert await scene.overrides.expire()
    assert (scene.linger, scene.overrides.rows()) == ([5, -1], [])


@in_loop
async def test_the_end_that_is_shown_is_its_end_however_long_it_waited_to_begin() -> None:
    scene = Scene()
    scene.takes_s = 5.0
    async with scene.in_force.turn:  # workers are being replaced, say
        adding = asyncio.create_task(scene.overrides.add({"linger.ms": 5}, "a test", 60.0))
        avoiding = asyncio.create_task(scene.overrides.avoid(3, {1, 3}, "a test", 60.0))
        await turns()
        scene.now += 100
    await adding
    rows = {row["name"]: row["expires_at"] - 1_000_000 for row in await avoiding}
    assert rows == {"linger.ms": 260.0, "brokers.avoid": 265.0}
    scene.takes_s = 0.0
    for name, end in (("linger.ms", 260.0), ("brokers.avoid", 265.0)):
        scene.now = end - 0.1
        await scene.overrides.expire()
        assert name in {row["name"] for row in scene.overrides.rows()}
        scene.now = end
        await scene.overrides.expire()
        assert name not in {row["name"] for row in scene.overrides.rows()}


@in_loop
async def test_what_was_written_meanwhile_counts_then() -> None:
    scene = Scene()
    await scene.overrides.add({"linger.ms": 5}, "a test", 60.0)
    scene.written = msgspec.structs.replace(NOW, linger_ms=7)
    assert (await scene.reloading.now()).changes == {}
    assert scene.linger == [5]
    await scene.overrides.remove("linger.ms")
    assert scene.linger == [5, 7]


@in_loop
async def test_each_ends_in_its_own_time_and_the_last_word_counts() -> None:
    scene = Scene()
    await scene.overrides.add({"linger.ms": 5, "max.connections": 9}, "first", 60.0)
    await scene.overrides.add({"linger.ms": 6}, "second", 120.0)
    scene.now += 60
    await scene.overrides.expire()
    assert [(row["name"], row["value"]) for row in scene.overrides.rows()] == [("linger.ms", "6")]
    scene.now += 60
    await scene.overrides.expire()
    assert scene.linger == [5, 6, 6, -1]


@in_loop
async def test_a_setting_has_one_override_whichever_of_its_names_is_used() -> None:
    scene = Scene()
    for name in (ADAPTIVE, ALSO_ADAPTIVE):
        await scene.overrides.add({ALSO_ADAPTIVE: False}, "a test", 60.0)
        assert [row["name"] for row in scene.overrides.rows()] == [ADAPTIVE]
        assert await scene.overrides.remove(name) == []


@in_loop
async def test_a_list_takes_the_place_of_the_sources_one_or_comes_to_it() -> None:
    scene = Scene()
    scene.written = msgspec.structs.replace(NOW, topics_exclude=("audit-*",))
    await scene.reloading.now()
    with capture_logs() as lines:
        (row,) = await scene.overrides.add({"topics.exclude": "payments"}, "a test", 60.0)
    assert (row["value"], row["instead_of"]) == ("payments", "audit-*")
    assert [line["change"] for line in lines] == ["audit-* → payments"]
    assert scene.in_force.settings.topics_exclude == ("payments",)
    await scene.overrides.remove("topics.exclude")
    for value in ("payments", "clicks,logs", "payments"):
        rows = await scene.overrides.add({"topics.exclude+": value}, "a test", 60.0)
    assert [(row["value"], row["adds"], row["instead_of"]) for row in rows] == [
        ("clicks,logs", True, ""),
        ("payments", True, ""),
    ]
    assert set(scene.in_force.settings.topics_exclude) == {"audit-*", "payments", "clicks", "logs"}
    assert await scene.overrides.remove("topics.exclude") == []
    assert scene.in_force.settings.topics_exclude == ("audit-*",)


@in_loop
async def test_a_broker_that_is_added_to_those_avoided_is_avoided_and_is_one_override() -> None:
    scene = Scene()
    await scene.overrides.avoid(3, {1, 3}, "a test", 60.0)
    assert len(await scene.overrides.add({"brokers.avoid+": "3"}, "again", 60.0)) == 1
    assert await scene.overrides.no_longer_avoid(3) == []


@in_loop
async def test_of_two_that_are_avoided_at_once_one_that_can_be_reached_is_left() -> None:
    scene = Scene()
    async with scene.in_force.turn:
        both = [asyncio.create_task(scene.overrides.avoid(node, {1, 2}, "a test", 60.0)) for node in (1, 2)]
        await turns()
    await both[0]
    with pytest.raises(StartError, match=r"^without broker 2 no other would be left that can be reached$"):
        await both[1]
    assert scene.in_force.settings.brokers_avoid == (1,)


@in_loop
async def test_who_is_avoided_by_others_is_told_by_whom() -> None:
    scene = Scene()
    scene.written = msgspec.structs.replace(NOW, brokers_avoid=(4,))
    await scene.reloading.now()
    with pytest.raises(LookupError, match=r"^broker 3 is not avoided"):
        await scene.overrides.no_longer_avoid(3)
    with pytest.raises(StartError, match=r"^broker 4 is avoided by brokers\.avoid in the settings: change these"):
        await scene.overrides.no_longer_avoid(4)
    for name, value in (("brokers.avoid", "3,4"), ("brokers.avoid+", "3,5")):
        await scene.overrides.add({name: value}, "a test", 60.0)
        for node in value.split(","):
            with pytest.raises(StartError, match=rf"^broker {node} is avoided by another override: .* brokers\.avoid$"):
                await scene.overrides.no_longer_avoid(int(node))


@in_loop
@pytest.mark.parametrize(
    ("settings", "reason", "for_s", "why"),
    [
        ({}, "why", 60.0, "at least one setting"),
        ({"linger.ms": 5}, " ", 60.0, "a reason must be given"),
        ({"linger.ms": 5}, "x" * (MOST_REASON + 1), 60.0, "a reason must be given"),
        ({"linger.ms": 5}, "two\nlines", 60.0, "a reason must be given, in one line"),
        ({"linger.ms": 5}, "why", 0.0, "must last longer than 0, and at most 7 days"),
        ({"linger.ms": 5}, "why", -1.0, "at most 7 days"),
        ({"linger.ms": 5}, "why", LONGEST_S + 1, "at most 7 days"),
        ({"linger.ms": 5, "max.connections": 0}, "why", 60.0, r"max\.connections = 0: must be"),
        ({"linger.ms+": 5}, "why", 60.0, r"^linger\.ms \+= 5: must add to a list$"),
        ({"topics.exclude+": ""}, "why", 60.0, r"^topics\.exclude \+= : must add to a list$"),
        ({"topics.exclude+": 5}, "why", 60.0, r"^topics\.exclude = 5: must be patterns"),
        ({"linger.ms": 5, "workers": 2}, "why", 60.0, "workers cannot be overridden: only live settings can"),
        ({ADAPTIVE: False, ALSO_ADAPTIVE: True}, "why", 60.0, f"^{ALSO_ADAPTIVE}: {ADAPTIVE} must be named once$"),
        ({ALSO_ADAPTIVE: True, ADAPTIVE: True}, "why", 60.0, f"^{ADAPTIVE}: {ADAPTIVE} must be named once$"),
    ],
)
async def test_what_cannot_be_meant_changes_nothing(
    settings: dict[str, object], reason: str, for_s: float, why: str
) -> None:
    scene = Scene()
    with pytest.raises(ValueError, match=why):
        await scene.overrides.add(settings, reason, for_s)
    assert (scene.linger, scene.overrides.rows()) == ([], [])


@in_loop
async def test_what_contradicts_other_settings_or_a_worker_refuses_changes_nothing() -> None:
    scene = Scene()
    scene.in_force.read = Read(msgspec.structs.replace(NOW, request_timeout_ms=100_000), NOTHING_TOLD)
    scene.in_force.settings = scene.in_force.read.settings
    with pytest.raises(StartError, match=r"delivery\.timeout\.ms: must be at least"):
        await scene.overrides.add({"linger.ms": 60_000}, "why", 60.0)
    scene.refuses = "worker 1: no answer within 10 s"
    with pytest.raises(StartError, match="worker 1"):
        await scene.overrides.add({"linger.ms": 5}, "why", 60.0)
    assert (scene.linger, scene.overrides.rows()) == ([], [])
    scene.now += 1000
    assert await scene.overrides.expire(), "there is nothing to end"


@in_loop
async def test_one_that_cannot_be_ended_stays_and_is_tried_again() -> None:
    scene = Scene()
    await scene.overrides.add({"linger.ms": 5}, "a test", 60.0)
    scene.refuses = "worker 1: no answer within 10 s"
    scene.now += 60
    with capture_logs() as lines:
        assert not await scene.overrides.expire()
    assert [line["event"] for line in lines] == ["an override cannot be ended, and stays"]
    assert [row["name"] for row in scene.overrides.rows()] == ["linger.ms"]
    scene.refuses = ""
    assert await scene.overrides.expire()
    assert (scene.linger, scene.overrides.rows()) == ([5, -1], [])


@in_loop
async def test_one_event_each() -> None:
    scene = Scene()
    with capture_logs() as lines:
        await scene.overrides.add({"linger.ms": 5, "max.connections": 9}, "a test", 60.0)
        await scene.overrides.remove("max.connections")
        scene.now += 60
        await scene.overrides.expire()
    assert [(line["event"], line["setting"]) for line in lines] == [
        ("setting overridden", "linger.ms"),
        ("setting overridden", "max.connections"),
        ("override removed", "max.connections"),
        ("override expired", "linger.ms"),
    ]
    assert (lines[0]["value"], lines[0]["reason"], lines[0]["for_s"]) == ("5", "a test", 60.0)
    assert lines[3]["change"] == "5 → -1"


@in_loop
async def test_it_is_logged_while_the_log_level_is_still_the_earlier_one() -> None:
    scene = Scene()
    with capture_logs() as lines:
        scene.in_force.on_change(lambda told: lines.append({"event": "in force", "log_level": "info"}))
        await scene.overrides.add({"log.level": "error"}, "a test", 60.0)
        scene.refuses = "worker 1 cannot"
        with pytest.raises(StartError):
            await scene.overrides.add({"log.level": "debug"}, "a test", 60.0)
    assert [line["event"] for line in lines] == ["setting overridden", "in force"]


@in_loop
async def test_what_was_put_into_force_together_ends_together() -> None:
    """Or not at all: half of it is what nobody asked for."""
    scene = Scene()
    await scene.overrides.add({"linger.ms": 5, "max.connections": 9}, "a test", 60.0)
    scene.now += 60
    scene.refuses = "no answer"
    assert not await scene.overrides.expire()
    assert len(scene.overrides.rows()) == 2
    scene.refuses = ""
    assert await scene.overrides.expire()
    assert (scene.linger, scene.in_force.settings) == ([5, -1], NOW)


@in_loop
async def test_of_several_that_add_one_can_be_removed_or_all() -> None:
    scene = Scene()
    for added in (["a"], ["b"], ["c"]):
        await scene.overrides.add({"topics.exclude+": added}, "a test", 60.0)
    await scene.overrides.remove("topics.exclude+=b")
    assert scene.in_force.settings.topics_exclude == ("a", "c")
    commits = len(scene.linger)
    await scene.overrides.remove("topics.exclude")
    assert scene.in_force.settings == NOW
    assert len(scene.linger) == commits + 1, "in one go"


@in_loop
async def test_what_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(LookupError, match=r"linger\.ms is not overridden"):
        await Scene().overrides.remove("linger.ms")


@in_loop
async def test_they_end_by_themselves() -> None:
    scene = Scene()
    running = asyncio.create_task(scene.overrides.run())
    await turns()
    await scene.overrides.add({"linger.ms": 5}, "a test", 3600.0)
    await turns()
    assert scene.linger == [5]
    scene.now += 3600
    await scene.overrides.add({"max.connections": 9}, "has it look at the clock", 3600.0)
    await until(lambda: scene.linger == [5, 5, -1])
    running.cancel()
