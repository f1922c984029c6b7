"""A real systemd follows the process that takes over, as it follows the first: a manager of its own, in a place apart.

The manager is a user's, and thinks that the system was booted by one. That takes a mount namespace, and so root.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.kit.paths import ROOT
from tests.kit.ports import free_ports
from tests.kit.waiting import wait_until
from tests.proxy.process.test_supervisor import environment

pytestmark = pytest.mark.whole

UNIT = ROOT / "deploy" / "systemd" / "forebay.service"
OF_THE_UNIT = (
    *("Type", "ExecReload", "WatchdogSec", "WatchdogSignal", "KillMode", "KillSignal", "TimeoutStopSec"),
    *("Restart", "RestartSec"),
)
SOON = 60.0
APART = """
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system || exit 1
/usr/lib/systemd/systemd --user --log-target=null &
manager=$!
while read -r words; do
  eval "systemctl --user $words"
  echo "over $?"
done
kill -TERM $manager
wait
"""


class Manager:
    """Obeys `systemctl --user`'s words."""

    def __init__(self, folder: Path, unit: str) -> None:
        units = folder / "config" / "systemd" / "user"
        units.mkdir(parents=True)
        (folder / "run").mkdir(mode=0o700)
        (units / "forebay.service").write_text(unit)
        environ = {
            **environment(),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        self.process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", APART],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ,
        )

    def says(self, words: str) -> tuple[int, str]:
        """Exit code, and what it printed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        lines: list[str] = []
        while not (line := self.process.stdout.readline()).startswith("over "):
            assert line, lines
            lines.append(line.strip())
        return int(line.removeprefix("over ")), "\n".join(lines)

    def does(self, words: str) -> None:
        code, said = self.says(words)
        assert code == 0, said

    def shows(self, name: str) -> str:
        return self.says(f"show forebay --value -p {name}")[1]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(SOON)


def unit(command: Sequence[str], log: Path) -> str:
    """With the lines of ours that say how it is started, told and stopped."""
    lines = UNIT.read_text().splitlines()
    ours = [line for line in lines if line.partition("=")[0] in OF_THE_UNIT]
    limits = [line for line in lines if line.startswith("StartLimit")]
    path = environment()["PYTHONPATH"]
    more = [f"Environment=PYTHONPATH={path}", f"ExecStart={' '.join(command)}", f"StandardError=append:{log}"]
    return "\n".join(["[Unit]", *limits, "[Service]", *ours, f"WorkingDirectory={ROOT}", *more])


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    listen, admin = free_ports(2)
    command = [sys.executable, "-P", "-m", "tests.proxy.process.fake_app", "run", "--bootstrap-servers", "b:9092"]
    command += ["--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}", "--workers", "2"]
    manager = Manager(tmp_path, unit(command, tmp_path / "log"))
    try:
        wait_until(lambda: manager.says("list-units")[0] == 0, SOON, "the manager serves")
        yield manager
        manager.does("stop forebay")
        assert manager.shows("ActiveState") == "inactive"
    finally:
        manager.close()


def test_it_follows_a_successor_and_restarts_it_when_it_dies(manager: Manager) -> None:
    manager.does("start forebay")
    first = manager.shows("MainPID")
    manager.does("kill --kill-who=main --signal=SIGUSR2 forebay")
    wait_until(lambda: manager.shows("MainPID") != first, SOON, "the successor is the main process")
    wait_until(lambda: not Path(f"/proc/{first}").exists(), SOON, "the one before has gone")
    second = manager.shows("MainPID")
    assert (manager.shows("ActiveState"), manager.shows("NRestarts")) == ("active", "0")
    manager.does("reload forebay")
    assert manager.shows("MainPID") == second
    manager.does("kill --kill-who=main --signal=SIGKILL forebay")
    wait_until(lambda: manager.shows("NRestarts") == "1", SOON, "it is started again")
    wait_until(lambda: manager.shows("ActiveState") == "active", SOON, "it serves")
    assert manager.shows("MainPID") not in (first, second)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Manager, int]]:
    """Of one process, with the port that it listens on; it is missed after six seconds."""
    listen, admin = free_ports(2)
    command = [sys.executable, "-P", "-m", "tests.proxy.process.fake_app", "run", "--bootstrap-servers", "b:9092"]
    command += ["--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}"]
    ours = unit(command, tmp_path / "log")
    for name, least in (("WatchdogSec=30", "WatchdogSec=6"), ("TimeoutStopSec=40", "TimeoutStopSec=1")):
        assert name in ours
        ours = ours.replace(name, least)
    manager = Manager(tmp_path, ours)
    try:
        wait_until(lambda: manager.says("list-units")[0] == 0, SOON, "the manager serves")
        manager.does("start forebay")
        yield manager, listen
        manager.does("stop forebay")
    finally:
        manager.close()


def comes_again(manager: Manager) -> bool:
    return manager.shows("NRestarts") != "0" and manager.shows("ActiveState") == "active"


def test_one_that_hangs_is_started_again(watched: tuple[Manager, int]) -> None:
    manager, _ = watched
    manager.does("kill --kill-who=main --signal=SIGSTOP forebay")
    wait_until(lambda: comes_again(manager), SOON, "it is started again")


def test_one_of_which_a_part_has_failed_drains_and_is_started_again(
    watched: tuple[Manager, int], tmp_path: Path
) -> None:
    manager, listen = watched
    with socket.create_connection(("127.0.0.1", listen), SOON) as connection:
        connection.sendall(b"fail\n")
        assert connection.recv(100)
    wait_until(lambda: comes_again(manager), SOON, "it is started again")
    assert '"drained"' in (tmp_path / "log").read_text()


def test_a_successor_is_watched_and_says_that_it_is_alive(watched: tuple[Manager, int]) -> None:
    manager, _ = watched
    first = manager.shows("MainPID")
    manager.does("kill --kill-who=main --signal=SIGUSR2 forebay")
    wait_until(lambda: manager.shows("MainPID") != first, SOON, "the successor is the main process")
    heard = set[str]()

    def again() -> bool:
        heard.add(manager.shows("WatchdogTimestampMonotonic"))
        return len(heard) > 5  # longer than it may be silent

    wait_until(again, SOON, "it says so")
    assert manager.shows("NRestarts") == "0"
    manager.does("kill --kill-who=main --signal=SIGSTOP forebay")
    wait_until(lambda: comes_again(manager), SOON, "it is started again")


def test_however_often_it_dies_it_is_started_again(tmp_path: Path) -> None:
    """By default systemd leaves it down after five times in ten seconds."""
    manager = Manager(tmp_path, unit(["/bin/false"], tmp_path / "log"))
    try:
        wait_until(lambda: manager.says("list-units")[0] == 0, SOON, "the manager serves")
        manager.does("start --no-block forebay")
        wait_until(lambda: int(manager.shows("NRestarts")) > 6, SOON, "it is started again")
        manager.does("stop forebay")
    finally:
        manager.close()


def test_it_waits_for_a_drain_that_may_take_longer_than_the_unit_says(tmp_path: Path) -> None:
    listen, admin = free_ports(2)
    command = [sys.executable, "-P", "-m", "tests.proxy.process.fake_app", "run", "--bootstrap-servers", "b:9092"]
    command += ["--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}", "--set", "shutdown.timeout.ms=4000"]
    manager = Manager(tmp_path, unit(command, tmp_path / "log").replace("TimeoutStopSec=40", "TimeoutStopSec=1"))
    try:
        wait_until(lambda: manager.says("list-units")[0] == 0, SOON, "the manager serves")
        manager.does("start forebay")
        with socket.create_connection(("127.0.0.1", listen), SOON) as connection:
            connection.sendall(b"hold\n")
            assert connection.recv(100)
        manager.does("stop forebay")
        assert "drain timed out" in (tmp_path / "log").read_text()
    finally:
        manager.close()
