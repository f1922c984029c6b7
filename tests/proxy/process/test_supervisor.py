"""One process and several: signals, exit codes, deaths, and metrics added up; with real processes and a fake App.

Nothing is waited for by time: a log line, the end of stderr or the end of a process says when it is so.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from forebay_policies.retry import JITTER
from forebay_proxy import __version__
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.console.api import NOTHING_TOLD
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.admin import Admin, Metrics
from forebay_proxy.metrics.registry import MetricRegistry, decode
from forebay_proxy.metrics.topic_counts import MAX_TOPICS
from forebay_proxy.process import supervisor as supervision
from forebay_proxy.process import worker_slot
from forebay_proxy.process.in_force import Read, SettingsInForce
from forebay_proxy.process.lifecycle import FAILED, SIGNALS
from forebay_proxy.process.reloading import Reloaded, Reloading
from forebay_proxy.process.supervisor import STEADY_S, Supervisor
from forebay_proxy.process.worker_slot import HUNG_S, SILENT_S
from forebay_proxy.security.renewals import Renewals
from tests.kit.event_loop import turns, until
from tests.kit.metrics import everything
from tests.kit.ports import free_ports
from tests.kit.waiting import wait_until
from tests.proxy.process.fake_app import APP
from tests.proxy.process.test_replacing import Worker, ready

ROOT = Path(__file__).parents[3]
LONG = 60
"""Seconds after which a test has failed."""

MOVED = 'forebay_records_total{fate="moved"}'


def environment() -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    return {**ours, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}


class Forebay:
    """A running `forebay run` with a fake App in it."""

    def __init__(self, *more: str, workers: int | None = 1) -> None:
        """`workers` None: as the settings have it."""
        self.listen, self.admin = free_ports(2)
        self.log: list[dict[str, Any]] = []
        addresses = ("--listen", f"127.0.0.1:{self.listen}", "--admin", f"127.0.0.1:{self.admin}")
        command = (sys.executable, "-P", "-m", "tests.proxy.process.fake_app", "run", "--bootstrap-servers", "b:9092")
        self.began = time.time()
        self.process = subprocess.Popen(
            [*command, *addresses, *([] if workers is None else ["--workers", str(workers)]), *more],
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """Read the log until `event` has been there so many times; these lines."""
        while len(found := [line for line in self.log if line["event"] == event]) < count:
            if (line := self._read()) is None:
                raise AssertionError(f"ended without {event!r}: {self.log}")
            self.log.append(line)
        return found

    def rest(self) -> list[dict[str, Any]]:
        """Read the log to its end, which is when every process that could write to it has ended."""
        while line := self._read():
            self.log.append(line)
        return self.log

    def _read(self) -> dict[str, Any] | None:
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        if not line:
            return None
        return dict(json.loads(line)) if line.startswith("{") else {"event": line.rstrip("\n")}

    def events(self) -> list[str]:
        return [line["event"] for line in self.log]

    def say(self, command: str) -> int | None:
        """Tell an App; the number of its process, None where it died of it."""
        with socket.create_connection(("127.0.0.1", self.listen), LONG) as connection:
            connection.sendall(command.encode() + b"\n")
            answer = connection.makefile("rb").readline()
        return int(answer) if answer else None

    def say_until(self, command: str, enough: Callable[[dict[int, int]], bool]) -> dict[int, int]:
        """Tell the workers, as the kernel picks them, until enough have heard it: process → times."""
        heard: dict[int, int] = {}
        for _ in range(500):
            process = self.say(command)
            assert process is not None
            heard[process] = heard.get(process, 0) + 1
            if enough(heard):
                return heard
        raise AssertionError(f"not enough: {heard}")

    def get(self, page: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/{page}", timeout=LONG) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def problems(self) -> list[str]:
        return [problem["text"] for problem in json.loads(self.get("api/v1/overview")[1])["problems"]]

    def metrics(self) -> dict[str, float]:
        return {
            sample.name + "".join(f'{{{name}="{value}"}}' for name, value in sample.labels.items()): sample.value
            for family in text_string_to_metric_families(self.get("metrics")[1])
            for sample in family.samples
        }

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def exit_code(self) -> int:
        return self.process.wait(LONG)


@contextmanager
def running(*more: str, workers: int = 1) -> Iterator[Forebay]:
    forebay = Forebay(*more, workers=workers)
    try:
        forebay.until("serving", workers)
        yield forebay
    finally:
        # Two signals, so that a supervisor takes its workers with it; different ones, since equal ones may become one.
        forebay.signal(signal.SIGTERM)
        forebay.signal(signal.SIGINT)
        forebay.process.wait(LONG)
        forebay.rest()
        assert forebay.process.stderr is not None
        forebay.process.stderr.close()


def two_workers(heard: dict[int, int]) -> bool:
    return len(heard) == 2


class TestAlone:
    def test_it_serves_drains_and_leaves_with_0(self) -> None:
        with running() as forebay:
            assert forebay.say("count") == forebay.process.pid
            assert forebay.get("readyz")[0] == 200
            assert forebay.get("healthz")[0] == 200
            metrics = forebay.metrics()
            assert (metrics[MOVED], metrics["forebay_workers"], metrics["forebay_ready"]) == (1, 1, 1)
            assert forebay.began <= metrics["forebay_start_time_seconds"] <= time.time()
            forebay.signal(signal.SIGTERM)
            assert forebay.exit_code() == 0
            forebay.rest()
            assert forebay.events() == ["begins", "serving", "draining", "drained"]
            (serving,) = forebay.until("serving")
            compiled = os.environ.get("FOREBAY_REQUIRE_COMPILE") == "1"
            assert (serving["version"], serving["compiled"]) == (__version__, compiled)

    def test_a_hang_up_means_to_read_files_again(self) -> None:
        with running() as forebay:
            forebay.signal(signal.SIGHUP)
            forebay.until("reloading")
            assert forebay.get("readyz")[0] == 200

    def test_once_a_part_of_it_has_failed_it_asks_to_be_restarted(self) -> None:
        with running() as forebay:
            forebay.say("fail")
            status, body = forebay.get("healthz")
            assert (status, json.loads(body)["reason"]) == (503, "a part has failed")

    def test_while_it_drains_it_is_not_ready_but_answers(self) -> None:
        with running() as forebay:
            forebay.say("hold")
            forebay.signal(signal.SIGINT)
            forebay.until("draining")
            status, body = forebay.get("readyz")
            assert (status, json.loads(body)["reason"]) == (503, "draining")
            assert forebay.get("healthz")[0] == 200
            metrics = forebay.metrics()
            assert (MOVED in metrics, metrics["forebay_ready"]) == (True, 0)

    @pytest.mark.parametrize(("second", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
    def test_a_second_signal_leaves_at_once(self, second: signal.Signals, code: int) -> None:
        with running("--set", "shutdown.timeout.ms=600000") as forebay:
            forebay.say("hold")
            forebay.signal(signal.SIGTERM)
            forebay.until("draining")
            forebay.signal(second)
            assert forebay.exit_code() == code

    def test_a_drain_that_does_not_end_is_cut_off_with_1(self) -> None:
        with running("--set", "shutdown.timeout.ms=50") as forebay:
            forebay.say("hold")
            forebay.signal(signal.SIGTERM)
            assert forebay.exit_code() == 1
            forebay.rest()
            assert forebay.events()[-2:] == ["drain timed out, open requests are cut off", "cut off"]

    @pytest.mark.parametrize("workers", [1, 2])
    @pytest.mark.parametrize("taken", ["listen", "admin"])
    def test_a_port_in_use_is_one_clear_line_and_1(self, taken: str, workers: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            command = [
                sys.executable,
                "-P",
                "-m",
                "tests.proxy.process.fake_app",
                "run",
                "--bootstrap-servers",
                "b:9092",
            ]
            free = free_ports(1)[0]
            addresses = {"listen": free, "admin": free} | {taken: port}
            addresses = {flag: number for flag, number in addresses.items() if flag == "listen" or flag == taken}
            for flag, number in addresses.items():
                command += [f"--{flag}", f"127.0.0.1:{number}"]
            command += ["--workers", str(workers)]
            result = subprocess.run(
                command, env=environment(), capture_output=True, text=True, timeout=LONG, check=False
            )
        last = result.stderr.splitlines()[-1]
        assert result.returncode == 1
        assert last.startswith(f"forebay: {taken} = 127.0.0.1:{port}: ")
        assert "in use" in last
        assert "Traceback" not in result.stderr

    @pytest.mark.parametrize("workers", [1, 2])
    def test_what_cannot_be_made_is_one_clear_line_and_1(self, workers: int) -> None:
        """Before anything was started: a certificate that is none."""
        forebay = Forebay("--advertised-host", "bad.example", workers=workers)
        assert forebay.exit_code() == 1
        forebay.rest()
        assert forebay.events()[-1] == "forebay: advertised.host: bad.example will not do"
        assert "Traceback (most recent call last):" not in forebay.events()
        assert forebay.process.stderr is not None
        forebay.process.stderr.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_signals_that_come_while_it_starts_end_nothing(tmp_path: Path, workers: int) -> None:
    """Its settings are in a pipe, so the test knows when it waits for them."""
    pipe = tmp_path / "forebay.toml"
    os.mkfifo(pipe)
    forebay = Forebay("--config", str(pipe), workers=workers)
    with pipe.open("w") as settings:
        for number in (signal.SIGHUP, signal.SIGUSR2):
            forebay.signal(number)
        settings.write('"topics.include" = "a"')
    forebay.until("serving", workers)
    forebay.signal(signal.SIGTERM)
    assert forebay.exit_code() == 0
    forebay.rest()
    assert forebay.process.stderr is not None
    forebay.process.stderr.close()


@pytest.mark.parametrize("number", SIGNALS)
def test_one_that_is_told_to_leave_while_it_starts_leaves(tmp_path: Path, number: signal.Signals) -> None:
    pipe = tmp_path / "forebay.toml"
    os.mkfifo(pipe)
    forebay = Forebay("--config", str(pipe), workers=None)
    with pipe.open("w"):
        forebay.signal(number)
        assert forebay.exit_code() == 0
    assert forebay.rest() == []
    assert forebay.process.stderr is not None
    forebay.process.stderr.close()


def test_a_worker_ignores_them_until_it_has_its_settings() -> None:
    ends, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
    numbers = [each.fileno() for each in theirs]
    command = (sys.executable, "-P", "-m", "forebay_proxy.process.worker", *map(str, numbers), __version__)
    worker = subprocess.Popen(command, env=environment(), pass_fds=numbers, stderr=subprocess.DEVNULL)
    for each in theirs:
        each.close()

    def ignores(number: signal.Signals) -> bool:
        status = Path(f"/proc/{worker.pid}/status").read_text()
        return bool(int(status.partition("SigIgn:")[2].split()[0], 16) & 1 << number - 1)

    try:
        asyncio.run(until(lambda: ignores(signal.SIGUSR2)))
        assert ignores(signal.SIGHUP)
    finally:
        for each in ends:
            each.close()
        assert worker.wait(LONG) == FAILED


@pytest.mark.parametrize("workers", [1, 2])
def test_an_address_that_may_strand_clients_is_told_once_whatever_the_number_of_workers(workers: int) -> None:
    """A later --listen wins over the one that Forebay is given."""
    (port,) = free_ports(1)
    forebay = Forebay("--listen", f"0.0.0.0:{port}", workers=workers)
    forebay.until("serving", workers)
    forebay.signal(signal.SIGTERM)
    assert forebay.exit_code() == 0
    told = [line for line in forebay.rest() if "advertised.host" in line["event"]]
    assert [(line["level"], line["listeners"]) for line in told] == [("info", ["PLAINTEXT"])]


@pytest.mark.parametrize("workers", [1, 2])
def test_settings_of_security_that_do_nothing_are_told_once_whatever_the_number_of_workers(workers: int) -> None:
    forebay = Forebay("--set", "ssl.truststore.location=/etc/kafka/ca.pem", workers=workers)
    forebay.until("serving", workers)
    forebay.signal(signal.SIGTERM)
    assert forebay.exit_code() == 0
    told = [line for line in forebay.rest() if line["event"] == "settings of security have no effect"]
    assert [(line["level"], line["settings"]) for line in told] == [("warning", ["ssl.truststore.location"])]


class TestSeveral:
    def test_they_share_the_port_and_are_added_up(self) -> None:
        with running(workers=2) as forebay:
            heard = forebay.say_until("count", two_workers)
            assert forebay.process.pid not in heard
            metrics = forebay.metrics()
            assert metrics[MOVED] == sum(heard.values())
            assert (metrics["forebay_workers"], metrics["forebay_worker_restarts_total"]) == (2, 0)
            assert metrics["forebay_ready"] == 1
            assert forebay.began <= metrics["forebay_start_time_seconds"] <= time.time()
            assert forebay.get("readyz")[0] == 200
            assert forebay.get("healthz")[0] == 200

    def test_all_drain_and_it_leaves_with_0(self) -> None:
        with running(workers=2) as forebay:
            forebay.signal(signal.SIGTERM)
            assert forebay.exit_code() == 0
            forebay.rest()
            assert sorted(line["worker"] for line in forebay.log if line["event"] == "drained") == [0, 1]

    def test_a_hang_up_reaches_all_of_them_and_ends_none(self) -> None:
        with running(workers=2) as forebay:
            forebay.signal(signal.SIGHUP)
            told = forebay.until("reloading", 2)
            assert sorted(line["worker"] for line in told) == [0, 1]
            heard = forebay.say_until("count", two_workers)
            os.kill(next(iter(heard)), signal.SIGHUP)
            forebay.until("reloading", 3)
            assert forebay.get("readyz")[0] == 200

    def test_ctrl_c_on_a_terminal_drains_too(self) -> None:
        with running(workers=2) as forebay:
            os.killpg(forebay.process.pid, signal.SIGINT)
            assert forebay.exit_code() == 0
            forebay.rest()
            assert forebay.events().count("drained") == 2

    def test_a_worker_told_by_both_drains_once(self) -> None:
        """As systemd does, which signals every process of a service."""
        with running(workers=2) as forebay:
            heard = forebay.say_until("hold", two_workers)
            forebay.signal(signal.SIGTERM)
            forebay.until("draining", 2)
            for process in heard:
                os.kill(process, signal.SIGTERM)
            status, body = forebay.get("readyz")
            assert (status, json.loads(body)["reason"]) == (503, "draining")
            metrics = forebay.metrics()
            assert (metrics["forebay_workers"], metrics["forebay_ready"]) == (2, 0)
            forebay.signal(signal.SIGTERM)
            assert forebay.exit_code() == 143

    def test_a_worker_that_dies_is_restarted_and_what_it_counted_stays(self) -> None:
        with running(workers=2) as forebay:
            heard = forebay.say_until("count", two_workers)
            before = forebay.metrics()[MOVED]
            victim = next(iter(heard))
            os.kill(victim, signal.SIGKILL)
            (died,) = forebay.until("worker died")
            assert died["exit_code"] == -signal.SIGKILL
            assert died["level"] == "error"
            again = forebay.until("serving", 3)[2]
            assert again["worker"] == died["worker"]
            metrics = forebay.metrics()
            assert metrics[MOVED] == before
            assert (metrics["forebay_workers"], metrics["forebay_worker_restarts_total"]) == (2, 1)
            now = forebay.say_until("count", two_workers)
            assert victim not in now
            assert forebay.metrics()[MOVED] == before + sum(now.values())

    def test_one_that_dies_while_it_drains_is_told_and_makes_it_1(self) -> None:
        with running(workers=2) as forebay:
            heard = forebay.say_until("hold", two_workers)
            forebay.signal(signal.SIGTERM)
            forebay.until("draining", 2)
            for victim in heard:
                os.kill(victim, signal.SIGKILL)
            assert forebay.exit_code() == 1
            forebay.rest()
            told = [line for line in forebay.log if line["event"].startswith("worker died while it drained")]
            assert sorted((line["worker"], line["exit_code"]) for line in told) == [(0, -9), (1, -9)]

    @pytest.mark.whole
    def test_a_worker_that_hangs_needs_attention(self) -> None:
        with running(workers=2) as forebay:
            hung = min(forebay.say_until("count", two_workers))
            assert forebay.problems() == []
            os.kill(hung, signal.SIGSTOP)
            silent = [f"worker {number} does not answer" for number in range(2)]
            wait_until(lambda: forebay.problems() in ([one] for one in silent), LONG, "it does not answer")
            os.kill(hung, signal.SIGCONT)

    def test_a_worker_that_leaves_by_itself_is_restarted(self) -> None:
        with running(workers=2) as forebay:
            assert forebay.say("die") is None
            assert forebay.until("worker died")[0]["exit_code"] == 3
            forebay.until("serving", 3)
            assert forebay.say("count") is not None

    def test_a_second_signal_kills_them_all_at_once(self) -> None:
        with running("--set", "shutdown.timeout.ms=600000", workers=2) as forebay:
            forebay.say_until("hold", two_workers)
            forebay.signal(signal.SIGTERM)
            forebay.until("draining", 2)
            forebay.signal(signal.SIGTERM)
            assert forebay.exit_code() == 143
            forebay.rest()  # ends only when the workers have ended

    def test_one_that_does_not_drain_in_time_makes_it_1(self) -> None:
        with running("--set", "shutdown.timeout.ms=50", workers=2) as forebay:
            forebay.say("hold")
            forebay.signal(signal.SIGTERM)
            assert forebay.exit_code() == 1

    def test_workers_drain_and_leave_when_the_supervisor_is_gone(self) -> None:
        with running(workers=2) as forebay:
            forebay.signal(signal.SIGKILL)
            assert forebay.exit_code() == -signal.SIGKILL
            forebay.rest()
            assert forebay.events().count("drained") == 2


def settings_of(workers: int) -> Settings:
    listen = HostPort("127.0.0.1", free_ports(1)[0])
    return Settings(bootstrap_servers=(HostPort("b", 9092),), listen=listen, workers=workers)


def supervisor_of(workers: int, clock: Callable[[], float] = time.monotonic) -> Supervisor:
    return Supervisor(settings_of(workers), APP, clock)


@asynccontextmanager
async def supervised(clock: Callable[[], float] = time.monotonic, workers: int = 1) -> AsyncIterator[Supervisor]:
    """A supervisor of workers that serve; at the end all leave in good order."""
    supervisor = supervisor_of(workers, clock)
    running = asyncio.create_task(supervisor.run())
    try:
        await asyncio.wait_for(supervisor.started(), LONG)
        yield supervisor
    finally:
        supervisor.stop.draining.set()
        assert await asyncio.wait_for(running, LONG) == 0


def test_a_topic_that_has_metrics_keeps_them_when_other_workers_have_more_and_when_its_own_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        supervisor = Supervisor(msgspec.structs.replace(settings_of(3), metrics_topics_max=1), APP)
        crowds = [MetricRegistry(), MetricRegistry()]
        its_own = MetricRegistry()
        its_own.topics.sent("ponds", 0, 5, 50)

        async def scraped() -> list[float]:
            return [
                sample.value
                for family in text_string_to_metric_families((await supervisor.metrics())[0].decode())
                for sample in family.samples
                if sample.name == "forebay_topic_records_total" and sample.labels["topic"] == "ponds" and sample.value
            ]

        async def ends() -> int:
            worker.drain(succeeded=False)
            return 0

        def report() -> None:
            for slot, stats in zip(supervisor.workers, [*crowds, its_own], strict=True):
                slot.snapshot = decode(stats.snapshot())

        report()
        assert await scraped() == [5]
        for crowd, stats in enumerate(crowds):
            for number in range(MAX_TOPICS):
                stats.topics.sent(f"{crowd} t{number}", 0, 1, 1)
        report()
        assert await scraped() == [5]
        for worker in supervisor.workers:
            monkeypatch.setattr(worker, "live", ends)
            await supervisor._restart(worker)
            assert await scraped() == [5]

    asyncio.run(scenario())


def test_a_worker_whose_loop_does_not_turn_makes_it_unhealthy_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setattr(supervision, "SCRAPE_WAIT_S", 0.01)
    now = 0.0

    async def scenario() -> None:
        nonlocal now
        async with supervised(lambda: now) as supervisor:
            (worker,) = supervisor.workers
            assert supervisor.unready() is None
            process = worker.process_id
            assert process is not None
            os.kill(process, signal.SIGSTOP)
            worker.ask()
            assert (supervisor.unhealthy(), supervisor.ailing()) == (None, [])
            now += SILENT_S + 1
            assert supervisor.unhealthy() == "worker 0 does not answer"
            assert supervisor.ailing() == ["worker 0 does not answer"]
            assert (await supervisor.looked_at())[1] == [0]
            os.kill(process, signal.SIGCONT)
            assert await worker.fresh(LONG)
            assert supervisor.unhealthy() is None

    asyncio.run(scenario())


def test_a_worker_that_hangs_is_killed_and_another_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setattr(supervision, "ASK_EVERY_S", 0.01)
    now = 0.0

    async def scenario() -> None:
        nonlocal now
        async with supervised(lambda: now) as supervisor:
            (worker,) = supervisor.workers
            hung = worker.process_id
            assert hung is not None
            os.kill(hung, signal.SIGSTOP)
            os.waitid(os.P_PID, hung, os.WSTOPPED)  # noqa: ASYNC222 - at once
            await turns()  # what it said before is heard
            worker.ask()
            now += HUNG_S + 1
            assert not worker.hung  # by the clock alone: it may be the supervisor that stood still
            worker.served.clear()
            with structlog.testing.capture_logs() as logs:
                await asyncio.wait_for(worker.served.wait(), LONG)
            assert worker.process_id != hung
            events = [(line["log_level"], line["event"]) for line in logs]
            assert list(dict.fromkeys(events)) == [("error", "worker hung, killing it"), ("error", "worker died")]
            assert b"forebay_worker_restarts_total 1" in (await supervisor.metrics())[0]

    asyncio.run(scenario())


class Exec:
    """asyncio.create_subprocess_exec, which fails so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
        self._exec = asyncio.create_subprocess_exec
        self.failures = failures
        monkeypatch.setattr(asyncio, "create_subprocess_exec", self)
        monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])

    async def __call__(self, *command: str, **more: Any) -> Process:
        if self.failures > 0:
            self.failures -= 1
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return await self._exec(*command, **more)


