"""Logs: one event, one line; no local variables; floods are cut short and owned up to."""

from __future__ import annotations

import errno
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from forebay_proxy.logs import RateLimited, configure, get_logger, set_level
from tests.kit.own_logs import own_logs


@pytest.fixture(autouse=True)
def _own_configuration() -> Iterator[None]:
    with own_logs():
        yield


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Disk(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def fail_with(payload: str) -> None:
    raise ValueError("broken")


def fail_with_text(text: str) -> None:
    raise ValueError(text)


class TestForm:
    def test_json_where_nobody_looks(self) -> None:
        out = io.StringIO()
        configure("info", "auto", out)
        get_logger(worker=3).info("client connected", client="10.0.0.1:4711")
        (line,) = lines(out)
        assert (line["event"], line["level"]) == ("client connected", "info")
        assert (line["worker"], line["client"]) == (3, "10.0.0.1:4711")

    def test_lines_for_people_on_a_terminal(self) -> None:
        out = Terminal()
        configure("info", "auto", out)
        get_logger().warning("client refused", client="x")
        assert "client refused" in out.getvalue()
        assert not out.getvalue().startswith("{")

    def test_nothing_that_came_from_the_wire_speaks_to_the_terminal(self) -> None:
        out = io.StringIO()
        configure("info", "console", out)
        hostile = "x\x1b[2J\x07\x9b2J\u202e\nall is well"
        get_logger().warning("client refused", client=hostile, topics=[hostile])
        logging.getLogger("aiohttp").error("%s", hostile)
        try:
            fail_with_text(hostile)
        except ValueError:
            get_logger().exception("broken")
        text = out.getvalue()
        assert set(filter(lambda each: not each.isprintable(), text)) == {"\n"}
        assert "x\\x1b[2J\\x07\\x9b2J\\u202e" in text
        assert not text.partition("Traceback")[0].count("\nall is well")

    def test_the_form_can_be_forced(self) -> None:
        out = Terminal()
        configure("info", "json", out)
        get_logger().info("hello")
        assert lines(out)[0]["event"] == "hello"

    def test_lower_levels_are_left_out(self) -> None:
        out = io.StringIO()
        configure("warning", "json", out)
        get_logger().info("quiet")
        get_logger().error("loud")
        assert [line["event"] for line in lines(out)] == ["loud"]

    def test_another_level_counts_for_loggers_that_there_are(self) -> None:
        out = io.StringIO()
        configure("info", "json", out)
        log = get_logger(node=1)
        set_level("error")
        log.info("quiet")
        set_level("debug")
        log.debug("loud")
        assert [(line["event"], line["node"]) for line in lines(out)] == [("loud", 1)]

    @pytest.mark.parametrize("form", ["json", "console"])
    def test_a_traceback_shows_no_local_variables(self, form: str) -> None:
        out = io.StringIO()
        configure("info", form, out)
        try:
            fail_with("-".join(["secret", "payload"]))
        except ValueError:
            get_logger().exception("failed")
        assert "broken" in out.getvalue()
        assert "fail_with" in out.getvalue()
        assert "secret-payload" not in out.getvalue()

    def test_the_standard_librarys_warnings_take_the_same_form(self) -> None:
        out = io.StringIO()
        configure("info", "json", out)
        logging.getLogger("asyncio").error("Task exception was never %s", "retrieved")
        (line,) = lines(out)
        assert (line["event"], line["level"]) == ("Task exception was never retrieved", "error")


class TestAStreamThatFails:
    def test_ends_nobody_who_logs_and_owns_up_to_what_is_lost(self) -> None:
        out = Disk()
        configure("info", "json", out)
        log = get_logger()
        log.warning("a")
        logging.getLogger("asyncio").error("b")
        out.full = False
        log.warning("c")
        log.warning("d")
        assert [(line["event"], line.get("lines_lost")) for line in lines(out)] == [("c", 2), ("d", None)]

    def test_nor_does_one_that_is_closed(self) -> None:
        out = io.StringIO()
        configure("info", "json", out)
        out.close()
        get_logger().warning("a")


class TestRateLimited:
    def test_a_flood_of_one_kind_is_cut_short_and_counted(self) -> None:
        out, clock = io.StringIO(), Clock()
        configure("info", "json", out)
        log = RateLimited(get_logger(), max_events=2, window_s=10, clock=clock)
        for client in range(5):
            log.warning("connection lost", client=client)
        log.warning("another kind")
        assert [line["event"] for line in lines(out)] == ["connection lost"] * 2 + ["another kind"]
        clock.now += 10
        log.warning("connection lost", client=5)
        told, again = lines(out)[3:]
        assert (told["of"], told["left_out"]) == ("connection lost", 3)
        assert (again["event"], again["client"]) == ("connection lost", 5)

    def test_within_the_limit_nothing_is_added(self) -> None:
        out, clock = io.StringIO(), Clock()
        configure("info", "json", out)
        log = RateLimited(get_logger(), max_events=2, window_s=10, clock=clock)
        log.info("a")
        clock.now += 10
        log.error("a")
        log.flush()
        assert [line["event"] for line in lines(out)] == ["a", "a"]

    def test_flush_tells_of_windows_that_are_over_only(self) -> None:
        out, clock = io.StringIO(), Clock()
        configure("info", "json", out)
        log = RateLimited(get_logger(), max_events=1, window_s=10, clock=clock)
        for _ in range(4):
            log.info("a")
        log.flush()
        assert len(lines(out)) == 1
        clock.now += 10
        log.flush()
        log.flush()
        assert [line.get("left_out") for line in lines(out)] == [None, 3]


def test_rich_is_left_to_those_who_draw_with_it() -> None:
    """It is installed here. Of a process's start it took a third."""
    program = "import forebay_proxy.app, forebay_proxy.process.worker, sys; print('rich' in sys.modules); import rich"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"False\n"
