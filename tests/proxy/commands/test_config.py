"""`forebay config`: a list that fits, a table where it is wide, JSON, and one setting in full."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shlex
import struct
import subprocess
import sys
import termios
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from forebay_proxy.commands import cli
from forebay_proxy.commands.config import FLAGS
from forebay_proxy.config.providers import resolve
from forebay_proxy.config.reference import LISTENER_REFERENCES, LISTENER_TOPIC, REFERENCES, TOPICS
from forebay_proxy.config.settings import ALIASES
from forebay_proxy.config.sources import Sources, load
from forebay_proxy.config.values import LISTENER_SETTINGS, SETTINGS
from forebay_proxy.produce.partitioner_plugins import known_partitioners

WIDTHS = (80, 100, 160)
COMMAND = (sys.executable, "-m", "forebay_proxy.commands.cli", "config")


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.startswith("FOREBAY_"):
            monkeypatch.delenv(variable)


def config(*arguments: str, width: int = 100, environ: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(cli.main, ("config", *arguments), env={"COLUMNS": str(width), **(environ or {})})


def on_a_terminal(width: int, *arguments: str) -> list[str]:
    """What is printed on a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen((*COMMAND, *arguments), stdin=subprocess.DEVNULL, stdout=theirs, env=environ) as process:
        os.close(theirs)
        said = b""
        try:
            while data := os.read(ours, 1 << 16):
                said += data
        except OSError:  # Linux ends a terminal with EIO
            pass
        os.close(ours)
    assert process.returncode == 0
    return said.decode().splitlines()


def longest(lines: list[str]) -> int:
    return max(map(len, lines))


REFERRED_TO = {"KAFKA": "what an example refers to"}
NEEDED = {
    "admin.ssl.truststore.location": ("admin.ssl.keystore.location=/a.pem",),
    "journal.ledger": ("journal.dir=journal",),
    "journal.ledger.keys": ("journal.dir=journal", "journal.ledger=true"),
    "listeners": ("listener.name.ssl.ssl.keystore.location=/k.pem",),
    "ssl.keystore.key": ("ssl.keystore.certificate.chain=a",),
    "ssl.keystore.certificate.chain": ("ssl.keystore.key=${env:KAFKA}",),
}
"""What a setting's example contradicts without."""


class TestWidth:
    @pytest.mark.parametrize("width", WIDTHS)
    def test_no_line_is_longer_than_the_terminal(self, width: int) -> None:
        lines = on_a_terminal(width)
        assert longest(lines) <= width
        assert any("linger.ms" in line for line in lines)

    @pytest.mark.parametrize("width", WIDTHS)
    def test_without_a_terminal_columns_counts(self, width: int) -> None:
        assert longest(config(width=width).output.splitlines()) <= width

    def test_without_either_lines_fit_100(self) -> None:
        environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        done = subprocess.run(COMMAND, capture_output=True, text=True, env=environ, timeout=60, check=True)
        assert 80 < longest(done.stdout.splitlines()) <= 100

    @pytest.mark.parametrize("width", [40, *WIDTHS])
    @pytest.mark.parametrize("name", ["client.ids.exclude", "queued.max.request.bytes"])
    def test_an_explanation_fits(self, name: str, width: int) -> None:
        assert longest(config(name, width=width).output.splitlines()) <= width

    def test_a_narrow_terminal_has_a_list_and_a_wide_one_a_table(self) -> None:
        for width, wide in ((139, False), (140, True)):
            assert (" what it does" in config(width=width).output) is wide

    @pytest.mark.parametrize(("form", "wide"), [("list", False), ("table", True)])
    def test_the_form_can_be_chosen(self, form: str, wide: bool) -> None:
        for width in (80, 160):
            assert (" what it does" in config("--format", form, width=width).output) is wide

    def test_a_terminal_of_few_columns_is_treated_as_one_of_40(self) -> None:
        assert config("linger.ms", width=10).output == config("linger.ms", width=40).output

    def test_a_chosen_table_is_folded_on_a_terminal_only(self) -> None:
        assert longest(on_a_terminal(80, "--format", "table")) <= 80
        assert longest(config("--format", "table", width=80).output.splitlines()) > 200