def test_a_worker_that_cannot_be_started_again_is_tried_again_and_the_other_serves_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starting = Exec(monkeypatch, 0)

    async def scenario() -> None:
        async with supervised(workers=2) as supervisor:
            first, second = supervisor.workers
            victim, other = first.process_id, second.process_id
            assert victim is not None
            starting.failures = 2
            first.served.clear()
            with structlog.testing.capture_logs() as logs:
                os.kill(victim, signal.SIGKILL)
                await asyncio.wait_for(first.served.wait(), LONG)
            assert first.process_id not in (None, victim)
            assert second.process_id == other
            lost = [line["error"] for line in logs if line["event"] == "worker lost"]
            assert lost == ["a worker process cannot be started: Resource temporarily unavailable"] * 2

    asyncio.run(scenario())


def test_one_that_cannot_be_started_again_keeps_nobody_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    starting = Exec(monkeypatch, 0)

    async def scenario() -> None:
        async with supervised(workers=2) as supervisor:
            first, second = supervisor.workers
            assert first.process_id is not None
            starting.failures = 1000
            os.kill(first.process_id, signal.SIGKILL)
            await until(lambda: starting.failures < 1000)
            assert supervisor.unready() is None
            assert supervisor.ailing() == ["worker 0 is away: the log says why"]
            second.unready = "no broker has told its metadata yet"
            assert supervisor.unready() == "worker 0: starting"
            assert supervisor.ailing() == []

    asyncio.run(scenario())


