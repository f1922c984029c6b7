"""What systemd would hear, on a socket like its own."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay_proxy.demo.mock_cluster import MockCluster
from forebay_proxy.process.lifecycle import Stop
from forebay_proxy.process.service_manager import SOCKET, WATCHDOG, WATCHED, for_successor, keep_alive, notify
from tests.kit.event_loop import in_loop
from tests.kit.forebay import ForebayProcess
from tests.proxy.process.test_supervisor import running

SECONDS = 30


class Listening:
    def __init__(self, name: str) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        self._socket.settimeout(SECONDS)

    def hears(self) -> list[str]:
        """The next message's lines."""
        return self._socket.recv(4096).decode().split("\n")

    def has_heard(self) -> int:
        """How many messages there were since it heard."""
        count = 0
        while self._socket in select.select([self._socket], [], [], 0)[0]:
            self.hears()
            count += 1
        return count

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["a path", "an abstract name"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listening]:
    name = str(tmp_path / "notify") if request.param == "a path" else f"@{tmp_path}"
    listening = Listening(name)
    yield listening
    listening.close()


def test_it_hears_what_it_is_told(systemd: Listening) -> None:
    notify("READY=1\nSTATUS=serving", {SOCKET: systemd.name})
    assert systemd.hears() == ["READY=1", "STATUS=serving"]


@pytest.mark.parametrize("environ", [{}, {SOCKET: ""}, {SOCKET: "/nowhere/at/all"}])
def test_where_nobody_listens_nothing_happens(environ: dict[str, str]) -> None:
    notify("READY=1", environ)


@pytest.mark.parametrize("workers", [1, 2])
def test_forebay_says_when_it_serves_and_when_it_leaves(systemd: Listening, workers: int) -> None:
    with MockCluster(1) as cluster:
        env = {SOCKET: systemd.name}
        forebay = ForebayProcess(cluster.bootstrap, [1], options=["--workers", str(workers)], env=env)
        with forebay:
            assert systemd.hears()[0] == "READY=1"
            with socket.create_connection(("127.0.0.1", forebay.port), SECONDS):
                pass
        assert systemd.hears() == ["STOPPING=1", "STATUS=draining", "EXTEND_TIMEOUT_USEC=40000000"]


async def at_once() -> None:
    pass


MILLISECOND = "1000"
EACH_10_MS = "40000"


async def first_alive(systemd: Listening, stop: Stop, unhealthy: Callable[[], str | None]) -> None:
    """Returns once systemd has heard."""
    keeping = asyncio.create_task(keep_alive(at_once, stop, {SOCKET: systemd.name, WATCHDOG: MILLISECOND}, unhealthy))
    try:
        assert await asyncio.to_thread(systemd.hears) == ["WATCHDOG=1"]
    finally:
        keeping.cancel()


@in_loop
async def test_it_hears_again_and_again_from_one_that_is_alive(systemd: Listening) -> None:
    healthy = iter((None, None, None))
    with pytest.raises(RuntimeError):  # of an iterator that has ended
        await keep_alive(at_once, Stop(), {SOCKET: systemd.name, WATCHDOG: MILLISECOND}, lambda: next(healthy))
    assert systemd.has_heard() == 3


@in_loop
async def test_it_hears_nothing_while_something_has_failed(systemd: Listening) -> None:
    found = iter(("failed", "failed"))
    await first_alive(systemd, Stop(), lambda: next(found, None))
    assert next(found, None) is None


@in_loop
async def test_a_drain_is_not_cut_short(systemd: Listening) -> None:
    stop = Stop()
    stop.draining.set()
    await first_alive(systemd, stop, lambda: "failed")


@in_loop
async def test_one_whose_place_is_taken_says_nothing(systemd: Listening) -> None:
    taken = iter((True, True))

    class Taken(Stop):
        succeeded = property(lambda _: next(taken, False), lambda *_: None)

    await first_alive(systemd, Taken(), lambda: None)
    assert next(taken, None) is None


@pytest.mark.parametrize("watched", [{}, {WATCHDOG: ""}, {WATCHDOG: "0"}, {WATCHDOG: "1000", WATCHED: "1"}])
@in_loop
async def test_where_nobody_watches_nothing_is_said(watched: dict[str, str]) -> None:
    """Or somebody else is watched, who has started this process."""
    await keep_alive(at_once, Stop(), watched, lambda: None)


def test_a_successor_is_watched_where_this_process_is() -> None:
    common = {SOCKET: "/run/notify", WATCHDOG: "30000000"}
    assert for_successor({**common, WATCHED: str(os.getpid())}) == common
    assert for_successor(common) == common
    assert for_successor({**common, WATCHED: "1"}) == {**common, WATCHED: "1"}


@pytest.mark.parametrize("workers", [1, 2])
def test_forebay_is_alive_until_it_has_drained(
    systemd: Listening, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SOCKET, systemd.name)
    monkeypatch.setenv(WATCHDOG, EACH_10_MS)
    with running("--set", "shutdown.timeout.ms=600000", workers=workers) as forebay:
        while systemd.hears() != ["WATCHDOG=1"]:
            pass
        forebay.say_until("hold", lambda heard: len(heard) == workers)
        forebay.signal(signal.SIGTERM)
        while systemd.hears()[0] != "STOPPING=1":
            pass
        assert systemd.hears() == ["WATCHDOG=1"]
        forebay.signal(signal.SIGTERM)
        assert forebay.exit_code() == 128 + signal.SIGTERM


def test_it_does_not_hear_from_one_of_which_a_part_has_failed(
    systemd: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SOCKET, systemd.name)
    monkeypatch.setenv(WATCHDOG, EACH_10_MS)
    with running() as forebay:
        while systemd.hears() != ["WATCHDOG=1"]:
            pass
        forebay.say("fail")
        systemd.has_heard()
        for _ in range(50):  # takes several times as long as until the next message
            assert forebay.get("healthz")[0] == 503
        assert systemd.has_heard() == 0
