"""Examples in the documents are what Forebay takes: settings are read as a file, commands and their options are parsed.

What the examples print, and what comes of it, is shown by the tests of each part.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from forebay_pipeline import cli as pipeline_cli
from forebay_policies.builtin_partitioners import BUILT_IN
from forebay_proxy.commands import cli as proxy_cli
from forebay_proxy.config.sources import Sources, load
from tests.kit.certificates import Authority
from tests.kit.paths import ROOT
from tests.kit.ports import LOOPBACK

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
FOLDERS = re.compile(r"/(?:etc|run|var/lib)/(?=\w)")
REFERENCE = re.compile(r"\$\{(file|dir):([^:}]+):([^}]+)\}")
COMMANDS: dict[str, click.Group] = {"forebay": proxy_cli.main, "forebay-pipeline": pipeline_cli.main}
SECRET_OF = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}


def named(document: Path, number: int) -> str:
    return f"{document.name}-{number}"


def settings_examples() -> Iterator[object]:
    for document in DOCUMENTS:
        before = ""
        for number, (language, text) in enumerate(BLOCK.findall(document.read_text())):
            if language == "toml" and "[project" not in text:
                goes_on = '"listener.name.' in text and '"listeners"' not in text  # with the listeners above
                before = before + text if goes_on else text
                yield pytest.param(before, id=named(document, number))


def command_lines(text: str) -> Iterator[str]:
    """`forebay …` and `forebay-pipeline …`, as they are to be typed."""
    for block in (*(code for _, code in BLOCK.findall(text)), *INDENTED.findall(BLOCK.sub("", text))):
        for line in block.replace("\\\n", " ").splitlines():
            typed = line.strip().removeprefix("$ ")
            if typed.partition(" ")[0] in COMMANDS:
                yield typed


def command_examples() -> Iterator[object]:
    for document in DOCUMENTS:
        for number, line in enumerate(command_lines(document.read_text())):
            yield pytest.param(line, id=named(document, number))


def make_files(text: str, folder: Path) -> None:
    """What the settings refer to: PEM files, and files and folders of secrets."""
    store = Authority(folder).issue("forebay", LOOPBACK).read_text()
    mechanism = re.search(r'"sasl\.mechanism" = "(.*)"', text)
    module = SECRET_OF[mechanism[1] if mechanism else "PLAIN"]
    login = f'org.apache.kafka.common.security.{module} required username="USER" password="PASSWORD";'
    users = "org.apache.kafka.common.security.plain.PlainLoginModule required user_A='1' user_B='2';"
    secrets = {"sasl.jaas.config": login, "plain.sasl.jaas.config": users, "user.crt": store, "user.key": store}
    for kind, place, key in REFERENCE.findall(text):
        secret = secrets.get(key, "a-secret")
        path = Path(place) / key if kind == "dir" else Path(place)
        write(path, secret if kind == "dir" else f"{key}={secret}\n")
    for path in map(Path, re.findall(r'"([^"]+\.(?:pem|crt))"', text)):
        write(path, store)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)


@pytest.mark.parametrize("text", list(settings_examples()))
def test_settings_are_taken(text: str, tmp_path: Path) -> None:
    text = FOLDERS.sub(f"{tmp_path}/there/", text)
    make_files(text, tmp_path)
    path = tmp_path / "forebay.toml"
    path.write_text(text)
    loaded = load(Sources(config=str(path)), BUILT_IN, complete=False)
    assert str(path) in loaded.origins.values()


@pytest.mark.parametrize("line", list(command_examples()))
def test_commands_are_taken(line: str) -> None:
    words: list[str] = []
    for word in shlex.split(line, comments=True):
        if word != "…":
            words.append(word)
        elif words[-1].startswith("--"):
            words.append("HERE:9092")
    name, *given = words
    parse(COMMANDS[name], name, given)


def parse(group: click.Group, name: str, given: list[str]) -> None:
    """As click does before it runs a command. Raises click.UsageError."""
    context = click.Context(group, info_name=name)
    subname, subcommand, rest = group.resolve_command(context, given)
    assert subcommand is not None
    assert subname is not None
    subcommand.make_context(subname, rest, parent=context)


@pytest.mark.parametrize(
    "line", ["forebay run --lisen 1.2.3.4:9092", "forebay rum", "forebay-pipeline audit --journal x y"]
)
def test_what_is_not_taken_is_found(line: str) -> None:
    with pytest.raises(click.UsageError):
        test_commands_are_taken(line)