def test_a_worker_that_is_not_understood_is_replaced_and_the_other_serves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of newer code, say."""
    Exec(monkeypatch, 0)

    async def scenario() -> None:
        async with supervised(workers=2) as supervisor:
            first, second = supervisor.workers
            strange, other = first.process_id, second.process_id
            assert strange is not None
            first.served.clear()
            unknown = msgspec.msgpack.encode({"type": "Unheard"})
            with structlog.testing.capture_logs() as logs:
                assert first._channel is not None
                first._channel._reader.feed_data(struct.pack(">I", len(unknown)) + unknown)
                await asyncio.wait_for(first.served.wait(), LONG)
            assert first.process_id not in (None, strange)
            with pytest.raises(ProcessLookupError):
                os.kill(strange, 0)
            assert second.process_id == other
            (lost,) = [line["error"] for line in logs if line["event"] == "worker lost"]
            assert "another version" in lost

    asyncio.run(scenario())


def test_a_worker_of_a_version_installed_since_is_not_taken_and_the_other_serves_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with supervised(workers=2) as supervisor:
            first, second = supervisor.workers
            victim, other = first.process_id, second.process_id
            assert victim is not None
            monkeypatch.setattr(worker_slot, "__version__", "0.0.9")
            why = f"{__version__} has been installed since 0.0.9 began to serve: forebay restart"
            with structlog.testing.capture_logs() as logs:
                os.kill(victim, signal.SIGKILL)
                await until(lambda: why in [line.get("error") for line in logs])
                with pytest.raises(StartError, match=re.escape(why) + "; nothing was changed"):
                    await supervisor.replace(settings_of(2))
            assert (second.process_id, supervisor.unready()) == (other, None)
            monkeypatch.setattr(worker_slot, "__version__", __version__)
            await until(lambda: first.serves)

    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    asyncio.run(scenario())


def test_why_a_worker_cannot_start_again_is_told_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "RESTART_BACKOFF_S", 0.001)
    worker = Worker(0, settings_of(2), [])
    monkeypatch.setattr(supervision, "WorkerSlot", lambda *_: worker)

    async def scenario() -> None:
        supervisor = supervisor_of(1)
        running = asyncio.create_task(supervisor.run())
        ready(worker)
        worker.start_failure = "client.rack: it fails"
        worker.ended.set()
        with structlog.testing.capture_logs() as logs:
            await until(lambda: [line["event"] for line in logs].count("worker died") >= 2)
        assert [line["error"] for line in logs if line["event"] == "worker lost"] == ["client.rack: it fails"]
        supervisor.stop.draining.set()
        assert await asyncio.wait_for(running, LONG) == 0

    asyncio.run(scenario())


def test_the_pause_doubles_while_a_worker_keeps_dying_and_one_that_lived_for_long_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervision, "RESTART_BACKOFF_S", 0.001)
    now = 0.0
    lives = iter((0.0, STEADY_S, 1.0, STEADY_S + 1, 1.0))

    class Dying(Worker):
        async def live(self) -> int:
            nonlocal now
            for lived in lives:
                now += lived
                return FAILED
            return await super().live()

    worker = Dying(0, settings_of(2), [])
    ready(worker)
    monkeypatch.setattr(supervision, "WorkerSlot", lambda *_: worker)

    async def scenario() -> None:
        supervisor = supervisor_of(1, lambda: now)
        with structlog.testing.capture_logs() as logs:
            running = asyncio.create_task(supervisor.run())
            await until(lambda: worker.log)
        pauses = [line["restart_in_s"] for line in logs if line["event"] == "worker died"]
        assert pauses == [pytest.approx(pause, JITTER) for pause in (0.001, 0.002, 0.004, 0.001, 0.002)]
        supervisor.stop.draining.set()
        assert await asyncio.wait_for(running, LONG) == 0

    asyncio.run(scenario())


def ready_workers(monkeypatch: pytest.MonkeyPatch, lingering: int = 0) -> list[Worker]:
    """All that are made from now on, each ready at once; the first of them drain until the test ends them."""
    made: list[Worker] = []

    def make(index: int, settings: Settings, *_: object) -> Worker:
        made.append(worker := Worker(index, settings, []))
        worker.lingers = len(made) <= lingering
        ready(worker)
        return worker

    monkeypatch.setattr(supervision, "WorkerSlot", make)
    return made


@pytest.mark.parametrize("succeeded", [True, False])
def test_workers_are_told_whether_others_take_their_place(monkeypatch: pytest.MonkeyPatch, *, succeeded: bool) -> None:
    made = ready_workers(monkeypatch)

    async def scenario() -> None:
        supervisor = supervisor_of(2)
        running = asyncio.create_task(supervisor.run())
        await turns()
        supervisor.stop.succeeded = succeeded
        supervisor.stop.draining.set()
        assert await asyncio.wait_for(running, LONG) == 0
        assert [worker.succeeded for worker in made] == [succeeded, succeeded]

    asyncio.run(scenario())


def test_a_reload_of_what_is_in_force_replaces_workers_that_could_not_be_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = ready_workers(monkeypatch)

    async def scenario() -> None:
        supervisor = supervisor_of(3)
        running = asyncio.create_task(supervisor.run())
        await turns()
        before = supervisor._settings
        others = msgspec.structs.replace(before, batch_size=32_768)
        written = [others]
        in_force = SettingsInForce(Read(before, NOTHING_TOLD), supervisor)
        reloading = Reloading(in_force, lambda: Read(written[-1], NOTHING_TOLD), MetricRegistry())
        with monkeypatch.context() as patched:
            patched.setattr(supervision, "WorkerSlot", dies_from(5, made))
            told = await reloading.now()
        assert told.error.startswith("batch.size: a new worker is not ready: it has died; not in force, yet kept by ")
        assert "workers 0, 1:" in told.error
        assert [worker._hello.settings.batch_size for worker in supervisor.workers] == [32_768, 32_768, 16_384]
        written.append(before)
        assert await reloading.now() == Reloaded(2, {"batch.size": "32768 → 16384"})
        assert [worker._hello.settings for worker in supervisor.workers] == [before] * 3
        assert await reloading.now() == Reloaded(2)
        supervisor.stop.draining.set()
        assert await asyncio.wait_for(running, LONG) == 0

    asyncio.run(scenario())


def dies_from(number: int, made: list[Worker]) -> Callable[..., Worker]:
    """The first so many that are made, all told, get ready; others die."""

    def make(index: int, settings: Settings, *_: object) -> Worker:
        made.append(worker := Worker(index, settings, []))
        if len(made) <= number:
            ready(worker)
        else:
            worker.ended.set()
        return worker

    return make


def test_where_no_worker_can_be_started_that_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    Exec(monkeypatch, 2)
    with pytest.raises(StartError, match="a worker process cannot be started: Resource temporarily unavailable"):
        asyncio.run(asyncio.wait_for(supervisor_of(2).run(), LONG))


@pytest.mark.parametrize("code", [0, 1])
def test_one_that_has_begun_since_another_ended_has_its_exit_code_counted(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Told to stop, the new worker is gone before the others are."""
    made = ready_workers(monkeypatch, lingering=2)

    async def scenario() -> None:
        supervisor = supervisor_of(2)
        running = asyncio.create_task(supervisor.run())
        await turns()
        replacing = asyncio.create_task(supervisor.replace(supervisor._settings))
        await until(lambda: len(made) == 3 and supervisor.workers[0] is made[2])
        made[2].code = code
        supervisor.stop.draining.set()
        await until(lambda: made[2].ended.is_set() and made[2] not in supervisor._replacing.running)
        for worker in made:
            worker.ended.set()
        assert await asyncio.wait_for(running, LONG) == code
        with pytest.raises(StartError, match="Forebay is leaving"):
            await replacing

    asyncio.run(scenario())


