"""The server's side of mechanisms: who gets in, and that whoever does not learns nothing."""

from __future__ import annotations

import asyncio

import pytest

from forebay_codecs.errors import Malformed
from forebay_codecs.sasl import plain
from forebay_proxy.config.secret import Secret
from forebay_proxy.security.client_exchanges import LoginRefused, PlainExchange, Proved, Said

USERS = {"alice": Secret("hers"), "ünal": Secret("pässwörd")}


def says(token: bytes) -> Said:
    return asyncio.run(PlainExchange(USERS).step(token))


@pytest.mark.parametrize("user", USERS)
def test_plain_takes_a_user_with_his_password(user: str) -> None:
    said = says(plain(user, USERS[user].reveal()))
    assert said == Said(b"", Proved(user, "PLAIN"))
    assert said.proved is not None
    assert said.proved.principal == f"User:{user}"


@pytest.mark.parametrize("token", [plain("alice", "his"), plain("bob", "hers"), plain("Alice", "hers")])
def test_plain_refuses_everybody_else_in_the_same_words(token: bytes) -> None:
    with pytest.raises(LoginRefused, match="wrong user or password"):
        says(token)


@pytest.mark.parametrize("token", [b"", b"alice", plain("alice", ""), plain("", ""), b"bob" + plain("alice", "hers")])
def test_plain_refuses_what_is_none(token: bytes) -> None:
    with pytest.raises(Malformed):
        says(token)