class TestList:
    def test_every_setting_stands_under_its_topic_with_its_value_and_description(self) -> None:
        lines = config("--format", "list", width=200).output.splitlines()
        topic = ""
        found: dict[str, list[str]] = {}
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            if line and not line.startswith(" "):
                topic = line
            elif line.startswith("  ") and not line.startswith("   "):
                name = line.split()[0]
                found.setdefault(topic, []).append(name)
                setting = SETTINGS.get(name) or LISTENER_SETTINGS[name.removeprefix("listener.name.<name>.")]
                assert following == f"      {setting.description}"
        of_listeners = {LISTENER_TOPIC: [f"listener.name.<name>.{name}" for name in LISTENER_SETTINGS]}
        assert found == {topic: list(settings) for topic, settings in TOPICS.items()} | of_listeners

    def test_what_differs_is_shown_with_its_origin_and_the_default(self) -> None:
        result = config("--set", "linger.ms=5", "--set", "batch.size=16384", environ={"FOREBAY_WORKERS": "2"})
        lines = [line.strip() for line in result.output.splitlines()]
        assert "linger.ms = 5 (--set; default -1)" in lines
        assert "workers = 2 (FOREBAY_WORKERS; default 1)" in lines
        assert "batch.size = 16384" in lines
        assert "journal.dir = (empty)" in lines
        assert "bootstrap.servers (required)" in lines

    def test_a_required_setting_that_is_given_is_shown(self) -> None:
        given = ("--bootstrap-servers", "h:9092")
        assert "bootstrap.servers = h:9092 (--bootstrap-servers)" in config(*given).output

    def test_a_listeners_own_settings_are_shown_for_each(self) -> None:
        told = ("listeners=SSL://h:19092", "listener.name.SSL.ssl.keystore.location=/k.pem")
        sets = [word for each in told for word in ("--set", each)]
        output = config("--format", "list", *sets, width=200).output
        assert "listener.name.ssl.ssl.keystore.location = /k.pem (--set; default (empty))" in output
        assert "listener.name.ssl.ssl.client.auth = none\n" in output
        assert "<name>" not in output


class TestTable:
    def test_the_table_has_one_line_a_setting(self) -> None:
        result = config("--format", "table")
        assert result.exit_code == 0
        lines = result.output.splitlines()
        for name, setting in SETTINGS.items():
            (line,) = [line for line in lines if line.split() and line.split()[0] == name]
            assert setting.description in line

    def test_the_table_shows_what_differs_and_where_it_comes_from(self) -> None:
        arguments = ("--format", "table", "--set", "linger.ms=5", "--set", "batch.size=16384")
        result = config(*arguments, environ={"FOREBAY_WORKERS": "2"})
        lines = {line.split()[0]: line for line in result.output.splitlines() if line.split()}
        assert "5 (--set)" in lines["linger.ms"]
        assert "2 (FOREBAY_WORKERS)" in lines["workers"]
        assert "--set" not in lines["batch.size"]
        assert "(required)" in lines["bootstrap.servers"]


class TestJson:
    def test_json_has_everything(self) -> None:
        result = config("--format", "json", "--set", "linger.ms=5", "--set", "listen=[::1]:19092")
        rows = {row["name"]: row for row in json.loads(result.output)}
        assert list(rows) == [*SETTINGS, *(f"listener.name.<name>.{name}" for name in LISTENER_SETTINGS)]
        linger = rows["linger.ms"]
        assert (linger["default"], linger["value"], linger["origin"]) == (-1, 5, "--set")
        assert (linger["allowed"], linger["required"]) == ("a whole number from -1 to 60000, in milliseconds", False)
        assert (rows["listen"]["default"], rows["listen"]["value"]) == (None, "[::1]:19092")
        assert (rows["bootstrap.servers"]["required"], rows["node.ports"]["value"]) == (True, {})
        assert rows["bootstrap.servers"]["value"] is None
        assert rows["client.ids.exclude"]["default"][0] == "connector-producer-*"

    def test_one_setting_is_one_object(self) -> None:
        told = json.loads(config("linger.ms", "--format", "json", "--set", "linger.ms=5").output)
        assert (told["name"], told["value"], told["unit"]) == ("linger.ms", 5, "milliseconds")
        assert told["variable"] == "FOREBAY_LINGER_MS"


