"""SaslHandshake v1 and SaslAuthenticate v0 to v2: the proxy's own requests, clients', and what brokers answer.

Requests begin at api_key, responses at correlation_id; no size prefix in either. Functions that read raise Malformed.
Sources: Kafka's SaslHandshakeRequest.json, SaslAuthenticateRequest.json and their responses; KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from forebay_codecs.api_keys import SASL_AUTHENTICATE, SASL_HANDSHAKE
from forebay_codecs.bearer_initial import parse_initial
from forebay_codecs.errors import Malformed
from forebay_codecs.header import PEEK_SIZE, begin_request, read_client_id, response_header_size
from forebay_codecs.primitives import Reader

HANDSHAKE_VERSION: Final = 1
"""With v0 what follows has no header."""
MAX_AUTHENTICATE_VERSION: Final = 2
_LIFETIME_FROM: Final = 1
_FLEXIBLE_FROM: Final = 2


class Handshake(NamedTuple):
    """A SaslHandshake response. `mechanisms` are those that the broker has, also where it refuses the one asked for."""

    error_code: int
    mechanisms: list[str]


class Authenticated(NamedTuple):
    """A SaslAuthenticate response: the mechanism's next bytes, or an error.

    `session_lifetime_ms`: after it the broker closes the connection unless it was authenticated again; 0: it does not.
    """

    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int


def handshake_request(correlation_id: int, client_id: str | None, mechanism: str) -> bytes:
    """Asks for a mechanism, such as SCRAM-SHA-512."""
    writer = begin_request(SASL_HANDSHAKE, HANDSHAKE_VERSION, correlation_id, client_id)
    writer.string(mechanism, False)  # noqa: FBT003
    return writer.getvalue()


def asked_mechanism(request: bytes) -> str:
    """The mechanism that a client's SaslHandshake asks for."""
    reader = Reader(request, PEEK_SIZE)
    read_client_id(reader, flexible=False)
    return reader.string(False)  # noqa: FBT003


def parse_handshake(response: bytes) -> Handshake:
    """Read a broker's answer to `handshake_request`."""
    reader = Reader(response, 4)
    error_code = reader.i16()
    count = reader.array(False)  # noqa: FBT003
    return Handshake(error_code, [reader.string(False) for _ in range(count)])  # noqa: FBT003


def authenticate_request(correlation_id: int, client_id: str | None, version: int, auth_bytes: bytes) -> bytes:
    """Carries a mechanism's bytes."""
    flexible = version >= _FLEXIBLE_FROM
    writer = begin_request(SASL_AUTHENTICATE, version, correlation_id, client_id, flexible=flexible)
    writer.sized_bytes(auth_bytes, flexible)
    if flexible:
        writer.tags()
    return writer.getvalue()


def asked_bytes(request: bytes, version: int) -> bytes:
    """The mechanism's bytes in a client's SaslAuthenticate."""
    flexible = version >= _FLEXIBLE_FROM
    reader = Reader(request, PEEK_SIZE)
    read_client_id(reader, flexible=flexible)
    return reader.sized_bytes(flexible)


def parse_authenticate(response: bytes, version: int) -> Authenticated:
    """Read a broker's answer to `authenticate_request`."""
    flexible = version >= _FLEXIBLE_FROM
    reader = Reader(response, response_header_size(response, flexible=flexible))
    error_code = reader.i16()
    message = reader.nullable_string(flexible)
    auth_bytes = reader.sized_bytes(flexible)
    lifetime = reader.i64() if version >= _LIFETIME_FROM else 0
    reader.skip_tags(flexible)
    return Authenticated(error_code, message, auth_bytes, max(0, lifetime))


def plain(username: str, password: str) -> bytes:
    """What the mechanism PLAIN sends (RFC 4616), without an authorization id."""
    return f"\0{username}\0{password}".encode()


def parse_plain(token: bytes) -> tuple[str, str]:
    """(user, password) of what a client sends by PLAIN. Raises Malformed where it asks to be somebody else (authzid).

    What Kafka takes: three parts, UTF-8, neither user nor password empty.
    """
    try:
        authzid, username, password = token.decode().split("\0")
    except ValueError:  # UnicodeDecodeError is one
        raise Malformed("no token of PLAIN") from None
    if not username or not password or authzid not in ("", username):
        raise Malformed("a token of PLAIN that Kafka does not take")
    return username, password


def bearer(token: str, extensions: Iterable[tuple[str, str]] = ()) -> bytes:
    """What the mechanism OAUTHBEARER sends first (RFC 7628), with SASL extensions (KIP-342)."""
    told = "".join(f"{name}={value}\x01" for name, value in extensions)
    return f"n,,\x01auth=Bearer {token}\x01{told}\x01".encode()


def parse_bearer(first: bytes) -> tuple[str, dict[str, str]]:
    """(token, SASL extensions) of what a client sends first by OAUTHBEARER.

    Raises Malformed where it names whom it wants to be (authzid), and for what Kafka does not take.
    """
    asked = parse_initial(first)
    if asked.authzid:
        raise Malformed("a token of OAUTHBEARER for somebody else")
    return asked.token, asked.extensions


BEARER_REFUSED: Final = b"\x01"
"""What OAUTHBEARER answers to an error, so that the broker may end the exchange."""
