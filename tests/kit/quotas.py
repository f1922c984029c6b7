"""Client quotas of a cluster (KIP-546), which no Python client of the kit can set.

with client_quota(port, 60_000):                  # every client id for itself may write 60 KB/s to each broker
with client_quota(port, 20_000, "greedy"):        # this one
with user_quota(port, 20_000, "alice"):           # this user, whatever its client ids
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from forebay_codecs.primitives import Reader, Writer
from tests.kit.one_request import ask
from tests.kit.wire import request

_ALTER_CLIENT_QUOTAS = 49


@contextmanager
def client_quota(port: int, bytes_per_second: float, client_id: str | None = None) -> Iterator[None]:
    """`producer_byte_rate` of the client id, by default of every client id that has none; until the `with` ends."""
    _alter(port, "client-id", client_id, bytes_per_second)
    try:
        yield
    finally:
        _alter(port, "client-id", client_id, None)


@contextmanager
def user_quota(port: int, bytes_per_second: float, user: str) -> Iterator[None]:
    """`producer_byte_rate` of the user; until the `with` ends."""
    _alter(port, "user", user, bytes_per_second)
    try:
        yield
    finally:
        _alter(port, "user", user, None)


def _alter(port: int, kind: str, name: str | None, rate: float | None) -> None:
    """Asks the broker behind `port`. None removes the quota. Source: AlterClientQuotasRequest.json, v0."""
    body = Writer()
    body.array(1, False)
    body.array(1, False)
    body.string(kind, False)
    body.nullable_string(name, False)
    body.array(1, False)
    body.string("producer_byte_rate", False)
    body.raw(struct.pack(">d", rate or 0.0))
    body.boolean(rate is None)
    body.boolean(False)  # validate_only
    framed = request(_ALTER_CLIENT_QUOTAS, 0, 1, body.getvalue())
    answer = Reader(ask(port, framed[4:]), 8)  # correlation id, throttle time
    assert answer.array(False) == 1
    error = answer.i16()
    assert error == 0, f"quota of {name}: error {error}, {answer.nullable_string(False)}"
