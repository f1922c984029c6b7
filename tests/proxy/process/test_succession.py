"""One process takes the place of another: who says what to whom, and what becomes of one that does not serve."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn
from unittest.mock import AsyncMock

import pytest
from structlog.testing import capture_logs

from forebay_proxy.errors import StartError
from forebay_proxy.process import handed_sockets, succession
from forebay_proxy.process.handed_sockets import hand
from forebay_proxy.process.lifecycle import Stop
from forebay_proxy.process.service_manager import SOCKET, WATCHED
from forebay_proxy.process.succession import GO, READY, VARIABLE, Predecessor, Succession
from tests.kit.event_loop import in_loop, soon, until
from tests.proxy.process.test_supervisor import Forebay, environment, running, two_workers
from tests.proxy.process.test_supervisor_reload import commanded

SERVES = "successor serves, leaving"

# Takes what is handed over, says that it is ready, waits to be told to go on, and says which sockets it was given.
GOOD = f"""
import os, socket, sys
from forebay_proxy.process.handed_sockets import take
end = socket.socket(fileno=int(os.environ["{VARIABLE}"]))
found = take(end)
end.sendall({READY!r})
assert end.recv(1) == {GO!r}
assert "{WATCHED}" not in os.environ
connection, _ = found[0].accept()
connection.sendall(b"successor")
"""


class Scene:
    """A process that serves, and may be succeeded by a script."""

    def __init__(self, script: str, **environ: str) -> None:
        self.stop = Stop()
        self.left = 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        command = (sys.executable, "-c", script)
        self.succession = Succession(self.stop, self.sockets, self.leave, {**environment(), **environ}, command)

    async def sockets(self) -> Sequence[socket.socket]:
        return [self.listening.dup()]

    async def leave(self) -> None:
        self.left += 1

    async def refused(self, *, leaves: bool = False) -> str:
        with capture_logs() as logs, pytest.raises(StartError) as raised:
            await soon(self.succession.begin(), 60)
        told = [(line["event"], line.get("error")) for line in logs if line["event"].startswith("no successor")]
        goes_on = ("no successor: this process goes on", str(raised.value))
        assert told == [("no successor: this process is leaving", None) if leaves else goes_on]
        assert (self.left, self.stop.succeeded) == (0, False)
        self.listening.close()
        return str(raised.value)


@in_loop
async def test_a_successor_serves_and_is_named_to_the_service_manager(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        scene = Scene(GOOD, **{SOCKET: str(tmp_path / "notify"), WATCHED: str(os.getpid())})
        task = scene.succession.begin()
        assert scene.succession.begin() is task
        process = await soon(task, 60)
        assert systemd.recv(100).decode() == f"MAINPID={process}"
        assert (scene.left, scene.stop.succeeded, scene.stop.draining.is_set()) == (1, True, True)
        reader, writer = await asyncio.open_connection(*scene.listening.getsockname())
        scene.listening.close()
        assert await soon(reader.read(), 60) == b"successor"
        writer.close()
        await asyncio.to_thread(os.waitpid, process, 0)


@in_loop
async def test_one_that_ends_or_cannot_be_started_changes_nothing() -> None:
    scene = Scene("raise SystemExit(3)")
    assert await scene.refused() == "the successor is not ready: it has ended with 3: its own lines in the log say why"
    assert not scene.stop.draining.is_set()
    nowhere = Scene("")
    nowhere.succession._command = ("/nowhere/at/all",)
    assert await nowhere.refused() == "/nowhere/at/all: No such file or directory"


@in_loop
async def test_one_that_dies_before_it_is_told_to_go_on_has_taken_no_place(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        scene = Scene(GOOD.partition("assert")[0], **{SOCKET: str(tmp_path / "notify")})

        async def dies() -> None:
            await asyncio.to_thread(os.waitid, os.P_ALL, 0, os.WEXITED | os.WNOWAIT)

        scene.succession._leave = dies
        assert "Broken pipe" in await scene.refused()
        assert not scene.stop.succeeded
        assert not scene.stop.draining.is_set()
        with pytest.raises(BlockingIOError):  # systemd would take a process that is gone for the service
            systemd.recv(100)


@in_loop
async def test_sockets_that_cannot_be_handed_over_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> NoReturn:
        raise OSError(errno.ETOOMANYREFS, "Too many references")

    scene = Scene("")
    asked = [scene.listening.dup()]
    scene.succession._sockets = AsyncMock(return_value=asked)
    monkeypatch.setattr(handed_sockets, "hand", fails)
    assert "Too many references" in await scene.refused()
    assert asked[0].fileno() < 0


@in_loop
async def test_one_without_descriptors_left_goes_on_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    scene = Scene("")
    with monkeypatch.context() as patched:
        patched.setattr(socket, "socketpair", full)
        assert "Too many open files" in await scene.refused()
    assert not scene.stop.draining.is_set()


@in_loop
async def test_one_that_does_not_get_ready_is_told_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(succession, "READY_WAIT_S", 0.05)
    scene = Scene("import time; time.sleep(600)")
    assert "it was not within 0.05 s" in await scene.refused()


@in_loop
async def test_who_leaves_has_no_successor() -> None:
    scene = Scene("import time; time.sleep(600)")
    task = scene.succession.begin()
    await until(lambda: scene.succession._task is task)
    scene.stop.draining.set()
    assert "Forebay is leaving" in await scene.refused(leaves=True)
    late = Scene("")
    late.stop.draining.set()
    assert await late.refused(leaves=True) == "Forebay is leaving"


@in_loop
async def test_a_predecessor_is_told_once_its_successor_is_ready() -> None:
    ours, theirs = socket.socketpair()
    unready: list[str | None] = ["no broker yet"]
    with ours, socket.create_server(("127.0.0.1", 0)) as listening:
        hand(ours, [listening])
        environ = {VARIABLE: str(theirs.detach()), "OTHER": "x"}
        predecessor = Predecessor.of(environ)
        assert predecessor is not None
        assert environ == {"OTHER": "x"}
        (given,) = predecessor.inherited.take(socket.AF_INET, listening.getsockname())
        given.close()
        ours.setblocking(False)
        relieving = asyncio.create_task(predecessor.relieve(lambda: unready[0]))
        await asyncio.sleep(0)
        with pytest.raises(BlockingIOError):
            ours.recv(1)
        unready[0] = None
        assert await soon(asyncio.get_running_loop().sock_recv(ours, 1)) == READY
        assert not relieving.done()
        ours.send(GO)
        await soon(relieving)


@in_loop
async def test_a_predecessor_that_dies_leaves_everything_to_its_successor() -> None:
    ours, theirs = socket.socketpair()
    hand(ours, [])
    predecessor = Predecessor(theirs)
    ours.close()
    await soon(predecessor.relieve(lambda: None))


def test_one_that_is_gone_already_is_told_in_a_line() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with pytest.raises(StartError, match="has left"):
        Predecessor.of({VARIABLE: str(theirs.detach())})
    assert Predecessor.of({}) is None


# The command


def end(process: int) -> None:
    """Of a successor: it is no child of this test."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_command_hands_ports_admin_endpoint_and_socket_on(tmp_path: Path, workers: int) -> None:
    """And from there to the next one, by the signal, with settings as they stand in the file by then."""
    path, admin = tmp_path / "forebay.toml", str(tmp_path / "s")
    path.write_text(f'"workers" = {workers}\n"topics.include" = "a"')
    successors: list[int] = []
    forebay = Forebay("--config", str(path), "--set", f"admin.socket={admin}", workers=None)
    try:
        forebay.until("serving", workers)
        path.write_text(f'"workers" = {3 - workers}\n"topics.include" = "b"')
        code, out, _ = commanded("restart", "--socket", admin)
        successors += [line["process"] for line in forebay.until(SERVES)]
        assert (code, out) == (0, f"Process {successors[0]} serves now; the other one drains.\n")
        assert forebay.exit_code() == 0
        assert forebay.say("count") is not None
        assert forebay.metrics()["forebay_workers"] == 3 - workers
        assert '"b"' in forebay.get("api/v1/config?q=topics.include")[1]
        os.kill(successors[0], signal.SIGUSR2)
        successors += [line["process"] for line in forebay.until(SERVES, 2)[1:]]
        assert commanded("overrides", "--socket", admin) == (0, "Nothing is overridden.\n", "")
        assert forebay.get("readyz")[0] == 200
        assert forebay.say("count") is not None
    finally:
        for process in (forebay.process.pid, *successors):
            end(process)
        forebay.rest()
        assert forebay.process.stderr is not None
        forebay.process.stderr.close()
    assert not Path(admin).exists()
    assert forebay.events().count("took over from another Forebay") == 2
    assert "Traceback (most recent call last):" not in forebay.events()


