"""The file that says as whom Forebay logs in at brokers for clients that have logged in here: upstream.identity=mapped.

    [identities.team-a]
    "sasl.mechanism" = "SCRAM-SHA-512"
    "sasl.jaas.config" = "${file:/run/secrets/kafka.properties:team-a}"

    [principals]
    "User:alice" = "team-a"
    "User:bob" = "team-a"
    "*" = "team-a"              # everybody else; without it they are refused

In: a path. Out: whom each principal is to brokers. What is wrong raises ValueError with words that follow the setting's
name, and that hold none of the secrets.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from forebay_proxy.config import jaas, providers
from forebay_proxy.config.secret import Secret

ANYBODY: Final = "*"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISM: Final = "sasl.mechanism"
_LINE: Final = "sasl.jaas.config"
_USER: Final = "User:"
_MAX_BYTES: Final = 16 << 20


class Target(NamedTuple):
    """One login at brokers."""

    mechanism: str
    username: str
    password: Secret


def read(path: str, environ: Mapping[str, str]) -> Mapping[str, Target]:
    """Principal, as Kafka writes it, or ANYBODY → its login. Raises ValueError."""
    table = _table(path)
    identities = {name: _target(path, name, told, environ) for name, told in _part(path, table, "identities").items()}
    found: dict[str, Target] = {}
    for principal, name in _part(path, table, "principals").items():
        if principal != ANYBODY and not (principal.startswith(_USER) and principal != _USER):
            raise ValueError(f"{path}: {principal} in principals must be like User:alice, or {ANYBODY}")
        if not isinstance(name, str) or name not in identities:
            raise ValueError(f"{path}: {principal} in principals must be one of identities")
        found[principal] = identities[name]
    for name in table:
        if name not in ("identities", "principals"):
            raise ValueError(f"{path}: {name} is none of identities and principals")
    return found


def referenced(path: str) -> tuple[str, ...]:
    """Files that the file refers to; none, where it cannot be read."""
    try:
        return providers.files(providers.read_private(Path(path), _MAX_BYTES))
    except ValueError:
        return ()


def _table(path: str) -> dict[str, object]:
    text = providers.read_private(Path(path), _MAX_BYTES)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None


def _part(path: str, table: dict[str, object], name: str) -> dict[str, object]:
    part = table.get(name)
    if not isinstance(part, dict) or not part:
        raise ValueError(f"{path} must have a table {name}")
    return part


def _target(path: str, name: str, told: object, environ: Mapping[str, str]) -> Target:
    where = f"{path}: identities.{name}"
    if not isinstance(told, dict) or not all(isinstance(each, str) for each in told.values()):
        raise ValueError(f"{where} must be a table of texts")
    if set(told) != {_MECHANISM, _LINE}:
        raise ValueError(f"{where} must have {_MECHANISM} and {_LINE}, and nothing else")
    mechanism = told[_MECHANISM]
    if mechanism not in MECHANISMS:
        raise ValueError(f"{where}: {_MECHANISM} must be one of {', '.join(MECHANISMS)}")
    try:
        providers.refuse_others(told[_LINE])
        login = jaas.parse(Secret(providers.resolve(told[_LINE], environ)))
    except ValueError as error:
        raise ValueError(f"{where}: {_LINE} {error}") from None
    if mechanism not in login.mechanisms:
        raise ValueError(f"{where}: {_LINE} is for {' or '.join(login.mechanisms)}, not for {mechanism}")
    return Target(mechanism, login.options["username"].reveal(), login.options["password"])
