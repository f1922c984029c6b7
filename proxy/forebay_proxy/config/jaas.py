"""`sasl.jaas.config`: Java's line for logging in, of which only Kafka's own modules for three mechanisms are read.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";

and a listener's `plain.sasl.jaas.config`, which says who may log in there:

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="other";

In: the line. Out: which mechanisms it is for, and its options; or users and their passwords. What is wrong raises
ValueError with words that follow the setting's name, and that hold none of the line, since it holds a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from forebay_proxy.config.secret import Secret

_PACKAGE: Final = "org.apache.kafka.common.security."
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES: Final = {
    f"{_PACKAGE}plain.PlainLoginModule": ("PLAIN",),
    f"{_PACKAGE}scram.ScramLoginModule": _SCRAM,
    f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
}
MECHANISMS: Final = ("PLAIN", *_SCRAM, "OAUTHBEARER")
_NEEDED: Final = ("username", "password")
_USER: Final = "user_"

_TOKEN: Final = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s=;"']+)|([=;]))""", re.DOTALL)


class Login(NamedTuple):
    """`mechanisms`: those that the module is for."""

    mechanisms: tuple[str, ...]
    options: Mapping[str, Secret]


def parse(line: Secret) -> Login:
    """Read one line. Raises ValueError."""
    mechanisms, options = _parse(line)
    if mechanisms != ("OAUTHBEARER",):
        for name in _NEEDED:
            if not options.get(name):
                raise ValueError(f"must have the option {name}")
    return Login(mechanisms, options)


def parse_users(line: Secret) -> Mapping[str, Secret]:
    """User → password, of a broker's line for PLAIN; other options are the broker's own login. Raises ValueError."""
    mechanisms, options = _parse(line)
    if mechanisms != ("PLAIN",):
        raise ValueError(f"must begin with {_PACKAGE}plain.PlainLoginModule")
    users = {name.removeprefix(_USER): option for name, option in options.items() if name.startswith(_USER)}
    if not users:
        raise ValueError('must have options of the form user_alice="password"')
    if not all(name and password for name, password in users.items()):
        raise ValueError("has a user without a name or without a password, whom PLAIN does not let in")
    return users


def _parse(line: Secret) -> Login:
    module, flag, *rest = _tokens(line.reveal())
    if module not in _MODULES:
        known = ", ".join(name.rpartition(".")[2] for name in _MODULES)
        raise ValueError(f"must begin with one of Kafka's modules {known}, with {_PACKAGE}… before them")
    if flag != "required":
        raise ValueError("must have `required` behind the module")
    options: dict[str, Secret] = {}
    if rest[-1:] != [";"] or len(rest) % 3 != 1:
        raise ValueError('must have options of the form name="value", and a semicolon at its end')
    for name, equals, value in zip(rest[:-1:3], rest[1::3], rest[2::3], strict=True):
        if equals != "=" or name in "=;" or value in ("=", ";"):
            raise ValueError('must have options of the form name="value"')
        options[name] = Secret(value)
    return Login(_MODULES[module], options)


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    pos = 0
    while text[pos:].strip():
        match = _TOKEN.match(text, pos)
        if match is None:
            raise ValueError("has a quotation mark without its end")
        quoted = match[1] if match[1] is not None else match[2]
        found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else match[3] or match[4])
        pos = match.end()
    return [*found, "", ""] if len(found) < 2 else found
