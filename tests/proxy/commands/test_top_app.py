"""`forebay top` as an application: its keys by Textual's pilot, and the whole command in a terminal (pyte's)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack

import pyte
import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static, TabbedContent

from forebay_proxy.commands.admin_endpoint import AdminError, by_url
from forebay_proxy.commands.command_config import read
from forebay_proxy.commands.top_app import TopApp
from tests.kit.synthetic_console import SyntheticConsole
from tests.kit.waiting import wait_until
from tests.proxy.commands.test_top_view import HOSTILE

SECONDS = 120
COLUMNS, LINES = 120, 40


@pytest.fixture(scope="module")
def console() -> Iterator[SyntheticConsole]:
    with SyntheticConsole(topics=12, partitions=6, clients=4, past=15, names=(HOSTILE,)) as console:
        yield console


def watching(url: str, look: Callable[[TopApp, Pilot[None]], Awaitable[None]]) -> None:
    async def watched() -> None:
        app = TopApp(by_url(url, read(None)))
        async with asyncio.timeout(SECONDS), app.run_test(size=(COLUMNS, LINES)) as pilot:
            # A key that comes before may be undone: as it starts, the first table is shown and focused, by messages.
            await until(pilot, lambda: focused(app, "brokers") and column(app, "brokers", 0) == ["1", "2", "3"])
            await look(app, pilot)

    asyncio.run(watched())


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    while not condition():
        await pilot.pause(0.05)


def focused(app: TopApp, kind: str) -> bool:
    """Its table is shown, and has the keys."""
    return app.query_one(TabbedContent).active == kind and app.focused is app.query_one(f"#{kind}-table", DataTable)


def column(app: TopApp, kind: str, index: int) -> list[str]:
    table = app.query_one(f"#{kind}-table", DataTable)
    return [str(table.get_row_at(row)[index]) for row in range(table.row_count)]


def test_each_table_is_a_key_away_and_filled_when_it_is_seen(console: SyntheticConsole) -> None:
    async def look(app: TopApp, pilot: Pilot[None]) -> None:
        assert str(app.query_one("#sentence", Static).content).startswith("3 of 3 brokers")
        assert column(app, "topics", 0) == []
        await pilot.press("t")
        await until(pilot, lambda: focused(app, "topics") and len(column(app, "topics", 0)) == 12)
        await pilot.press("c")
        await until(pilot, lambda: "till-0003" in column(app, "clients", 0))
        assert r"\x1b[2J\x07till" in column(app, "clients", 0)
        await pilot.press("b")
        await until(pilot, lambda: app.query_one(TabbedContent).active == "brokers")

    watching(console.url, look)


def test_sorted_by_column_after_column_and_the_other_way_round(console: SyntheticConsole) -> None:
    async def look(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("t")
        await until(pilot, lambda: focused(app, "topics") and len(column(app, "topics", 0)) == 12)
        for _ in range(6):  # from records/s to the topic's name
            await pilot.press("s")
        await until(pilot, lambda: column(app, "topics", 0) == sorted(column(app, "topics", 0)))
        await pilot.press("r")
        await until(pilot, lambda: column(app, "topics", 0) == sorted(column(app, "topics", 0), reverse=True))

    watching(console.url, look)


def test_only_what_is_looked_for_is_shown_until_all_is_again(console: SyntheticConsole) -> None:
    async def look(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("c")
        await until(pilot, lambda: len(column(app, "clients", 0)) == 5)
        await pilot.press("slash", *"0003")
        await until(pilot, lambda: column(app, "clients", 0) == ["till-0003"])
        await pilot.press("enter", "escape")
        await until(pilot, lambda: len(column(app, "clients", 0)) == 5)
        assert app.query_one("#words", Input).value == ""

    watching(console.url, look)


def test_where_nobody_answers_the_numbers_stay_and_it_is_said() -> None:
    with ExitStack() as stack:
        console = stack.enter_context(SyntheticConsole(topics=1, partitions=1, clients=1, past=5))

        async def look(app: TopApp, pilot: Pilot[None]) -> None:
            await asyncio.to_thread(stack.close)
            await until(pilot, lambda: "Connection refused" in str(app.query_one("#sentence", Static).content))
            assert column(app, "brokers", 0) == ["1", "2", "3"]

        watching(console.url, look)


def test_an_answer_that_comes_when_it_has_been_told_to_end_is_not_shown(console: SyntheticConsole) -> None:
    async def look(app: TopApp, pilot: Pilot[None]) -> None:
        await app.screen.remove_children()
        app._show(AdminError("nobody answers"))

    watching(console.url, look)


def test_in_a_terminal_from_its_start_to_q(console: SyntheticConsole) -> None:
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    command = [sys.executable, "-m", "forebay_proxy.commands.cli", "top", "--url", console.url]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm-256color"}
    )
    os.close(theirs)
    os.set_blocking(ours, False)

    def shows(text: str) -> bool:
        with contextlib.suppress(BlockingIOError, OSError):  # the second: it has ended
            while data := os.read(ours, 65536):
                stream.feed(data)
        return any(text in line for line in screen.display)

    try:
        wait_until(lambda: shows("3 of 3 brokers"), SECONDS, "the sentence is there")
        wait_until(lambda: shows("1 client too old for Kafka 4"), SECONDS, "what needs attention is there")
        os.write(ours, b"c")
        wait_until(lambda: shows("till-0003"), SECONDS, "clients are there")
        wait_until(lambda: shows(r"\x1b[2J\x07till"), SECONDS, "no name speaks to the terminal")
        os.write(ours, b"q")
        wait_until(lambda: shows("") and process.poll() is not None, SECONDS, "it has ended")
        assert process.returncode == 0
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(ours)
