"""user_scram_credentials.py against kio."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_codecs.scram import HASHES
from forebay_codecs.user_scram_credentials import (
    Deletion,
    Upsertion,
    UserResult,
    encode_alter,
    encode_describe,
    parse_alter,
    parse_describe,
)
from tests.codecs.hardening import damaged, refuses_cuts_ignores_tails, survives
from tests.codecs.kio_oracle import CORRELATION_ID, decode_request, encode_response, entities, example, message

DESCRIBE, ALTER = "describe_user_scram_credentials", "alter_user_scram_credentials"
NUMBERS = dict(zip(HASHES, (1, 2), strict=True))
TEXT = st.text(max_size=12)
MECHANISM = st.sampled_from(list(HASHES))


@given(users=st.none() | st.lists(TEXT, max_size=3))
def test_it_asks_for_users_or_for_all(users: list[str] | None) -> None:
    frame = encode_describe(CORRELATION_ID, "forebay", users)
    _, asked = decode_request(message(DESCRIBE, 0, "DescribeUserScramCredentialsRequest"), frame)
    assert (None if asked.users is None else [user.name for user in asked.users]) == users


@given(told=entities(message(DESCRIBE, 0, "DescribeUserScramCredentialsResponse")))
def test_users_have_iterations_for_mechanisms_that_are_known(told: Any) -> None:
    read = parse_describe(encode_response(told))
    assert (read.error_code, read.error_message) == (told.error_code, told.error_message)
    names = {number: name for name, number in NUMBERS.items()}
    assert read.iterations == {
        (result.user, names[info.mechanism]): info.iterations
        for result in told.results
        for info in result.credential_infos
        if info.mechanism in names
    }


@given(
    upsertions=st.lists(
        st.builds(Upsertion, TEXT, MECHANISM, st.integers(0, 2**31 - 1), st.binary(), st.binary()), max_size=3
    ),
    deletions=st.lists(st.builds(Deletion, TEXT, MECHANISM), max_size=3),
)
def test_it_asks_for_changes(upsertions: list[Upsertion], deletions: list[Deletion]) -> None:
    frame = encode_alter(CORRELATION_ID, "forebay", upsertions, deletions)
    _, asked = decode_request(message(ALTER, 0, "AlterUserScramCredentialsRequest"), frame)
    assert [(each.name, each.mechanism) for each in asked.deletions] == [
        (each.user, NUMBERS[each.mechanism]) for each in deletions
    ]
    assert [
        (each.name, each.mechanism, each.iterations, each.salt, each.salted_password) for each in asked.upsertions
    ] == [(user, NUMBERS[mechanism], *rest) for user, mechanism, *rest in upsertions]


@given(told=entities(message(ALTER, 0, "AlterUserScramCredentialsResponse")))
def test_each_user_has_a_result(told: Any) -> None:
    assert parse_alter(encode_response(told)) == [
        UserResult(each.user, each.error_code, each.error_message) for each in told.results
    ]


READERS = pytest.mark.parametrize(
    ("api", "name", "read"),
    [
        (DESCRIBE, "DescribeUserScramCredentialsResponse", parse_describe),
        (ALTER, "AlterUserScramCredentialsResponse", parse_alter),
    ],
    ids=["describe", "alter"],
)


@READERS
def test_an_answer_that_is_cut_short_is_refused(api: str, name: str, read: Any) -> None:
    refuses_cuts_ignores_tails(read, encode_response(example(message(api, 0, name))))


@READERS
@given(data=st.data())
def test_a_damaged_answer_is_read_or_refused(api: str, name: str, read: Any, data: st.DataObject) -> None:
    survives(read, data.draw(damaged(encode_response(example(message(api, 0, name))))))


def test_what_is_salted_is_not_shown() -> None:
    assert "canary" not in repr(Upsertion("alice", "SCRAM-SHA-256", 4096, b"canary-1", b"canary-2"))