@pytest.mark.parametrize("workers", [1, 2])
def test_while_a_successor_starts_nothing_changes_that_it_would_not_know_of(tmp_path: Path, workers: int) -> None:
    path, admin = tmp_path / "forebay.toml", str(tmp_path / "s")
    path.write_text('"topics.include" = "a"')
    refused = (1, "", "forebay: a successor is starting, which would not know of it; nothing was changed\n")
    with running("--config", str(path), "--set", f"admin.socket={admin}", workers=workers) as forebay:
        forebay.until("serving", workers)
        assert commanded("override", "linger.ms=5", "--reason", "a test", "--socket", admin)[0] == 0
        path.write_text('"client.rack" = "waits"\n"topics.include" = "b"')
        forebay.signal(signal.SIGUSR2)
        successor = forebay.until("successor started")[0]["process"]
        path.write_text('"topics.include" = "c"')
        for asked in (
            ("override", "linger.ms=7", "--reason", "a test"),
            ("overrides", "--remove", "linger.ms"),
            ("avoid", "0", "--end"),
        ):
            assert commanded(*asked, "--socket", admin) == refused
        renewed = "; renewed all the same: connections to brokers, listener ssl\n"
        assert commanded("reload", "--socket", admin)[::2] == (1, refused[2].rstrip() + renewed)
        end(successor)
        forebay.until("no successor: this process goes on")
        assert commanded("overrides", "--remove", "linger.ms", "--socket", admin)[0] == 0
        assert commanded("reload", "--socket", admin)[0] == 0


def test_a_successor_with_wrong_settings_leaves_everything_as_it_is(tmp_path: Path) -> None:
    path, admin = tmp_path / "forebay.toml", str(tmp_path / "s")
    path.write_text('"topics.include" = "a"')
    with running("--config", str(path), "--set", f"admin.socket={admin}", workers=2) as forebay:
        path.write_text('"topics.includ" = "a"')
        why = "forebay: the successor is not ready: it has ended with 2: its own lines in the log say why\n"
        assert commanded("restart", "--socket", admin) == (1, "", why)
        forebay.until("no successor: this process goes on")
        assert any("did you mean topics.include" in event for event in forebay.events())
        assert len(forebay.say_until("count", two_workers)) == 2
        assert forebay.get("readyz")[0] == 200
