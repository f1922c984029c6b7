"""What `forebay users` does: users who log in by SCRAM, at the brokers and in Forebay's file of credentials alike.

Both keep the same salt, iterations and keys of a password, so that Forebay can check a login itself and present it at a
broker again. That takes a salt that is made here: brokers tell theirs to nobody.

In: how to reach brokers as somebody who may change users, the file, and what to change. Out: it is changed at the
brokers, and then in the file; where the brokers refuse, nothing is. The file is known to be writable before. What keeps
it from being done is a StartError. One mechanism at a time: brokers take no two changes of a user in one request.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, TextIO

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from forebay_codecs import user_scram_credentials as api
from forebay_codecs.api_keys import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from forebay_codecs.errors import Malformed
from forebay_codecs.scram import Challenge, salt_password
from forebay_codecs.scram_credential import credential_of
from forebay_policies.throttling import CLIENT_ID
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.upstream_connection import UpstreamConnection
from forebay_proxy.commands.text_output import table_text
from forebay_proxy.config.providers import read_private
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import Servers
from forebay_proxy.errors import StartError
from forebay_proxy.logs import visible
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.security import client_properties
from forebay_proxy.security.credentials_file import changing, read

FILE: Final = "--credentials"
SALT_BYTES: Final = 24
MAX_PASSWORD: Final = 1 << 16
"""Characters that are read of a password: none is so long."""


class Brokers(NamedTuple):
    """Where brokers are, and a file of Kafka's client settings (None: plain text, and no login)."""

    servers: Servers
    command_config: str | None


class Row(msgspec.Struct, frozen=True):
    """A user's password for a mechanism. Iterations as the brokers have them, and as the file has; None: not there."""

    user: str
    mechanism: str
    brokers: int | None
    file: int | None


# What is asked for


def add(brokers: Brokers, path: str, user: str, password: Secret, mechanism: str, iterations: int) -> None:
    """Give a user a password, or another one, for a mechanism. Raises StartError."""
    challenge = Challenge(secrets.token_bytes(SALT_BYTES), iterations)
    salted = salt_password(mechanism, password.reveal(), challenge)
    with changing(FILE, path) as credentials:
        credentials[user, mechanism] = credential_of(mechanism, salted, challenge)
        _alter(brokers, upsertions=[api.Upsertion(user, mechanism, iterations, challenge.salt, salted)])


def delete(brokers: Brokers, path: str, user: str, mechanism: str) -> bool:
    """Take a user's password for a mechanism away, wherever there is one. Whether there was. Raises StartError."""
    key = user, mechanism
    with changing(FILE, path) as credentials:
        was_there = credentials.pop(key, None) is not None
        if key in _describe(brokers, [user]):
            was_there = True
            _alter(brokers, deletions=[api.Deletion(*key)])
    return was_there


def listed(brokers: Brokers, path: str) -> list[Row]:
    """All users, at the brokers or in the file (there may be none yet), by name. Raises StartError."""
    in_file = read(FILE, path) if Path(path).exists() else {}
    described = _describe(brokers, None)
    return [
        Row(*key, described.get(key), in_file[key].iterations if key in in_file else None)
        for key in sorted({*described, *in_file})
    ]


def read_password(path: str | None, stream: TextIO) -> Secret:
    """Of a file, or the first line of a stream. Raises StartError, also for an empty one."""
    if path is None:
        text = stream.readline(MAX_PASSWORD)
    else:
        try:
            text = read_private(Path(path))
        except ValueError as error:
            raise StartError(f"--password-file: {error}") from None
    password = Secret(text.removesuffix("\n").removesuffix("\r"))
    if not password:
        raise StartError("the password is empty")
    return password


# Brokers


def _alter(brokers: Brokers, upsertions: Iterable[api.Upsertion] = (), deletions: Iterable[api.Deletion] = ()) -> None:
    answer = _ask(
        brokers,
        ALTER_USER_SCRAM_CREDENTIALS,
        lambda number: api.encode_alter(number, CLIENT_ID, upsertions, deletions),
    )
    try:
        results = api.parse_alter(answer)
    except Malformed as error:
        raise StartError(f"the broker's answer cannot be read: {error}") from None
    for result in results:
        _no_error(result.error_code, result.error_message)


def _describe(brokers: Brokers, users: Sequence[str] | None) -> dict[tuple[str, str], int]:
    answer = _ask(
        brokers, DESCRIBE_USER_SCRAM_CREDENTIALS, lambda number: api.encode_describe(number, CLIENT_ID, users)
    )
    try:
        described = api.parse_describe(answer)
    except Malformed as error:
        raise StartError(f"the broker's answer cannot be read: {error}") from None
    _no_error(described.error_code, described.error_message)
    return described.iterations


def _no_error(code: int, message: str | None) -> None:
    if code:
        raise StartError(f"the brokers refuse: {message or 'for a reason that they do not tell'} (error {code})")


def _ask(brokers: Brokers, api_key: int, build: Callable[[int], bytes]) -> bytes:
    families = (*client_properties.TLS, *client_properties.SASL)
    path = brokers.command_config
    settings = client_properties.NOTHING if path is None else client_properties.read(path, families)
    connector = Connector(settings, MetricRegistry(), Random())
    return asyncio.run(_asked(connector, brokers.servers, api_key, build))


async def _asked(connector: Connector, servers: Servers, api_key: int, build: Callable[[int], bytes]) -> bytes:
    connection = await _connected(connector, servers)
    try:
        lowest, highest = connection.versions.get(api_key, (0, -1))
        if not lowest <= api.VERSION <= highest:
            raise StartError(f"{connection.name} knows no users of SCRAM: Kafka does from 2.7 on (KIP-554)")
        return await connection.call(build)
    except OSError as error:
        raise StartError(f"{error}; whether it was done is not known: do it again") from None
    finally:
        connection.close()


async def _connected(connector: Connector, servers: Servers) -> UpstreamConnection:
    """To the first server that answers."""
    why = []
    for server in servers:
        try:
            return await connector.open(*server)
        except (OSError, UnicodeError, Malformed) as error:
            why.append(f"{server}: {error}")
    raise StartError(f"no broker can be asked: {'; '.join(why)}")


# For people


def as_table(rows: Sequence[Row], width: int | None) -> str:
    """A line each. Long values are folded into `width` columns; None: each row is one line."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("user", "mechanism", "iterations", "known to"):
        table.add_column(column, justify="right" if column == "iterations" else "left", overflow="fold")
    for row in rows:
        iterations = row.file if row.brokers is None else row.brokers
        cells = (row.user, row.mechanism, f"{iterations:,}", _known_to(row))
        table.add_row(*(Text(visible(cell)) for cell in cells))
    return table_text(table, width)


def _known_to(row: Row) -> str:
    if row.file is None:
        return "brokers only"
    if row.brokers is None:
        return "file only: brokers refuse it"
    return "both" if row.brokers == row.file else f"both, but the file has {row.file:,} iterations: add it again"
