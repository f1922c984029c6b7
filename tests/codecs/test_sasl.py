"""sasl.py against kio in every version."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.static.primitive import i64Timedelta

from forebay_codecs.errors import Malformed
from forebay_codecs.sasl import (
    BEARER_REFUSED,
    MAX_AUTHENTICATE_VERSION,
    Authenticated,
    Handshake,
    asked_bytes,
    asked_mechanism,
    authenticate_request,
    bearer,
    handshake_request,
    parse_authenticate,
    parse_bearer,
    parse_handshake,
    parse_plain,
    plain,
)
from tests.codecs.hardening import damaged, refuses_cuts_ignores_tails, survives
from tests.codecs.kio_oracle import CORRELATION_ID, decode_request, encode_response, message

VERSIONS = pytest.mark.parametrize("version", range(MAX_AUTHENTICATE_VERSION + 1))


def handshake_response() -> bytes:
    made = message("sasl_handshake", 1, "SaslHandshakeResponse")(
        error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=("PLAIN", "SCRAM-SHA-512")
    )
    return encode_response(made)


def authenticate_response(version: int, auth_bytes: bytes = b"v=x", lifetime: int = 3_600_000) -> bytes:
    fields: dict[str, Any] = {
        "error_code": ErrorCode.sasl_authentication_failed,
        "error_message": "no",
        "auth_bytes": auth_bytes,
    }
    if version >= 1:
        fields["session_lifetime"] = i64Timedelta.parse(timedelta(milliseconds=lifetime))
    return encode_response(message("sasl_authenticate", version, "SaslAuthenticateResponse")(**fields))


def test_the_handshake_asks_for_a_mechanism() -> None:
    _, asked = decode_request(
        message("sasl_handshake", 1, "SaslHandshakeRequest"), handshake_request(CORRELATION_ID, "forebay", "PLAIN")
    )
    assert asked.mechanism == "PLAIN"


def test_what_a_client_asks_for_is_read_as_it_was_written() -> None:
    request = handshake_request(CORRELATION_ID, "client", "SCRAM-SHA-512")
    assert asked_mechanism(request) == "SCRAM-SHA-512"
    refuses_cuts_ignores_tails(asked_mechanism, request)


@VERSIONS
@given(data=st.binary(max_size=300), client_id=st.sampled_from([None, "", "client"]))
def test_the_bytes_that_a_client_presents_are_read_as_they_were_written(
    version: int, data: bytes, client_id: str | None
) -> None:
    request = authenticate_request(CORRELATION_ID, client_id, version, data)
    assert asked_bytes(request, version) == data


@given(user=st.text(min_size=1), password=st.text(min_size=1))
def test_a_token_of_plain_is_read_as_kafka_reads_it(user: str, password: str) -> None:
    if "\0" in user + password:
        with pytest.raises(Malformed):
            parse_plain(plain(user, password))
        return
    assert parse_plain(plain(user, password)) == (user, password)
    assert parse_plain(user.encode() + plain(user, password)) == (user, password)
    with pytest.raises(Malformed):
        parse_plain(b"root!" + user.encode() + plain(user, password))


@pytest.mark.parametrize(
    "token", [b"", b"alice", b"\0alice", b"\0alice\0", b"\0\0secret", b"\0a\0b\0c", b"\0\xff\0b", b"bob\0alice\0x"]
)
def test_what_kafka_does_not_take_is_malformed(token: bytes) -> None:
    with pytest.raises(Malformed):
        parse_plain(token)


TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9."


@pytest.mark.parametrize("extensions", [{}, {"logicalCluster": "lkc-1", "identityPoolId": "a=b"}])
def test_a_token_of_oauthbearer_is_read_with_its_extensions(extensions: dict[str, str]) -> None:
    assert parse_bearer(bearer(TOKEN, extensions.items())) == (TOKEN, extensions)


def test_of_an_extension_that_is_named_twice_the_last_value_counts() -> None:
    """As in Kafka."""
    assert parse_bearer(b"n,,\x01auth=Bearer abc\x01pool=1\x01pool=2\x01\x01") == ("abc", {"pool": "2"})


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer abc\x01more\x01\x01",
        b"n,,\x01a=1\x01\x01",
        b"n,a=root,\x01auth=Bearer abc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        BEARER_REFUSED,
    ],
)
def test_what_is_no_token_or_asks_to_be_somebody_is_malformed(first: bytes) -> None:
    with pytest.raises(Malformed):
        parse_bearer(first)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_token_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        parse_bearer(data)


def test_the_handshakes_answer_names_what_the_broker_has() -> None:
    assert parse_handshake(handshake_response()) == Handshake(33, ["PLAIN", "SCRAM-SHA-512"])
    refuses_cuts_ignores_tails(parse_handshake, handshake_response())


@VERSIONS
@given(data=st.binary(max_size=300))
def test_bytes_are_carried_there(version: int, data: bytes) -> None:
    request = authenticate_request(CORRELATION_ID, "forebay", version, data)
    _, asked = decode_request(message("sasl_authenticate", version, "SaslAuthenticateRequest"), request)
    assert asked.auth_bytes == data


@VERSIONS
@given(data=st.binary(max_size=300), lifetime=st.integers(0, 2**40))
def test_and_back(version: int, data: bytes, lifetime: int) -> None:
    parsed = parse_authenticate(authenticate_response(version, data, lifetime), version)
    assert parsed == Authenticated(58, "no", data, lifetime if version >= 1 else 0)


@VERSIONS
@given(data=st.data())
def test_bad_bytes_are_malformed(version: int, data: st.DataObject) -> None:
    good = authenticate_response(version)
    refuses_cuts_ignores_tails(lambda response: parse_authenticate(response, version), good)
    survives(lambda response: parse_authenticate(response, version), data.draw(damaged(good)))
    survives(parse_handshake, data.draw(damaged(handshake_response())))


def test_a_lifetime_is_never_negative() -> None:
    assert parse_authenticate(authenticate_response(2, b"", -1), 2).session_lifetime_ms == 0


def test_tokens() -> None:
    assert plain("user", "pässword") == b"\0user\0p\xc3\xa4ssword"
    assert bearer("a.b.c") == b"n,,\x01auth=Bearer a.b.c\x01\x01"
