"""delegation_tokens.py against kio."""

from __future__ import annotations

from base64 import b64decode
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_codecs.delegation_tokens import DelegationToken, encode_create, encode_expire, parse_create, parse_expire
from tests.codecs.hardening import damaged, refuses_cuts_ignores_tails, survives
from tests.codecs.kio_oracle import CORRELATION_ID, decode_request, encode_response, entities, example, message

CREATE, EXPIRE = ("create_delegation_token", 3), ("expire_delegation_token", 2)


@given(owner=st.text(max_size=12), renewer=st.text(max_size=12), lifetime=st.integers(0, 2**40))
def test_it_asks_for_a_token_of_an_owner(owner: str, renewer: str, lifetime: int) -> None:
    frame = encode_create(CORRELATION_ID, "forebay", owner, lifetime, renewer)
    _, asked = decode_request(message(*CREATE, "CreateDelegationTokenRequest"), frame)
    assert (asked.owner_principal_type, asked.owner_principal_name) == ("User", owner)
    renewers = [(each.principal_type, each.principal_name) for each in asked.renewers]
    assert renewers == ([("User", renewer)] if renewer else [])
    assert milliseconds(asked) == lifetime


def milliseconds(asked: Any) -> int:
    """kio takes some of these fields for times, some for numbers."""
    (value,) = (getattr(asked, name) for name in dir(asked) if name.startswith("max_lifetime"))
    return value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value


@given(told=entities(message(*CREATE, "CreateDelegationTokenResponse")))
def test_the_answer_is_a_token(told: Any) -> None:
    token = parse_create(encode_response(told))
    assert (token.error_code, token.owner, token.token_id) == (told.error_code, told.principal_name, told.token_id)
    assert (token.hmac, token.requester) == (told.hmac, told.token_requester_principal_name)
    assert b64decode(token.password) == token.hmac


def test_what_one_logs_in_with_is_not_shown() -> None:
    shown = repr(DelegationToken(0, "alice", "forebay", 0, 1, "canary-id", b"canary-hmac"))
    assert "alice" in shown
    assert "canary" not in shown


@given(hmac=st.binary())
def test_it_asks_to_have_it_expire_at_once(hmac: bytes) -> None:
    _, asked = decode_request(
        message(*EXPIRE, "ExpireDelegationTokenRequest"), encode_expire(CORRELATION_ID, None, hmac)
    )
    assert asked.hmac == hmac


@given(told=entities(message(*EXPIRE, "ExpireDelegationTokenResponse")))
def test_the_answer_to_that_is_an_error_or_none(told: Any) -> None:
    assert parse_expire(encode_response(told)) == told.error_code


READERS = pytest.mark.parametrize(
    ("api", "name", "read"),
    [
        (CREATE, "CreateDelegationTokenResponse", parse_create),
        (EXPIRE, "ExpireDelegationTokenResponse", parse_expire),
    ],
    ids=["create", "expire"],
)


@READERS
def test_an_answer_that_is_cut_short_is_refused(api: tuple[str, int], name: str, read: Any) -> None:
    refuses_cuts_ignores_tails(read, encode_response(example(message(*api, name))))


@READERS
@given(data=st.data())
def test_a_damaged_answer_is_read_or_refused(api: tuple[str, int], name: str, read: Any, data: st.DataObject) -> None:
    survives(read, data.draw(damaged(encode_response(example(message(*api, name))))))
