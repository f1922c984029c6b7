"""First messages of OAUTHBEARER, as librdkafka and Java write them, and as nobody should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_codecs import sasl
from forebay_codecs.bearer_initial import InitialResponse, parse_initial
from forebay_codecs.errors import Malformed
from tests.codecs.hardening import refuses_cuts_and_tails, survives

TOKEN = "aA0-_.b.c"
FIRST = f"n,,\x01auth=Bearer {TOKEN}\x01\x01"


@pytest.mark.parametrize(
    ("first", "read"),
    [
        (FIRST, InitialResponse(TOKEN, "", {})),
        (f"n,,\x01auth=bearer   {TOKEN}==\x01\x01", InitialResponse(f"{TOKEN}==", "", {})),
        (f"n,a=al=2Cice,\x01auth=Bearer {TOKEN}\x01\x01", InitialResponse(TOKEN, "al=2Cice", {})),
        (
            f"n,,\x01traceid=a b=c\x01auth=Bearer {TOKEN}\x01x=1\x01x=2\x01\x01",
            InitialResponse(TOKEN, "", {"traceid": "a b=c", "x": "2"}),
        ),
    ],
)
def test_what_brokers_take(first: str, read: InitialResponse) -> None:
    assert parse_initial(first.encode()) == read


@given(extensions=st.dictionaries(st.from_regex("[A-Za-z]+", fullmatch=True).filter("auth".__ne__), st.just("v")))
def test_what_we_write_is_read(extensions: dict[str, str]) -> None:
    assert parse_initial(sasl.bearer(TOKEN, extensions.items())) == InitialResponse(TOKEN, "", extensions)


@pytest.mark.parametrize(
    "first",
    [
        *("", "\x01", "n,,", "n,,\x01\x01", "n,,\x01auth=\x01\x01", "n,,\x01auth=Bearer \x01\x01"),
        *(f"y,,\x01auth=Bearer {TOKEN}\x01\x01", f"n,a=,\x01auth=Bearer {TOKEN}\x01\x01"),
        *(f"n,,\x01auth=Basic {TOKEN}\x01\x01", f"n,,\x01Auth=Bearer {TOKEN}\x01\x01"),
        *(
            "n,,\x01auth=Bearer a b\x01\x01",
            "n,,\x01auth=Bearer é\x01\x01",
            f"n,,\x01a1=x\x01auth=Bearer {TOKEN}\x01\x01",
        ),
        f"n,a=é,\x01auth=Bearer {TOKEN}\x01\x01",
    ],
)
def test_what_brokers_do_not_take(first: str) -> None:
    with pytest.raises(Malformed, match="of OAUTHBEARER"):
        parse_initial(first.encode())


def test_a_message_that_is_cut_short_or_too_long_is_refused() -> None:
    refuses_cuts_and_tails(parse_initial, FIRST.encode())


@given(data=st.binary())
def test_noise_is_read_or_refused(data: bytes) -> None:
    survives(parse_initial, data)
    survives(parse_initial, b"n,,\x01auth=Bearer " + data)


def test_the_token_is_not_shown() -> None:
    assert TOKEN not in repr(parse_initial(FIRST.encode()))
