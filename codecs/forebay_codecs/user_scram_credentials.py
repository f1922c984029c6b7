"""DescribeUserScramCredentials v0 and AlterUserScramCredentials v0: requests of our own, and what brokers answer.

Requests begin at api_key, responses at correlation_id; no size prefix in either. Parsers raise Malformed. Mechanisms go
by their SASL names; those of a broker that are not known here are left out.
Sources: Kafka's DescribeUserScramCredentialsRequest.json, AlterUserScramCredentialsRequest.json and their responses;
KIP-554.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from forebay_codecs.api_keys import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from forebay_codecs.header import begin_request, response_header_size
from forebay_codecs.primitives import FLEXIBLE, Reader, Writer

VERSION: Final = 0
_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_NAMES: Final = {number: name for name, number in _NUMBERS.items()}


class Upsertion(NamedTuple):
    """A user's password for one mechanism, new or instead of another; salted (scram.salt_password)."""

    user: str
    mechanism: str
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion({self.user!r}, {self.mechanism}, …)"


class Deletion(NamedTuple):
    """No password any more for this mechanism."""

    user: str
    mechanism: str


class UserResult(NamedTuple):
    """What became of what was asked for a user."""

    user: str
    error_code: int
    error_message: str | None


class Described(NamedTuple):
    """`error_code` of the whole answer; `iterations` by user and mechanism."""

    error_code: int
    error_message: str | None
    iterations: dict[tuple[str, str], int]


def encode_describe(correlation_id: int, client_id: str | None, users: Sequence[str] | None = None) -> bytes:
    """Asks which mechanisms `users` have; None: all users."""
    writer = _begin(DESCRIBE_USER_SCRAM_CREDENTIALS, correlation_id, client_id)
    if users is None:
        writer.array(-1, FLEXIBLE)
    else:
        writer.array(len(users), FLEXIBLE)
        for user in users:
            writer.string(user, FLEXIBLE)
            writer.tags()
    writer.tags()
    return writer.getvalue()


def parse_describe(response: bytes) -> Described:
    """Read a broker's answer to `encode_describe`. Users that are not known have no iterations."""
    reader = Reader(response, response_header_size(response, flexible=True))
    reader.i32()  # throttle time
    code, message = reader.i16(), reader.nullable_string(FLEXIBLE)
    found: dict[tuple[str, str], int] = {}
    for _ in range(reader.array(FLEXIBLE)):
        user = reader.string(FLEXIBLE)
        reader.i16()
        reader.nullable_string(FLEXIBLE)
        for _ in range(reader.array(FLEXIBLE)):
            mechanism, iterations = _NAMES.get(reader.i8()), reader.i32()
            reader.skip_tags()
            if mechanism is not None:
                found[user, mechanism] = iterations
        reader.skip_tags()
    reader.skip_tags()
    return Described(code, message, found)


def encode_alter(
    correlation_id: int,
    client_id: str | None,
    upsertions: Iterable[Upsertion] = (),
    deletions: Iterable[Deletion] = (),
) -> bytes:
    """Asks for changes; brokers take no two for one user, also not for two mechanisms (error 92)."""
    writer = _begin(ALTER_USER_SCRAM_CREDENTIALS, correlation_id, client_id)
    gone, told = list(deletions), list(upsertions)
    writer.array(len(gone), FLEXIBLE)
    for deletion in gone:
        writer.string(deletion.user, FLEXIBLE)
        writer.i8(_NUMBERS[deletion.mechanism])
        writer.tags()
    writer.array(len(told), FLEXIBLE)
    for upsertion in told:
        writer.string(upsertion.user, FLEXIBLE)
        writer.i8(_NUMBERS[upsertion.mechanism])
        writer.i32(upsertion.iterations)
        writer.sized_bytes(upsertion.salt, FLEXIBLE)
        writer.sized_bytes(upsertion.salted_password, FLEXIBLE)
        writer.tags()
    writer.tags()
    return writer.getvalue()


def parse_alter(response: bytes) -> list[UserResult]:
    """Read a broker's answer to `encode_alter`: one result a user."""
    reader = Reader(response, response_header_size(response, flexible=True))
    reader.i32()  # throttle time
    found = []
    for _ in range(reader.array(FLEXIBLE)):
        found.append(UserResult(reader.string(FLEXIBLE), reader.i16(), reader.nullable_string(FLEXIBLE)))
        reader.skip_tags()
    reader.skip_tags()
    return found


def _begin(api_key: int, correlation_id: int, client_id: str | None) -> Writer:
    return begin_request(api_key, VERSION, correlation_id, client_id, flexible=True)
