"""What a server answers to a client that logs in: SaslHandshake v0 and v1, SaslAuthenticate v0 to v2, raw tokens.

Answers are frames with their size prefix. Sources: Kafka's SaslHandshakeResponse.json, SaslAuthenticateResponse.json;
KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forebay_codecs.primitives import Writer

_LIFETIME_FROM: Final = 1
_FLEXIBLE_FROM: Final = 2


def handshake(correlation_id: int, error_code: int, mechanisms: Sequence[str]) -> bytes:
    """Both versions are laid out alike. `mechanisms`: those that there are, also where the one asked for is not."""
    writer = Writer()
    writer.i32(0)  # the size, which `framed` writes
    writer.i32(correlation_id)
    writer.i16(error_code)
    writer.array(len(mechanisms), False)  # noqa: FBT003
    for each in mechanisms:
        writer.string(each, False)  # noqa: FBT003
    return writer.framed()


def authenticate(
    correlation_id: int, version: int, error_code: int, message: str | None, token: bytes, lifetime_ms: int = 0
) -> bytes:
    """The mechanism's next bytes, or an error and its words. `lifetime_ms`: of the session; 0: it does not end."""
    flexible = version >= _FLEXIBLE_FROM
    writer = Writer()
    writer.i32(0)  # the size, which `framed` writes
    writer.i32(correlation_id)
    if flexible:
        writer.tags()
    writer.i16(error_code)
    writer.nullable_string(message, flexible)
    writer.sized_bytes(token, flexible)
    if version >= _LIFETIME_FROM:
        writer.i64(lifetime_ms)
    if flexible:
        writer.tags()
    return writer.framed()


def token(data: bytes) -> bytes:
    """Behind SaslHandshake v0 the mechanism's bytes have no header."""
    return len(data).to_bytes(4, "big") + data
