"""Which batches may be touched, and the reasons."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_policies import eligibility
from forebay_policies.eligibility import Eligibility, Observed, Reason, header_reason, key_reason


def make(
    topics_include: tuple[str, ...] = ("*",),
    topics_exclude: tuple[str, ...] = (),
    client_ids_include: tuple[str, ...] = ("*",),
    client_ids_exclude: tuple[str, ...] = (),
) -> Eligibility:
    return Eligibility(topics_include, topics_exclude, client_ids_include, client_ids_exclude)


# clients


def test_software_that_chooses_partitions_itself_can_be_excluded() -> None:
    rules = make(client_ids_exclude=("connector-producer-*", "*-StreamThread-*"))

    assert rules.client("connector-producer-jdbc-0") is Reason.CLIENT_EXCLUDED
    assert rules.client("app-1f-StreamThread-1-producer") is Reason.CLIENT_EXCLUDED
    assert rules.client("producer-1") is None
    assert rules.client("my-connector-producer-1") is None


def test_a_client_without_an_id_has_the_empty_one() -> None:
    assert make().client(None) is None
    assert make(client_ids_include=("?*",)).client(None) is Reason.CLIENT_EXCLUDED
    assert make(client_ids_exclude=("",)).client(None) is Reason.CLIENT_EXCLUDED
    assert make(client_ids_exclude=("",)).client("a") is None


# topics


def test_exclude_wins_over_include() -> None:
    rules = make(topics_include=("orders", "audit.*"), topics_exclude=("audit.raw*",))

    assert rules.topic("orders", internal=False) is None
    assert rules.topic("audit.clean", internal=False) is None
    assert rules.topic("audit.raw", internal=False) is Reason.TOPIC_EXCLUDED
    assert rules.topic("payments", internal=False) is Reason.TOPIC_EXCLUDED


def test_nothing_included_means_nothing_is_touched() -> None:
    assert make(topics_include=()).topic("orders", internal=False) is Reason.TOPIC_EXCLUDED


def test_patterns_are_case_sensitive_and_cover_the_whole_name() -> None:
    rules = make(topics_include=("Orders.[a-c]?",))

    assert rules.topic("Orders.b1", internal=False) is None
    for name in ["orders.b1", "Orders.d1", "Orders.b", "Orders.b12", "x.Orders.b1", "Orders.b1\n"]:
        assert rules.topic(name, internal=False) is Reason.TOPIC_EXCLUDED


@pytest.mark.parametrize(
    "name", ["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"]
)
def test_internal_topics_are_never_touched(name: str) -> None:
    assert make(topics_include=("*", name)).topic(name, internal=False) is Reason.INTERNAL_TOPIC


def test_a_topic_that_the_broker_calls_internal_is_never_touched() -> None:
    rules = make()
    assert rules.topic("own-internal", internal=True) is Reason.INTERNAL_TOPIC
    assert rules.topic("own-internal", internal=False) is None


# what is only observed


@pytest.mark.parametrize(
    ("told", "orders", "clicks"),
    [
        ({}, False, False),
        ({"moves": False}, True, True),
        ({"moves": False, "topics_move": ("order?",)}, False, True),
        ({"moves": False, "topics_move": ("order?",), "topics": ("*s",)}, True, True),
        ({"topics": ("click*",)}, False, True),
        ({"topics": ("click*",), "topics_move": ("clicks",)}, False, True),
        ({"client_ids": ("till-*",)}, True, True),
        ({"client_ids": ("php-*",)}, False, False),
        ({"moves": False, "topics_move": ("*",), "client_ids": ("till-*",)}, True, True),
    ],
)
def test_what_is_observed(told: dict[str, Any], orders: bool, clicks: bool) -> None:
    observed = Observed(**told)
    assert (observed.has("till-7", "orders"), observed.has("till-7", "clicks")) == (orders, clicks)
    assert observed.any == (told != {})


def test_a_client_without_an_id_is_observed_as_the_empty_one() -> None:
    assert Observed(client_ids=("",)).has(None, "orders")
    assert not Observed(client_ids=("?*",)).has(None, "orders")


def test_where_nothing_is_observed_nobody_need_ask() -> None:
    assert make().observed is None
    assert Eligibility(("*",), (), ("*",), (), Observed(topics_move=("orders",))).observed is None
    assert Eligibility(("*",), (), ("*",), (), Observed(moves=False)).observed is not None


# the memo


def test_answers_do_not_depend_on_the_memo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eligibility, "MEMO_ENTRIES", 3)
    rules = make(client_ids_include=("a*",), client_ids_exclude=("ab*",))
    asked = ["a", "ab", "b", "a1", "a", "ab", "ab2", "b", "a"] * 2

    expected = [None if c.startswith("a") and not c.startswith("ab") else Reason.CLIENT_EXCLUDED for c in asked]
    assert [rules.client(client_id) for client_id in asked] == expected


def test_the_memo_is_bounded_in_entries_and_in_their_size() -> None:
    patterns = eligibility._Patterns(["*"], ["x*"])
    for n in range(3 * eligibility.MEMO_ENTRIES):
        patterns.admit(f"client-{n}")
        patterns.admit("y" * (eligibility.MEMO_TEXT + 1 + n % 7))

    assert 0 < len(patterns._memo) <= eligibility.MEMO_ENTRIES
    assert max(len(text) for text in patterns._memo) <= eligibility.MEMO_TEXT


@given(
    st.lists(st.text("ab*?[]!-", max_size=5), max_size=3),
    st.lists(st.text("ab*?[]!-", max_size=5), max_size=3),
    st.lists(st.text("ab", max_size=5), min_size=1, max_size=10),
)
def test_patterns_mean_what_fnmatch_means(include: list[str], exclude: list[str], names: list[str]) -> None:
    rules = Eligibility(include, exclude, ["*"], [])
    for name in names + names:
        included = any(fnmatch.fnmatchcase(name, pattern) for pattern in include)
        excluded = any(fnmatch.fnmatchcase(name, pattern) for pattern in exclude)
        assert (rules.topic(name, internal=False) is None) is (included and not excluded)


# batches

NONE, GZIP, ZSTD = 0, 1, 4


@pytest.mark.parametrize(
    ("producer_id", "attributes", "null_keys", "keyed", "reason"),
    [
        (-1, NONE, 5, 0, Reason.NULL_KEY),
        (-1, GZIP, 0, 5, Reason.KEYED),
        (-1, ZSTD, 2, 3, Reason.MIXED),
        (0, NONE, 5, 0, Reason.IDEMPOTENT),
        (4711, GZIP, 0, 5, Reason.IDEMPOTENT),
        (4711, 0x10, 5, 0, Reason.TRANSACTIONAL),
        (-1, 0x10, 5, 0, Reason.TRANSACTIONAL),
        (-1, 5, 5, 0, Reason.UNKNOWN_ATTRIBUTES),  # a codec of the future
        (-1, 7, 5, 0, Reason.UNKNOWN_ATTRIBUTES),
        (-1, 0x08, 5, 0, Reason.UNKNOWN_ATTRIBUTES),  # log append time: the broker's to set
        (-1, 0x20, 5, 0, Reason.UNKNOWN_ATTRIBUTES),  # control
        (-1, 0x40, 5, 0, Reason.UNKNOWN_ATTRIBUTES),  # delete horizon
        (-1, 0x80, 0, 5, Reason.UNKNOWN_ATTRIBUTES),
        (-1, -0x8000, 5, 0, Reason.UNKNOWN_ATTRIBUTES),  # the sign bit of an int16
    ],
)
def test_batch_reason(producer_id: int, attributes: int, null_keys: int, keyed: int, reason: Reason) -> None:
    assert (header_reason(producer_id, attributes) or key_reason(null_keys, keyed)) is reason


def test_every_codec_that_kafka_has_may_be_touched() -> None:
    assert [header_reason(-1, codec) for codec in range(5)] == [None] * 5


@given(st.integers(-1, 2**40), st.integers(-(2**15), 2**15 - 1), st.integers(0, 9), st.integers(0, 9))
def test_only_plain_batches_are_touched(producer_id: int, attributes: int, null_keys: int, keyed: int) -> None:
    reason = header_reason(producer_id, attributes) or key_reason(null_keys, keyed)
    plain = producer_id == -1 and 0 <= attributes <= 4
    assert (header_reason(producer_id, attributes) is None) is plain
    if plain:
        assert reason is key_reason(null_keys, keyed)


def test_the_values_of_the_reasons_are_stable() -> None:
    """They stand in metrics and in journals already written."""
    assert {reason.value for reason in Reason} == {
        "empty",
        "transactional",
        "idempotent",
        "topic_excluded",
        "client_excluded",
        "own_login",
        "internal_topic",
        "unknown_attributes",
        "no_metadata",
        "settings_changed",
        "observed",
        "null_key",
        "keyed",
        "mixed",
        "corrupt",
        "invalid",
        "too_large",
    }
    assert all(reason.value == reason.name.lower() for reason in Reason)
