"""SIGHUP with other settings in the file: processes and workers, as they are started by the command."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from forebay_proxy.commands.cli import main
from tests.proxy.process.test_supervisor import MOVED, Forebay, running, two_workers
from tests.proxy.test_changed_settings import CHANGED

WORKERS = pytest.mark.parametrize("workers", [1, 2])
GONE = "worker replaced, the old one drains"
LOGS = "topics.include: orders → logs\nIn force in all workers, as generation 2.\n"
RENEWED = "Certificates and secrets renewed of connections to brokers, listener ssl.\n"
RELOADED, REFUSED = "settings reloaded", "settings not reloaded: those in force stay"


@contextmanager
def configured(path: Path, workers: int, *more: str) -> Iterator[Forebay]:
    path.write_text('"topics.include" = "orders"')
    with running("--config", str(path), *more, workers=workers) as forebay:
        yield forebay


def reload(forebay: Forebay, event: str, count: int = 1) -> dict[str, object]:
    forebay.signal(signal.SIGHUP)
    return forebay.until(event, count)[-1]


@WORKERS
def test_every_live_setting_reaches_every_worker(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "forebay.toml"
    with configured(path, workers) as forebay:
        told = {name: list(value) if isinstance(value, tuple) else value for name, value in CHANGED.items()}
        del told["log.level"]  # the log is how this test knows
        path.write_text("".join(f'"{name}" = {json.dumps(value)}\n' for name, value in told.items()))
        reload(forebay, RELOADED)
        for line in forebay.until("committed", workers):
            assert {name: line["live"][name] for name in told} == told


@WORKERS
def test_a_live_setting_in_a_file_that_is_referred_to_is_read_again(tmp_path: Path, workers: int) -> None:
    referred, socket = tmp_path / "topics.properties", str(tmp_path / "s")
    referred.touch(mode=0o600)
    referred.write_text("mine=orders")
    told = (f"topics.include=${{file:{referred}:mine}}", f"admin.socket={socket}")
    with running("--set", told[0], "--set", told[1], workers=workers) as forebay:
        referred.write_text("mine=logs")
        assert commanded("reload", "--socket", socket) == (0, LOGS + RENEWED, "")
        assert [line["topics"] for line in forebay.until("committed", workers)] == [["logs"]] * workers


@WORKERS
def test_by_the_socket_a_reload_is_answered(tmp_path: Path, workers: int) -> None:
    path, socket = tmp_path / "forebay.toml", tmp_path / "s"
    with configured(path, workers, "--set", f"admin.socket={socket}") as forebay:
        forebay.until("serving", workers)
        path.write_text('"topics.include" = "logs"')
        assert commanded("reload", "--socket", str(socket)) == (0, LOGS + RENEWED, "")
        forebay.until("committed", workers)
        forebay.until("reloading", workers)  # certificates and secrets
        path.write_text('"topics.include" = "logs"\nlog.format = "console"')
        refused = "forebay: log.format cannot change without a restart; nothing was changed"
        why = f"{refused}; renewed all the same: connections to brokers, listener ssl\n"
        assert commanded("reload", "--socket", str(socket)) == (1, "", why)
        assert forebay.metrics()["forebay_config_generation"] == 2
    assert not socket.exists()


@pytest.mark.parametrize(("workers", "where", "of"), [(1, 0, ""), (2, 0, "worker 0: "), (2, 1, "worker 1: ")])
def test_what_could_not_be_renewed_is_told_too(tmp_path: Path, workers: int, where: int, of: str) -> None:
    path, socket = tmp_path / "forebay.toml", str(tmp_path / "s")
    more = ("--set", f"admin.socket={socket}", "--set", f"client.rack=differs in {where}")
    with configured(path, workers, *more) as forebay:
        forebay.until("serving", workers)
        nothing = "No setting has changed: generation 1 stays in force.\n"
        renewed = "Certificates and secrets renewed of listener ssl.\n"
        failed = f"Not renewed, so those in use stay: connections to brokers: {of}they differ\n"
        assert commanded("reload", "--socket", socket) == (1, nothing + renewed + failed, "")
        path.write_text('"log.format" = "console"')
        refused = "forebay: log.format cannot change without a restart; nothing was changed"
        told = f"renewed all the same: listener ssl; connections to brokers not renewed: {of}they differ"
        why = f"{refused}; {told}\n"
        assert commanded("reload", "--socket", socket) == (1, "", why)


@WORKERS
def test_an_override_reaches_every_worker_those_started_again_too_and_ends(tmp_path: Path, workers: int) -> None:
    path, socket = tmp_path / "forebay.toml", str(tmp_path / "s")
    with configured(path, workers, "--set", f"admin.socket={socket}") as forebay:
        forebay.until("serving", workers)
        code, out, _ = commanded(
            "override", "topics.include=over", "--for", "2h", "--reason", "a <b>test", "--socket", socket
        )
        assert (code, "topics.include" in out, "a <b>test" in out) == (0, True, True)
        told = forebay.until("committed", workers)
        assert [each["topics"] for each in told] == [["over"]] * workers
        assert commanded("overrides", "--socket", socket)[1] == out
        assert shown(forebay, "topics.include") == ["over"]
        (problem,) = json.loads(forebay.get("api/v1/overview")[1])["problems"]
        assert (problem["kind"], "a <b>test" in problem["text"]) == ("override", True)
        explained = commanded("config", "topics.include", "--socket", socket)[1]
        assert "over, from override until" in " ".join(explained.split())
        if workers > 1:
            forebay.say("die")
            forebay.until("serving", workers + 1)
            assert forebay.until("begins", workers + 1)[-1]["topics"] == ["over"]
        path.write_text('"topics.include" = "below"')
        assert commanded("reload", "--socket", socket)[1].startswith("No setting has changed")
        assert commanded("overrides", "--remove", "topics.include", "--socket", socket) == (
            0,
            "Nothing is overridden.\n",
            "",
        )
        told = forebay.until("committed", 2 * workers)
        assert [each["topics"] for each in told[workers:]] == [["below"]] * workers
        assert commanded("overrides", "--remove", "topics.include", "--socket", socket)[0] == 1
        refused = commanded("override", "workers=3", "--reason", "a test", "--socket", socket)
        assert refused == (1, "", "forebay: workers cannot be overridden: only live settings can\n")


@WORKERS
def test_an_override_ends_by_itself_in_every_worker(tmp_path: Path, workers: int) -> None:
    path, socket = tmp_path / "forebay.toml", str(tmp_path / "s")
    with configured(path, workers, "--set", f"admin.socket={socket}") as forebay:
        forebay.until("serving", workers)
        asked = ("override", "topics.include=over", "--for", "1ms", "--reason", "a test", "--socket", socket)
        assert commanded(*asked)[0] == 0
        forebay.until("override expired")
        told = forebay.until("committed", 2 * workers)
        assert sorted(each["topics"] for each in told) == [["orders"]] * workers + [["over"]] * workers


def test_workers_that_would_not_be_heard_any_more_by_a_fault_of_ours_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "forebay.toml"
    with configured(path, 2) as forebay:
        forebay.until("serving", 2)
        path.write_text('"topics.include" = "broken"')
        forebay.signal(signal.SIGHUP)
        told = forebay.until("this worker drains, and another takes its place", 2)
        assert all("a fault of ours" in line["exception"] for line in told)
        forebay.until("serving", 4)


def test_settings_that_cannot_be_prepared_by_a_fault_of_ours_come_into_force_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "forebay.toml"
    with configured(path, 2) as forebay:
        path.write_text('"topics.include" = "unprepared"')
        assert "RuntimeError" in str(reload(forebay, REFUSED)["error"])
        told = forebay.until("settings cannot be prepared: this is a bug in Forebay", 2)
        assert all("a fault of ours" in line["exception"] for line in told)
        path.write_text('"topics.include" = "logs"')
        reload(forebay, RELOADED)
        assert [line["topics"] for line in forebay.until("committed", 2)] == [["logs"]] * 2
        assert "this worker drains, and another takes its place" not in forebay.events()


@WORKERS
def test_a_dump_has_every_worker(tmp_path: Path, workers: int) -> None:
    socket = str(tmp_path / "s")
    with configured(tmp_path / "forebay.toml", workers, "--set", f"admin.socket={socket}") as forebay:
        forebay.until("serving", workers)
        told = json.loads(commanded("dump", "--socket", socket)[1])
        assert [(each["worker"], each["topics"]) for each in told["workers"]] == [
            (index, ["orders"]) for index in range(workers)
        ]
        assert all(each["tasks"]["some"] for each in told["workers"])
        code, _, why = commanded("avoid", "3", "--reason", "a test", "--socket", socket)
        assert (code, why) == (1, "forebay: broker 3 is not known\n")
        code, _, why = commanded("drain", "3", "--reason", "a test", "--confirm", "--socket", socket)
        assert (code, why) == (1, "forebay: broker 3 is not known\n")
        assert commanded("drain", "3", "--reason", "a test", "--socket", socket)[0] == 2


def commanded(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `forebay …`."""
    told = CliRunner().invoke(main, arguments)
    return told.exit_code, told.stdout, told.stderr


