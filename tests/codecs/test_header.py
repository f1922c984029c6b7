"""header.py: what every request and response begins with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_codecs import sasl
from forebay_codecs.apis import APIS
from forebay_codecs.errors import Malformed
from forebay_codecs.header import (
    LONGEST_HEADER,
    PEEK_SIZE,
    begin_request,
    may_be_request,
    peek,
    peek_client_id,
    printable,
    read_client_id,
    response_header_size,
)
from forebay_codecs.primitives import Reader

INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
# One tagged field: number 1, tag 5, 2 bytes.
TAGS = b"\x01\x05\x02ab"


@given(INT16, INT16, INT32, st.binary(max_size=3))
def test_peek_reads_what_was_written_wherever_it_begins(
    api_key: int, version: int, correlation_id: int, before: bytes
) -> None:
    data = before + begin_request(api_key, version, correlation_id, "client").getvalue()
    assert peek(data, len(before)) == (api_key, version, correlation_id)
    assert peek(data[: len(before) + PEEK_SIZE], len(before)) == (api_key, version, correlation_id)


@given(st.sampled_from(sorted(APIS)), st.integers(0, 31), INT32, st.none() | st.text(max_size=20))
def test_a_request_is_taken_for_none_of_the_tokens(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> None:
    assert may_be_request(begin_request(api_key, version, correlation_id, client_id).getvalue()[:PEEK_SIZE])


PRINTED = st.text(st.characters(min_codepoint=0x20, blacklist_categories=["Cs"]), min_size=1, max_size=20)


@given(PRINTED, PRINTED)
def test_a_token_is_taken_for_no_request(user: str, password: str) -> None:
    tokens = [
        sasl.plain(user, password),
        b"authzid" + sasl.plain(user, password),
        f"n,,n={user},r=nonce".encode(),
        f"n,a={user},n={user},r=nonce".encode(),
        b"c=biws,r=nonce,p=proof",
        b"n,,\x01auth=Bearer token\x01\x01",
        b"\x01",
        b"",
        bytes.fromhex("6082034d06092a864886f71201020201"),  # Kerberos: a first token, then RFC 4121's Wrap
        bytes.fromhex("050404ff000c000000000000"),
        bytes.fromhex("6030060628"),
    ]
    assert [token for token in tokens if may_be_request(token[:PEEK_SIZE])] == []


@pytest.mark.parametrize("client_id", [None, "", "client", "zähler", "till-\udce4"])
@pytest.mark.parametrize("flexible", [False, True])
def test_a_client_id_is_read_as_it_was_written(client_id: str | None, *, flexible: bool) -> None:
    """One that is not UTF-8, too."""
    data = begin_request(3, 9, 7, client_id, flexible=flexible).getvalue()
    assert peek_client_id(data) == client_id
    reader = Reader(data, PEEK_SIZE)
    assert read_client_id(reader, flexible=flexible) == client_id
    assert reader.pos == len(data)


def test_the_tagged_fields_of_a_request_are_skipped() -> None:
    data = begin_request(3, 9, 7, "client").getvalue()
    reader = Reader(data + TAGS + b"body", PEEK_SIZE)
    assert read_client_id(reader, flexible=True) == "client"
    assert reader.raw(4) == b"body"


def test_the_longest_header_holds_the_longest_client_id() -> None:
    longest = begin_request(3, 9, 7, "x" * 32_767).getvalue()
    assert len(longest) == LONGEST_HEADER
    assert peek_client_id(longest[:LONGEST_HEADER]) == "x" * 32_767
    for cut in (PEEK_SIZE, PEEK_SIZE + 1, LONGEST_HEADER - 1):
        with pytest.raises(Malformed):
            peek_client_id(longest[:cut])


@pytest.mark.parametrize(("client_id", "shown"), [("zähler", "zähler"), ("till-\udce4", "till-\\xe4")])
def test_printable(client_id: str, shown: str) -> None:
    assert printable(client_id) == shown


def test_response_header_size() -> None:
    assert response_header_size(b"\0\0\0\7" + TAGS + b"body", flexible=False) == 4
    assert response_header_size(b"\0\0\0\7" + TAGS + b"body", flexible=True) == 4 + len(TAGS)
    for cut in range(4 + len(TAGS)):
        with pytest.raises(Malformed):
            response_header_size((b"\0\0\0\7" + TAGS)[:cut], flexible=True)
    for cut in range(4):
        with pytest.raises(Malformed):
            response_header_size(bytes(cut), flexible=False)
