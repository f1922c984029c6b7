"""A secret is shown by nothing that prints, and leaves by `reveal` alone."""

from __future__ import annotations

import json
import pickle
import traceback

import msgspec
import pytest

from forebay_proxy.config.secret import HIDDEN, Secret
from forebay_proxy.process.control import Hello, decode, encode

CANARY = "canary-2f6b"


def test_nothing_that_prints_shows_it() -> None:
    secret = Secret(CANARY)
    for shown in (str(secret), repr(secret), f"{secret}", f"{secret:>20}", f"{secret!r}", f"{[secret]}"):
        assert CANARY not in shown
        assert HIDDEN in shown


def test_a_traceback_with_it_does_not_show_it() -> None:
    secret = Secret(CANARY)
    with pytest.raises(ValueError, match="hidden") as error:
        raise ValueError(secret)
    shown = traceback.TracebackException.from_exception(error.value, capture_locals=True).format()
    assert CANARY not in "".join(shown)


def test_encoders_that_do_not_know_it_refuse_it() -> None:
    for encode_it in (msgspec.json.encode, msgspec.msgpack.encode, json.dumps, pickle.dumps):
        with pytest.raises(TypeError):
            encode_it(Secret(CANARY))


def test_it_is_its_text() -> None:
    assert Secret(CANARY).reveal() == CANARY
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert hash(Secret("a")) == hash(Secret("a"))
    assert Secret("a")
    assert not Secret("")


def test_a_message_holds_nothing_else_that_is_unknown() -> None:
    with pytest.raises(NotImplementedError, match="complex"):
        encode(Hello(0, 1j, ""))  # type: ignore[arg-type]
    with pytest.raises(msgspec.DecodeError):
        decode(b"\x00")
