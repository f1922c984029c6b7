"""Java's login lines: Kafka's three modules, and nothing that is wrong repeats the line."""

from __future__ import annotations

import pytest

from forebay_proxy.config.jaas import parse, parse_users
from forebay_proxy.config.secret import Secret

PACKAGE = "org.apache.kafka.common.security."
SCRAM = f"{PACKAGE}scram.ScramLoginModule"
CANARY = "canary-2a2a"


@pytest.mark.parametrize(
    ("line", "mechanisms", "options"),
    [
        (f'{SCRAM} required username="alice" password="s";', ("SCRAM-SHA-256", "SCRAM-SHA-512"), ("alice", "s")),
        (f"{PACKAGE}plain.PlainLoginModule required\n username='a' password='b c';", ("PLAIN",), ("a", "b c")),
        (f'{SCRAM}  required username = alice password="a\\"b\\\\;=" ;', None, ("alice", 'a"b\\;=')),
    ],
)
def test_lines_as_they_are_written(line: str, mechanisms: tuple[str, ...] | None, options: tuple[str, str]) -> None:
    login = parse(Secret(line))
    assert mechanisms is None or login.mechanisms == mechanisms
    assert (login.options["username"].reveal(), login.options["password"].reveal()) == options


def test_options_of_oauthbearer() -> None:
    line = f"{PACKAGE}oauthbearer.OAuthBearerLoginModule required clientId='a' clientSecret='b';"
    assert parse(Secret(line)).options == {"clientId": Secret("a"), "clientSecret": Secret("b")}
    assert parse(Secret(f"{PACKAGE}oauthbearer.OAuthBearerLoginModule required;")).options == {}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (CANARY, "must begin with one of Kafka's modules"),
        (f'com.sun.security.auth.module.Krb5LoginModule required keyTab="{CANARY}";', "must begin with one of"),
        (f'{SCRAM} optional username="a" password="{CANARY}";', "`required`"),
        (f'{SCRAM} required username="a" password="{CANARY}"', "semicolon"),
        (f'{SCRAM} required username="a" password="{CANARY};', "without its end"),
        (f'{SCRAM} required username="a" {CANARY};', "of the form"),
        (f"{SCRAM} required = = {CANARY};", "of the form"),
        (f'{SCRAM} required password="{CANARY}";', "the option username"),
        (f'{SCRAM} required username="{CANARY}" password="";', "the option password"),
        (SCRAM, "`required`"),
    ],
)
def test_what_is_wrong_is_told_without_the_line(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as error:
        parse(Secret(line))
    assert CANARY not in str(error.value)


def test_users_of_a_brokers_line() -> None:
    line = f'{PACKAGE}plain.PlainLoginModule required username="b" password="p" user_alice="a=\\"1" user_bob=\'2\';'
    assert parse_users(Secret(line)) == {"alice": Secret('a="1'), "bob": Secret("2")}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (f'{SCRAM} required user_alice="{CANARY}";', "PlainLoginModule"),
        (f'{PACKAGE}plain.PlainLoginModule required username="{CANARY}" password="{CANARY}";', "of the form user_"),
        (f'{PACKAGE}plain.PlainLoginModule required user_alice="" user_bob="{CANARY}";', "without a password"),
        (f'{PACKAGE}plain.PlainLoginModule required user_="{CANARY}";', "without a name"),
        (f'{PACKAGE}plain.PlainLoginModule required user_alice="{CANARY}"', "semicolon"),
        (CANARY, "must begin with"),
    ],
)
def test_what_is_wrong_with_users_is_told_without_the_line(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as error:
        parse_users(Secret(line))
    assert CANARY not in str(error.value)
