"""What is read of clients' logins, and when two tokens are one identity."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_codecs.errors import Malformed
from forebay_codecs.sasl import bearer, plain
from forebay_proxy.config.secret import Secret
from forebay_proxy.security.logins import OF_THE_TOKEN, BearerLogin, PasswordLogin, read_bearer, read_login

CLAIMS = {"iss": "https://id.example", "sub": "alice", "scope": "kafka", "exp": 1_800_000_000, "iat": 1, "jti": "a"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def token(claims: Any, signature: str = "signed") -> str:
    parts = ({"alg": "none"}, claims)
    made = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join([*made, signature])


def authority(**changed: Any) -> str:
    return read_bearer(token({**CLAIMS, **changed}), {}).authority


def test_a_password_is_read() -> None:
    login = read_login("PLAIN", plain("alice", "hers"))
    assert login == PasswordLogin("PLAIN", "alice", Secret("hers"))
    assert (login.identity, login.expires_at) == (("PLAIN", "alice", "hers"), 0.0)


def test_a_token_is_read() -> None:
    jwt = token(CLAIMS)
    login = read_login("OAUTHBEARER", bearer(jwt, {"pool": "p"}.items()))
    assert isinstance(login, BearerLogin)
    assert (login.username, login.token.reveal(), login.expires_at) == ("alice", jwt, 1_800_000_000.0)
    assert login.extensions == (("pool", "p"),)
    assert login.identity == ("OAUTHBEARER", "alice", login.authority)


def test_other_mechanisms_are_not() -> None:
    with pytest.raises(Malformed):
        read_login("SCRAM-SHA-256", b"n,,n=alice,r=nonce")


@pytest.mark.parametrize("claim", ["aio", "auth_time", "exp", "iat", "jti", "nbf", "uti", "xms_ftd"])
def test_the_next_token_is_the_same_identity(claim: str) -> None:
    assert authority(**{claim: 1_900_000_000}) == authority()


@pytest.mark.parametrize(
    "changed", [{"iss": "https://other"}, {"sub": "bob"}, {"scope": "kafka admin"}, {"groups": ["a"]}, {"aud": None}]
)
def test_a_token_that_says_anything_else_is_another(changed: dict[str, Any]) -> None:
    assert authority(**changed) != authority()


def test_extensions_are_a_part_of_it() -> None:
    jwt = token(CLAIMS)
    told = [read_bearer(jwt, extensions).authority for extensions in ({}, {"pool": "p"}, {"pool": "q"})]
    assert len(set(told)) == 3
    one, other = ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})
    assert read_bearer(jwt, one).authority == read_bearer(jwt, other).authority


def test_an_issuer_may_tell_its_claims_in_another_order() -> None:
    told = read_bearer(token({"realm": {"b": 2, "a": 1}, **dict(reversed(CLAIMS.items()))}), {}).authority
    assert told == authority(realm={"a": 1, "b": 2})


CLAIM_SETS = st.dictionaries(st.text(max_size=5), JSON, max_size=4)


def turned(claims: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.permutations(list(claims.items())).map(dict)


@given(CLAIM_SETS.flatmap(lambda claims: st.tuples(st.just(claims), CLAIM_SETS | turned(claims))))
def test_authorities_are_equal_where_claims_are(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    first, second = ({name: it[name] for name in it if name not in OF_THE_TOKEN} for it in both)
    told = [read_bearer(token({**claims, "exp": 1}), {}).authority for claims in (first, second)]
    assert (told[0] == told[1]) == (json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True))


def test_one_without_a_subject_has_no_name() -> None:
    assert read_bearer(token({"exp": 1}), {}).username == ""
    assert read_bearer(token({"exp": 1, "sub": 5}), {}).username == ""


@pytest.mark.parametrize(
    "jwt",
    [
        "opaque",
        "a.b",
        "a.b.c.d",
        "a.!.c",
        "a.eyJ.c",
        "a.ä.c",
        token([1]),
        token({"sub": "alice"}),
        token({"exp": "soon"}),
        token({"exp": True}),
        token({"exp": None}),
    ],
)
def test_what_is_no_token_with_an_end_is_malformed(jwt: str) -> None:
    with pytest.raises(Malformed):
        read_bearer(jwt, {})


@pytest.mark.parametrize(
    "payload",
    [
        b'{"exp":1,"a":' + b"[" * 12_000 + b"]" * 12_000 + b"}",
        b'{"exp":' + b"9" * 400 + b"}",
        b'{"exp":1e400}',
    ],
    ids=["deep", "digits", "infinite"],
)
def test_what_no_issuer_writes_is_malformed(payload: bytes) -> None:
    with pytest.raises(Malformed):
        read_bearer(f"a.{base64.urlsafe_b64encode(payload).decode()}.c", {})


@given(st.text(max_size=60))
def test_any_text_is_a_token_or_malformed(text: str) -> None:
    try:
        read_bearer(text, {})
    except Malformed:
        pass
