"""A login's name is its own, and gives the password away to nobody."""

from __future__ import annotations

from itertools import combinations

from forebay_proxy.config.secret import Secret
from forebay_proxy.security.authenticator import PlainLogin
from forebay_proxy.security.principals import Principals

LOGINS = [
    PlainLogin(user, Secret(password))
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


def test_a_name_holds_no_password_and_is_good_for_one_process() -> None:
    one, other = Principals(), Principals()
    assert one.of(LOGINS[0]) != other.of(LOGINS[0])
    assert "secret" not in one.of(LOGINS[0])