def shown(forebay: Forebay, name: str) -> object:
    """On the page."""
    rows = json.loads(forebay.get(f"api/v1/config?q={name}")[1])["rows"]
    return next(row["value"] for row in rows if row["name"] == name)


@WORKERS
def test_patterns_are_put_into_force_in_every_worker(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "forebay.toml"
    with configured(path, workers) as forebay:
        assert shown(forebay, "topics.include") == ["orders"]
        path.write_text('"topics.include" = "orders,logs"')
        line = reload(forebay, RELOADED)
        assert line["changes"] == {"topics.include": "orders → orders,logs"}
        told = forebay.until("committed", workers)
        assert [each["topics"] for each in told] == [["orders", "logs"]] * workers
        metrics = forebay.metrics()
        assert (metrics["forebay_config_generation"], metrics["forebay_config_last_reload_successful"]) == (2, 1)
        assert shown(forebay, "topics.include") == ["orders", "logs"]


@WORKERS
def test_what_is_wrong_or_of_the_start_changes_nothing(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "forebay.toml"
    with configured(path, workers) as forebay:
        for number, (text, why) in enumerate(
            [
                ('"topics.includ" = "x"', "did you mean topics.include"),
                ('"topics.include" = "x"\nlog.format = "console"', "log.format cannot change without a restart"),
                ("not TOML", "is not valid TOML"),
                ('"topics.include" = "refused"', "refused is refused"),
            ],
            1,
        ):
            path.write_text(text)
            assert why in str(reload(forebay, REFUSED, number)["error"])
            assert forebay.metrics()["forebay_config_last_reload_successful"] == 0
        assert "committed" not in forebay.events()
        assert forebay.metrics()["forebay_config_generation"] == 1
        path.write_text('"topics.include" = "x"')
        reload(forebay, RELOADED)
        assert forebay.metrics()["forebay_config_last_reload_successful"] == 1


def test_settings_of_workers_come_with_other_workers_one_by_one(tmp_path: Path) -> None:
    path, socket = tmp_path / "forebay.toml", str(tmp_path / "s")
    with configured(path, 2, "--set", f"admin.socket={socket}") as forebay:
        before = forebay.say_until("count", two_workers)
        path.write_text('"topics.include" = "logs"\n"client.rack" = "r1"')
        changes = "topics.include: orders → logs\nclient.rack:  → r1\n"
        assert commanded("reload", "--socket", socket) == (
            0,
            changes + "In force in all workers, as generation 2.\n" + RENEWED,
            "",
        )
        forebay.until(RELOADED)
        steps = [
            (line["event"], line["worker"]) for line in forebay.log if line["event"] in ("begins", "drained", GONE)
        ]
        assert sorted(steps[:2]) == [("begins", 0), ("begins", 1)]
        assert steps[2:] == [(step, worker) for worker in (0, 1) for step in ("begins", GONE, "drained")]
        assert [line["sockets"] for line in forebay.until("accepts from what it inherited", 2)] == [1, 1]
        begun = forebay.until("begins", 4)[2:]
        assert [(line["topics"], line["rack"]) for line in begun] == [(["logs"], "r1")] * 2
        after = forebay.say_until("count", two_workers)
        assert before.keys().isdisjoint(after)
        metrics = forebay.metrics()
        assert metrics[MOVED] == sum(before.values()) + sum(after.values())
        assert (metrics["forebay_workers"], metrics["forebay_worker_restarts_total"]) == (2, 0)
        assert (metrics["forebay_config_generation"], metrics["forebay_config_last_reload_successful"]) == (2, 1)
        assert shown(forebay, "client.rack") == "r1"
        forebay.say("die")
        assert [(line["topics"], line["rack"]) for line in forebay.until("begins", 5)[4:]] == [(["logs"], "r1")]


def test_alone_settings_of_workers_take_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "forebay.toml"
    with configured(path, 1) as forebay:
        path.write_text('"topics.include" = "logs"\n"client.rack" = "r1"\n"batch.max.size" = 524288')
        line = reload(forebay, REFUSED)
        why = "client.rack, batch.max.size: with one worker this takes a restart; nothing was changed"
        assert line["error"] == why
        assert shown(forebay, "topics.include") == ["orders"]


@pytest.mark.parametrize(
    ("rack", "begun"),
    [("fails", 2), ("fails in 1", 4)],
)
def test_a_new_worker_that_does_not_get_ready_changes_nothing(tmp_path: Path, rack: str, begun: int) -> None:
    """If it is not the first one, the one before it has its place back."""
    path = tmp_path / "forebay.toml"
    with configured(path, 2) as forebay:
        path.write_text(f'"topics.include" = "logs"\n"client.rack" = "{rack}"')
        line = reload(forebay, REFUSED)
        why = "client.rack: a new worker is not ready: client.rack: it fails; nothing was changed"
        assert line["error"] == why
        metrics = forebay.metrics()
        assert (metrics["forebay_config_generation"], metrics["forebay_config_last_reload_successful"]) == (1, 0)
        assert metrics["forebay_ready"] == 1
        serving = forebay.say_until("count", two_workers)
        assert [line["rack"] for line in forebay.until("begins", begun)] == ["", "", rack, ""][:begun]
        assert shown(forebay, "topics.include") == ["orders"]
        for process in serving:
            os.kill(process, signal.SIGKILL)
        assert [(line["topics"], line["rack"]) for line in forebay.until("begins", begun + 2)[begun:]] == [
            (["orders"], "")
        ] * 2


def test_told_to_stop_while_workers_are_replaced_all_drain(tmp_path: Path) -> None:
    path = tmp_path / "forebay.toml"
    with configured(path, 2) as forebay:
        path.write_text('"client.rack" = "waits"')
        forebay.signal(signal.SIGHUP)
        forebay.until("serving", 3)
        forebay.signal(signal.SIGTERM)
        assert forebay.exit_code() == 0
        forebay.rest()
        assert forebay.events().count("drained") == 3


def test_a_worker_that_is_started_again_begins_with_what_is_in_force(tmp_path: Path) -> None:
    path = tmp_path / "forebay.toml"
    with configured(path, 2) as forebay:
        path.write_text('"topics.include" = "later"')
        reload(forebay, RELOADED)
        forebay.until("committed", 2)
        forebay.say("die")
        forebay.until("serving", 3)
        assert [line["topics"] for line in forebay.until("begins", 3)] == [["orders"], ["orders"], ["later"]]
