"""A login's name is its own, and gives the password away to nobody."""

from __future__ import annotations

from itertools import combinations

from forebay_proxy.config.secret import Secret
from forebay_proxy.security.logins import BearerLogin, PasswordLogin
from forebay_proxy.security.principals import Principals, as_kafka_writes

LOGINS = [
    PasswordLogin("PLAIN", user, Secret(password))
    for user, password in (
        ("alice", "secret"),
        ("alice", "secret2"),
        ("bob", "secret"),
        ("alic", "esecret"),
        ("a/b", "c"),
    )
]


def test_logins_are_told_apart_by_user_and_password() -> None:
    principals = Principals()
    names = [principals.of(login) for login in LOGINS]
    assert all(one != other for one, other in combinations(names, 2))
    assert names == [principals.of(login) for login in LOGINS]


def test_a_token_that_follows_has_the_same_name() -> None:
    principals = Principals()
    tokens = [
        BearerLogin("alice", Secret(jwt), "authority", expires_at) for jwt, expires_at in (("a", 1.0), ("b", 2.0))
    ]
    other = tokens[0]._replace(authority="another")
    assert principals.of(tokens[0]) == principals.of(tokens[1]) != principals.of(other)
    assert "authority" not in principals.of(tokens[0])


def test_a_principal_is_shown_as_kafka_writes_it() -> None:
    assert [as_kafka_writes(Principals().of(login)) for login in LOGINS[-2:]] == ["User:alic", "User:a/b"]
    assert as_kafka_writes("") == ""


def test_a_name_holds_no_password_and_is_good_for_one_process() -> None:
    one, other = Principals(), Principals()
    assert one.of(LOGINS[0]) != other.of(LOGINS[0])
    assert "secret" not in one.of(LOGINS[0])