class TestExplanation:
    def test_it_has_everything_about_a_setting(self) -> None:
        result = config("linger.ms", environ={"FOREBAY_LINGER_MS": "7"})
        assert result.exit_code == 0
        assert result.output.startswith("linger.ms\n\nHow long a batch waits for more records; -1: adaptive. Adaptive ")
        assert result.output.splitlines()[-8:] == [
            "Value         a whole number from -1 to 60000, in milliseconds",
            "Default       -1",
            "Now           7, from FOREBAY_LINGER_MS",
            "Kafka         producer setting, default 5 (0 before Kafka 4.0), no -1",
            "Changes       live: take effect on SIGHUP or forebay reload, and may be overridden",
            "Command line  --set linger.ms=5",
            "Environment   FOREBAY_LINGER_MS=5",
            'In the file   "linger.ms" = 5',
        ]

    @pytest.mark.parametrize("name", SETTINGS)
    def test_what_it_says_to_write_is_understood_in_all_three_places(self, name: str, tmp_path: Path) -> None:
        lines = config(name, width=1000).output.splitlines()
        said = {line[:12].rstrip(): line[12:].strip() for line in lines if line[:12].rstrip() in (
            "Command line", "Environment", "In the file"
        )}  # fmt: skip
        option, value = shlex.split(said["Command line"])
        flags = {option: (name, value)} if name in FLAGS else {}
        needed = NEEDED.get(name, ())
        assignments = (value, *needed) if option == "--set" else needed
        (assignment,) = shlex.split(said["Environment"])
        variable, _, text = assignment.partition("=")
        path = tmp_path / "forebay.toml"
        path.write_text(said["In the file"])
        assert list(tomllib.loads(said["In the file"])) == [name]
        ways = (
            Sources(None, REFERRED_TO, assignments, flags),
            Sources(None, {**REFERRED_TO, variable: text}, needed),
            Sources(str(path), REFERRED_TO, needed),
        )
        first, second, third = (load(way, known_partitioners(), complete=False).values[name] for way in ways)
        assert first == second == third
        reference = REFERENCES[name]
        example = resolve(reference.example, REFERRED_TO)
        assert first == (SETTINGS[name].parse(example) if example else SETTINGS[name].default)

    def test_where_the_value_comes_from(self, tmp_path: Path) -> None:
        path = tmp_path / "forebay.toml"
        path.write_text('"linger.ms" = 9\n')
        assert f"Now           9, from {path}\n" in config("linger.ms", "--config", str(path), width=1000).output
        assert "Now           the default\n" in config("linger.ms").output
        assert "Now           not set\n" in config("bootstrap.servers").output

    @pytest.mark.parametrize("end", LISTENER_SETTINGS)
    def test_a_listeners_setting_is_explained_under_its_full_name(self, end: str) -> None:
        output = config(f"listener.name.EXTERNAL.{end}", width=1000).output
        assert output.splitlines()[0] == f"listener.name.external.{end}"
        for text in (LISTENER_SETTINGS[end].description, LISTENER_REFERENCES[end].details):
            assert text in output

    @pytest.mark.parametrize("end", LISTENER_SETTINGS)
    def test_a_listeners_setting_is_explained_as_the_list_has_it(self, end: str) -> None:
        output = config(f"listener.name.<name>.{end}", width=1000).output
        assert output.splitlines()[0] == f"listener.name.<name>.{end}"
        for text in (LISTENER_SETTINGS[end].description, LISTENER_REFERENCES[end].details):
            assert text in output

    def test_what_only_listeners_have_is_explained_without_one(self) -> None:
        only = sorted(set(LISTENER_SETTINGS) - set(SETTINGS))
        assert "upstream.identity" in only
        assert [config(end).output for end in only] == [config(f"listener.name.<name>.{end}").output for end in only]
        assert json.loads(config("upstream.identity", "--format", "json").output)["value"] is None

    def test_its_value_is_told_of_each_listener(self) -> None:
        told = ("listeners=A://h:19092,B://h:19192", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT")
        sets = [word for each in (*told, "listener.name.a.producers.only=true") for word in ("--set", each)]
        output = config("producers.only", *sets, width=200).output
        assert "Now           a: true, from --set; b: the default\n" in output

    def test_installed_partitioners_are_named(self) -> None:
        assert "one of adaptive, expected_wait," in config("partitioner").output

    @pytest.mark.parametrize("alias", ALIASES)
    def test_another_name_explains_the_setting(self, alias: str) -> None:
        output = config(alias).output
        assert output.splitlines()[0] == ALIASES[alias]
        assert f"Also named    {alias}" in output

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("lingr.ms", "did you mean linger.ms?"),
            ("FOREBAY_LINGER_MS", "did you mean linger.ms"),
            ("batch_size", "did you mean batch.size"),
            ("xyzzy", "`forebay config` lists all settings"),
        ],
    )
    def test_an_unknown_name_is_2_with_what_is_close(self, name: str, hint: str) -> None:
        result = config(name)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"forebay: unknown setting {name}; {hint}")


def test_a_faulty_file_is_told_with_2(tmp_path: Path) -> None:
    path = tmp_path / "forebay.toml"
    path.write_text("linger.ms = 5\nbatch.size = oops\n")
    result = config("--config", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{path} (--config): is not valid TOML" in result.stderr
    assert "line 2" in result.stderr
