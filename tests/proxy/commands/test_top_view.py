"""What `forebay top` shows, of a running Forebay's own API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from forebay_proxy.commands.admin_endpoint import AdminEndpoint, AdminError, by_url
from forebay_proxy.commands.cli import main
from forebay_proxy.commands.command_config import read
from forebay_proxy.commands.top_view import KINDS, as_text, attention, cells, look, sentence
from tests.kit.event_loop import in_loop
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.synthetic_console import SyntheticConsole
from tests.proxy.console.seen import Seen
from tests.proxy.console.served import served

HOSTILE = "\x1b[2J\x07till"
"""Clears the screen of whoever prints it, and rings."""
SORTS = {kind: each.sort for kind, each in KINDS.items()}


@pytest.fixture(scope="module")
def console() -> Iterator[SyntheticConsole]:
    with SyntheticConsole(topics=12, partitions=6, clients=4, past=15, names=(HOSTILE, "[bold]x[/bold]")) as console:
        yield console


def endpoint_of(url: str) -> AdminEndpoint:
    return by_url(url, read(None))


def test_the_sentence_is_the_pages(console: SyntheticConsole) -> None:
    now = look(endpoint_of(console.url), {})
    told = now.overview
    assert sentence(now).startswith(f"3 of 3 brokers, {told['clients']['connected']} clients, ")
    assert " k records/s in, " in sentence(now)
    assert sentence(now).endswith("; 1 client too old for Kafka 4.")
    assert attention(now) == [("warning", "1 client too old for Kafka 4")]
    told["clients"]["full"] = True
    assert f" {told['clients']['connected']} clients or more, " in sentence(now)


def test_rows_are_those_of_the_api_in_the_order_asked_for(console: SyntheticConsole) -> None:
    now = look(endpoint_of(console.url), SORTS, rows=5)
    assert [row["node"] for row in now.rows["brokers"]] == [1, 2, 3]
    rates = [row["records"] for row in now.rows["topics"]]
    assert len(rates) == 5
    assert rates == sorted(rates, reverse=True)
    assert now.found["topics"] == 12
    for kind, rows in now.rows.items():
        for row in rows:
            assert len(cells(kind, row)) == len(KINDS[kind].columns)


def test_every_column_that_sorts_is_one_that_the_api_sorts_by(console: SyntheticConsole) -> None:
    endpoint = endpoint_of(console.url)
    for kind, each in KINDS.items():
        for column in each.columns:
            if column.key:
                assert kind in look(endpoint, {kind: f"-{column.key}"}, rows=1).rows


def test_only_what_has_the_words_in_its_name(console: SyntheticConsole) -> None:
    now = look(endpoint_of(console.url), SORTS, "till-000")
    assert {row["client_id"] for row in now.rows["clients"]} == {f"till-000{number}" for number in range(4)}
    assert now.rows["topics"] == []


def test_names_say_nothing_to_the_terminal(console: SyntheticConsole) -> None:
    text = as_text(look(endpoint_of(console.url), SORTS), None)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert r"\x1b[2J\x07till" in text
    assert "[bold]x[/bold]" in text


def test_once_is_text_that_a_program_can_read(console: SyntheticConsole) -> None:
    done = CliRunner().invoke(main, ["top", "--url", console.url, "--once"])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("3 of 3 brokers")
    assert lines[1] == "warning: 1 client too old for Kafka 4"
    assert "… and 2 more topics" in lines
    assert sum(line.lstrip().startswith("till-000") for line in lines) == 4


@in_loop
async def test_a_forebay_that_has_just_started() -> None:
    async with served(Seen()) as forebay:
        now = await asyncio.to_thread(look, endpoint_of(forebay.url), SORTS)
        assert sentence(now) == "0 of 0 brokers, 0 clients."
        assert as_text(now, 80).endswith("No clients.")


@in_loop
@pytest.mark.parametrize("command", [["top", "--once"], ["clients"], ["explain", "--topic", "orders"]], ids="-".join)
async def test_by_the_socket(command: list[str], tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    async with served(Seen(), admin_socket=path):
        done = await asyncio.to_thread(CliRunner().invoke, main, [*command, "--socket", path])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout


@in_loop
async def test_by_the_socket_that_a_variable_names_unless_another_way_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    here = {"FOREBAY_ADMIN_SOCKET": path}
    async with served(Seen(), admin_socket=path):
        done = await asyncio.to_thread(CliRunner(env=here).invoke, main, ["top", "--once"])
        assert done.stdout.startswith("0 of 0 brokers")
        elsewhere = ["top", "--once", "--url", f"http://{LOOPBACK}:{free_port()}"]
        done = await asyncio.to_thread(CliRunner(env=here).invoke, main, elsewhere)
        assert (done.exit_code, done.stdout) == (1, "")


def test_nobody_behind_a_socket_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["clients", "--socket", str(tmp_path / "s")])
    assert (done.exit_code, done.stderr) == (1, f"forebay: {tmp_path / 's'}: No such file or directory\n")


def test_nobody_to_ask_is_one_line() -> None:
    url = f"http://{LOOPBACK}:{free_port()}"
    with pytest.raises(AdminError, match="Connection refused"):
        look(endpoint_of(url), SORTS)
    done = CliRunner().invoke(main, ["top", "--url", url, "--once"])
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("url", ["ftp://host:1", "http://", "http://host:99999"])
def test_what_is_no_address_is_one_line(url: str) -> None:
    with pytest.raises(AdminError, match=url.removesuffix("99999")):
        endpoint_of(url)


def test_what_needs_attention_speaks_to_no_terminal(console: SyntheticConsole) -> None:
    now = look(endpoint_of(console.url), {})
    told = {**now.overview, "problems": [{"severity": "warning", "text": f"{HOSTILE} is too old"}]}
    text = as_text(now._replace(overview=told), None)
    assert "warning: \\x1b[2J\\x07till is too old" in text
    assert "\x1b" not in text
