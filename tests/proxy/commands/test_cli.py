"""The command line, as a person uses it. What `run` does once it runs is in test_supervisor.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from forebay_policies.own_choices import TopicChoices
from forebay_proxy import __version__
from forebay_proxy.commands import cli, clients
from forebay_proxy.config.settings import Settings
from forebay_proxy.console.api import Told
from forebay_proxy.errors import StartError
from forebay_proxy.metrics import clients_seen
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.process import supervisor
from forebay_proxy.process.reloading import Load
from tests.kit.ports import free_port

NEEDED = ("--bootstrap-servers", "broker:9092", "--listen", "0.0.0.0:19092")


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.startswith("FOREBAY_"):
            monkeypatch.delenv(variable)


def forebay(*arguments: str, environ: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(cli.main, arguments, env=environ)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """`run` only notes its settings here, and ends with 7."""
    noted: list[Settings] = []

    def run(settings: Settings, told: Told, load: Load) -> int:
        noted.append(settings)
        return 7

    monkeypatch.setattr(supervisor, "run", run)
    return noted


class TestReload:
    """What the command gives to who reloads: all sources, read again."""

    def test_the_file_is_read_again_below_the_command_line(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        loads: list[Load] = []

        def run(settings: Settings, told: Told, load: Load) -> int:
            loads.append(load)
            return 7

        monkeypatch.setattr(supervisor, "run", run)
        path = tmp_path / "forebay.toml"
        path.write_text('"topics.include" = "first"')
        forebay("run", *NEEDED, "--config", str(path), "--set", "topics.exclude=always")
        path.write_text('"topics.include" = "second"')
        read = loads[0]()
        assert (read.settings.topics_include, read.settings.topics_exclude) == (("second",), ("always",))
        assert {row["name"]: row["value"] for row in read.told.config}["topics.include"] == ["second"]
        path.write_text('"topics.includ" = "third"')
        with pytest.raises(StartError, match=r"did you mean topics\.include"):
            loads[0]()


class TestRun:
    def test_flags_assignments_variables_and_file_come_together(self, ran: list[Settings], tmp_path: Path) -> None:
        path = tmp_path / "forebay.toml"
        path.write_text('"linger.ms" = 1\n"batch.size" = 8192\n"retry.backoff.ms" = 9\n')
        more = (
            "--admin",
            "127.0.0.1:9100",
            "--workers",
            "2",
            "--advertised-host",
            "kafka",
            "--set",
            "linger.ms=5",
        )
        result = forebay("run", "--config", str(path), *NEEDED, *more, environ={"FOREBAY_BATCH_SIZE": "12288"})
        assert result.exit_code == 7, result.output
        (settings,) = ran
        assert (settings.linger_ms, settings.batch_size, settings.retry_backoff_ms) == (5, 12288, 9)
        assert (str(settings.admin), settings.workers, settings.advertised_host) == (
            "127.0.0.1:9100",
            2,
            "kafka",
        )

    def test_everything_can_stand_in_the_file(self, ran: list[Settings], tmp_path: Path) -> None:
        path = tmp_path / "forebay.toml"
        path.write_text('listen = "0.0.0.0:19092"\nworkers = 3\n[bootstrap]\nservers = ["a:1", "b:2"]\n')
        assert forebay("run", environ={"FOREBAY_CONFIG": str(path)}).exit_code == 7
        assert (str(ran[0].listen), ran[0].workers, len(ran[0].bootstrap_servers)) == ("0.0.0.0:19092", 3, 2)

    def test_wrong_settings_stop_the_start_with_2_and_all_problems(self, ran: list[Settings]) -> None:
        result = forebay("run", "--listen", "h", "--set", "lingr.ms=5", environ={"FOREBAY_WORKERS": "none"})
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.splitlines() == [
            "forebay: 4 problems with the settings",
            "  lingr.ms (--set): unknown setting; did you mean linger.ms (a whole number from -1 to 60000, in "
            "milliseconds)?",
            "  bootstrap.servers: is required (host:port with a port from 1 to 65535; several are separated by commas)"
            "; set it with --bootstrap-servers, with FOREBAY_BOOTSTRAP_SERVERS or in the --config file",
            "  listen = h (--listen): must be host:port with a port from 1 to 65535, or empty",
            "  workers = none (FOREBAY_WORKERS): must be a whole number from 1 to 64",
        ]
        assert ran == []

    @pytest.mark.parametrize("command", ["run", "check"])
    @pytest.mark.parametrize(
        ("arguments", "environ", "origin"),
        [
            (["--listen", ""], {}, "--listen"),
            ([], {"FOREBAY_LISTEN": ""}, "FOREBAY_LISTEN"),
            (["--set", "listeners="], {}, "--set"),
        ],
    )
    def test_no_listener_at_all_is_a_problem_with_the_settings(
        self, ran: list[Settings], command: str, arguments: list[str], environ: dict[str, str], origin: str
    ) -> None:
        result = forebay(command, "--bootstrap-servers", "127.0.0.1:1", *arguments, environ=environ)
        assert (result.exit_code, ran) == (2, [])
        assert result.stderr.splitlines() == [
            "forebay: 1 problem with the settings",
            f"  listen ({origin}): is required (host:port that clients connect to), unless listeners names one; set it "
            "with --listen, with FOREBAY_LISTEN or in the --config file",
        ]

    def test_what_a_person_must_mend_is_one_line_and_1(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(settings: Settings, told: Told, load: Load) -> int:
            raise StartError("listen = 0.0.0.0:19092: address already in use")

        monkeypatch.setattr(supervisor, "run", fail)
        result = forebay("run", *NEEDED)
        assert (result.exit_code, result.stderr) == (
            1,
            "forebay: listen = 0.0.0.0:19092: address already in use\n",
        )

    def test_an_unknown_flag_is_2(self) -> None:
        assert forebay("run", "--lingr", "5").exit_code == 2


class TestProgram:
    @pytest.mark.parametrize(
        "command", [["-m", "forebay_proxy.commands.cli"], ["-c", "from forebay_proxy.commands.cli import main; main()"]]
    )
    def test_it_runs_as_a_module_and_by_its_entry_point(self, command: list[str]) -> None:
        result = subprocess.run(
            [sys.executable, *command, "--version"], capture_output=True, text=True, timeout=30, check=True
        )
        assert result.stdout == f"forebay {__version__}\n"

    def test_wrong_settings_show_no_traceback(self) -> None:
        command = [sys.executable, "-m", "forebay_proxy.commands.cli", "run", "--set", "workers=0"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert result.returncode == 2
        assert "Traceback" not in result.stderr
        assert "workers = 0 (--set): must be a whole number from 1 to 64" in result.stderr

    def test_help_names_the_commands(self) -> None:
        output = forebay("--help").output
        for command in ("run", "config", "demo"):
            assert f"\n  {command} " in output


class TestClients:
    @pytest.fixture
    def rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        old = SeenClient("till-7", "10.0.0.1", None, None, 1, 20, 1234.5, 1.0, {0 << 16 | 1: 9, 3 << 16: 2})
        new = SeenClient("shop", "10.0.0.2", "librdkafka", "2.3", 2, 7, 0.5, 2.0, {0 << 16 | 9: 1, 0 << 16 | 7: 1})
        monkeypatch.setattr(clients, "fetch", lambda _: clients.Known(clients_seen.rows([new, old]), full=False))

    @pytest.mark.usefixtures("rows")
    def test_a_line_a_client_who_is_too_old_first(self) -> None:
        told = forebay("clients", "--url", "http://127.0.0.1:1")
        assert told.exit_code == 0
        lines = [" ".join(line.split()) for line in told.output.splitlines() if line.strip()]
        assert lines[2:] == [
            "till-7 ? 10.0.0.1 1 1,234.5 1970-01-01 00:00:01Z Produce v1, Metadata v0 only through Forebay: Produce v1",
            "shop librdkafka 2.3 10.0.0.2 2 0.5 1970-01-01 00:00:02Z Produce v7–9 yes",
            "2 clients, 1 of them too old for Kafka 4.",
        ]

    def test_what_idempotent_clients_keep_from_being_moved_is_added_up_by_software(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = [
            ("a", "java", "3.2.3", 1_100),
            ("b", "java", "3.2.3", 200),
            ("c", None, None, 0),
            ("d", "go", None, 9_000),
        ]
        seen = [
            SeenClient(name, "10.0.0.1", software, version, idempotent_null_keys=records)
            for name, software, version, records in told
        ]
        monkeypatch.setattr(clients, "fetch", lambda _: clients.Known(clients_seen.rows(seen), full=False))
        last = forebay("clients", "--url", "http://127.0.0.1:1").output.splitlines()[-1]
        assert last.endswith("their client is idempotent, about: go 9,000, java 3.2.3 1,300.")

    def test_names_say_nothing_to_the_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        picking = {"or\x07ders": TopicChoices(12, 50, [3, 7])}
        hostile = SeenClient("\x1b[2J\x07till", "10.0.0.1", "\x1b]0;mine\x07", None, choices=picking)
        hostile.idempotent_null_keys = 7
        monkeypatch.setattr(clients, "fetch", lambda _: clients.Known(clients_seen.rows([hostile]), full=False))
        output = forebay("clients", "--url", "http://127.0.0.1:1").output
        assert r"\x1b[2J\x07till" in output
        assert r"of or\x07ders itself" in output
        assert r"about: \x1b]0;mine\x07 7." in output
        assert not {"\x1b", "\x07"} & set(output)

    def test_who_seems_to_pick_partitions_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = [SeenClient("till-7", "10.0.0.1", None, None, choices={"orders": TopicChoices(12, 50, [3, 7])})]
        monkeypatch.setattr(clients, "fetch", lambda _: clients.Known(clients_seen.rows(seen), full=False))
        last = forebay("clients", "--url", "http://127.0.0.1:1").output.splitlines()[-1]
        assert last == "till-7 (10.0.0.1) seems to pick partitions of orders itself: it uses 2 of 12."

    @pytest.mark.usefixtures("rows")
    def test_json_has_everything(self) -> None:
        told = forebay("clients", "--url", "http://127.0.0.1:1", "--format", "json")
        assert [row["client_id"] for row in json.loads(told.output)] == ["till-7", "shop"]

    @pytest.mark.parametrize(
        "words", [(), ("--url", "http://a:1", "--bootstrap-servers", "a:1"), ("--url", "http://a:1", "--socket", "s")]
    )
    def test_one_of_three_ways_is_wanted(self, words: tuple[str, ...]) -> None:
        told = forebay("clients", *words)
        assert (told.exit_code, "--bootstrap-servers, --url and --socket" in told.output) == (2, True)

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (("--bootstrap-servers", "nonsense"), 2),
            (("--bootstrap-servers", f"127.0.0.1:{free_port()}"), 1),
            (("--url", f"http://127.0.0.1:{free_port()}"), 1),
            (("--url", "ftp://somewhere"), 1),
            (("--url", "http://127.0.0.1:notaport"), 1),
            (("--url", "http://["), 1),
        ],
    )
    def test_nobody_to_ask_is_one_line(self, words: tuple[str, ...], code: int) -> None:
        told = forebay("clients", *words)
        assert told.exit_code == code
        assert isinstance(told.exception, SystemExit)
        assert told.output.startswith("forebay: ") or code == 2


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_each_shell_gets_a_script_of_its_own(self, shell: str) -> None:
        result = forebay("completion", shell)
        assert result.exit_code == 0
        assert f"_FOREBAY_COMPLETE={shell}_complete" in result.stdout

    def test_what_the_script_asks_for_is_answered(self) -> None:
        asked = {"_FOREBAY_COMPLETE": "bash_complete", "COMP_WORDS": "forebay ch", "COMP_CWORD": "1"}
        command = [sys.executable, "-c", "from forebay_proxy.commands.cli import main; main(prog_name='forebay')"]
        done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, timeout=60)
        assert done.stdout.split() == ["plain,check"]

    def test_another_shell_is_refused(self) -> None:
        assert forebay("completion", "csh").exit_code == 2