def test_what_fails_beside_the_proxy_is_told_and_it_serves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_: Renewals) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(Renewals, "run", fails)

    async def scenario() -> None:
        with structlog.testing.capture_logs() as logs:
            serving = asyncio.create_task(supervision.run_alone(settings_of(1), APP))
            await until(lambda: {"serving", "a part beside the proxy has failed"} <= {line["event"] for line in logs})
            assert not serving.done()
            serving.cancel()
            await asyncio.wait([serving])

    asyncio.run(scenario())


def test_alone_it_goes_on_with_all_else_while_it_answers_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = everything()
    answers: list[Metrics] = []
    stats.topics.sent("ponds", 0, 3, 30)

    class Noted(Admin):
        def __init__(self, metrics: Metrics, *more: Any) -> None:
            answers.append(metrics)
            super().__init__(metrics, *more)

    monkeypatch.setattr(supervision, "Admin", Noted)
    monkeypatch.setattr(supervision, "MetricRegistry", lambda: stats)

    async def scenario() -> None:
        settings = msgspec.structs.replace(settings_of(1), metrics_topics_max=1)
        serving = asyncio.create_task(supervision.run_alone(settings, APP))
        await until(lambda: answers)
        scrape = asyncio.ensure_future(answers[0]())
        await turns(3)
        assert not scrape.done()
        body, _ = await scrape
        assert b'forebay_topic_records_total{path="merged",topic="ponds"} 3.0' in body
        serving.cancel()
        await asyncio.wait([serving])

    asyncio.run(scenario())


@pytest.mark.parametrize("part", ["_ask", "_end"])
def test_what_fails_of_a_supervisor_is_told(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    ready_workers(monkeypatch)

    async def fails(_: Supervisor) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(Supervisor, part, fails)

    async def scenario() -> None:
        with structlog.testing.capture_logs() as logs:
            running = asyncio.create_task(supervisor_of(1).run())
            await until(lambda: "a part beside the proxy has failed" in {line["event"] for line in logs})
            assert not running.done()
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(scenario())
