"""`forebay explain` against what really decides, Eligibility, and as a person uses it."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from forebay_policies.eligibility import INTERNAL_TOPICS, Eligibility, Observed, Reason
from forebay_proxy.commands import cli
from forebay_proxy.commands.explain import decisions
from tests.kit.ports import free_port

NAMES = st.one_of(st.sampled_from(sorted(INTERNAL_TOPICS)), st.text("ab-.*?[!]", max_size=5))
PATTERNS = st.lists(st.text("ab-.*?[!]", min_size=1, max_size=4), max_size=3).map(tuple)
NOTHING_OBSERVED = {"moves": "on", "topics.move": (), "topics.observe": (), "client.ids.observe": ()}
EVERYTHING = {"topics.include": ("*",), "topics.exclude": (), "client.ids.include": ("*",), "client.ids.exclude": ()}


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.startswith("FOREBAY_"):
            monkeypatch.delenv(variable)


def explained(*arguments: str) -> Result:
    where = ("--bootstrap-servers", "broker:9092", "--listen", "127.0.0.1:19092")
    return CliRunner().invoke(cli.main, ("explain", *where, *arguments))


@given(NAMES, NAMES, PATTERNS, PATTERNS, PATTERNS, PATTERNS)
def test_it_says_what_forebay_does(
    client_id: str,
    topic: str,
    topics: tuple[str, ...],
    not_topics: tuple[str, ...],
    clients: tuple[str, ...],
    not_clients: tuple[str, ...],
) -> None:
    values = {
        "topics.include": topics,
        "topics.exclude": not_topics,
        "client.ids.include": clients,
        "client.ids.exclude": not_clients,
        **NOTHING_OBSERVED,
    }
    judge = Eligibility(topics, not_topics, clients, not_clients)
    client, of_topic = decisions(values, client_id, topic)
    assert client.reason == judge.client(client_id)
    assert of_topic.reason == judge.topic(topic, internal=False)
    for decision in (client, of_topic):
        if decision.pattern is not None:
            alone = Eligibility((), (), (decision.pattern,), ())
            assert alone.client(decision.name) is None, "the pattern that it names matches"


@given(NAMES, NAMES, st.sampled_from(["on", "observe"]), PATTERNS, PATTERNS, PATTERNS)
def test_it_says_what_forebay_observes(
    client_id: str,
    topic: str,
    moves: str,
    move: tuple[str, ...],
    topics: tuple[str, ...],
    clients: tuple[str, ...],
) -> None:
    of = {"moves": moves, "topics.move": move, "topics.observe": topics, "client.ids.observe": clients}
    observed = Observed(moves=moves == "on", topics_move=move, topics=topics, client_ids=clients)
    found = decisions({**EVERYTHING, **of}, client_id, topic)
    assert any(decision.reason is Reason.OBSERVED for decision in found) == observed.has(client_id, topic)


def test_a_topic_that_is_touched() -> None:
    result = explained("--topic", "orders", "--client-id", "php-7")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[:2] == [
        "client id php-7: client.ids.include has *",
        "topic orders: topics.include has *",
    ]
    assert "Forebay may touch them" in result.output


def test_a_client_without_an_id_is_asked_about_too() -> None:
    result = explained("--topic", "orders", "--client-id", "", "--set", "client.ids.include=till-*")
    assert result.output.splitlines()[0] == "client id (none): client.ids.include has no pattern that matches"


def test_the_pattern_that_decides_is_named() -> None:
    result = explained("--topic", "orders.eu", "--set", "topics.exclude=billing-*,orders.*")
    assert "topic orders.eu: topics.exclude has orders.*" in result.output
    assert result.output.splitlines()[-1] == "Forebay passes them untouched (topic_excluded)."
    only = explained("--topic", "orders", "--set", "topics.include=billing")
    assert "topic orders: topics.include has no pattern that matches" in only.output


def test_why_records_are_only_observed() -> None:
    whole = explained("--topic", "orders", "--client-id", "till-7", "--set", "moves=observe")
    assert whole.output.splitlines()[2:] == [
        "topic orders: moves is observe",
        "Forebay passes them untouched (observed), and measures what it would do with them.",
    ]
    part = explained("--topic", "orders", "--client-id", "till-7", "--set", "client.ids.observe=till-*")
    assert "client id till-7: client.ids.observe has till-*" in part.output
    rest = explained("--topic", "orders", "--set", "moves=observe", "--set", "topics.move=orders")
    assert "topic orders: topics.move has orders" in rest.output
    assert "Forebay may touch them" in rest.output
    excluded = explained("--topic", "orders", "--set", "moves=observe", "--set", "topics.exclude=orders")
    assert excluded.output.splitlines()[-1] == "Forebay passes them untouched (topic_excluded)."


def test_nobody_to_ask_is_one_line() -> None:
    result = explained("--topic", "orders", "--url", f"http://127.0.0.1:{free_port()}")
    assert (result.exit_code, len(result.output.splitlines())) == (1, 1)
    assert result.output.startswith("forebay: http://127.0.0.1:")


def test_json() -> None:
    (found,) = json.loads(explained("--topic", "__consumer_offsets", "--format", "json").stdout)
    assert found == {
        "what": "topic",
        "name": "__consumer_offsets",
        "reason": "internal_topic",
        "setting": None,
        "pattern": None,
    }


def test_it_needs_no_addresses() -> None:
    assert CliRunner().invoke(cli.main, ("explain", "--topic", "orders")).exit_code == 0
