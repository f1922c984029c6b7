"""Java's login lines: Kafka's three modules, and nothing that is wrong repeats the line."""

from __future__ import annotations

import pytest

from forebay_proxy.config.jaas import parse
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
