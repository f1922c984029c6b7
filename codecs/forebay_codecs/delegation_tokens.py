"""CreateDelegationToken v3 and ExpireDelegationToken v2: requests of our own, and what brokers answer.

A token is for an owner, and whoever may create it (CREATE_TOKENS on that user) may log in with it as that owner: by
SCRAM, with the token's id as the user and its HMAC in base64 as the password, and `tokenauth=true` (scram.ScramClient).

Requests begin at api_key, responses at correlation_id; no size prefix in either. Parsers raise Malformed.
Sources: Kafka's CreateDelegationTokenRequest.json, ExpireDelegationTokenRequest.json and their responses; KIP-48,
KIP-373.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final, NamedTuple

from forebay_codecs.api_keys import CREATE_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN
from forebay_codecs.header import begin_request, response_header_size
from forebay_codecs.primitives import FLEXIBLE, Reader

CREATE_VERSION: Final = 3
"""The first with an owner who is not who asks."""
EXPIRE_VERSION: Final = 2
_USER: Final = "User"
_NOW: Final = -1


class DelegationToken(NamedTuple):
    """All but `error_code` are of no use where that is not 0. Times in milliseconds since 1970, by the broker's clock.

    `requester`: who asked, as brokers know him.
    """

    error_code: int
    owner: str
    requester: str
    issued_at_ms: int
    expires_at_ms: int
    token_id: str
    hmac: bytes

    @property
    def password(self) -> str:
        """What to log in with, as `token_id`."""
        return b64encode(self.hmac).decode()

    def __repr__(self) -> str:
        return f"DelegationToken({self.error_code}, {self.owner!r}, …)"


def encode_create(correlation_id: int, client_id: str | None, owner: str, max_lifetime_ms: int, renewer: str) -> bytes:
    """Asks for a token of a user, who is not asked. `renewer`: another user who may have it expire, or live on.

    That is to be who asks: having asked for it gives no right to end it (error 63). Empty: nobody.
    """
    writer = begin_request(CREATE_DELEGATION_TOKEN, CREATE_VERSION, correlation_id, client_id, flexible=True)
    writer.nullable_string(_USER, FLEXIBLE)
    writer.nullable_string(owner, FLEXIBLE)
    writer.array(1 if renewer else 0, FLEXIBLE)
    if renewer:
        writer.string(_USER, FLEXIBLE)
        writer.string(renewer, FLEXIBLE)
        writer.tags()
    writer.i64(max_lifetime_ms)
    writer.tags()
    return writer.getvalue()


def parse_create(response: bytes) -> DelegationToken:
    """Read a broker's answer to `encode_create`."""
    reader = Reader(response, response_header_size(response, flexible=True))
    code = reader.i16()
    reader.string(FLEXIBLE)  # the owner's type
    owner = reader.string(FLEXIBLE)
    reader.string(FLEXIBLE)  # the type of who asked
    requester = reader.string(FLEXIBLE)
    issued_at = reader.i64()
    expires_at = reader.i64()
    reader.i64()  # when it expires however often it is renewed
    token_id = reader.string(FLEXIBLE)
    hmac = reader.sized_bytes(FLEXIBLE)
    reader.i32()  # throttle time
    reader.skip_tags()
    return DelegationToken(code, owner, requester, issued_at, expires_at, token_id, hmac)


def encode_expire(correlation_id: int, client_id: str | None, hmac: bytes) -> bytes:
    """Asks that a token be worth nothing from now on."""
    writer = begin_request(EXPIRE_DELEGATION_TOKEN, EXPIRE_VERSION, correlation_id, client_id, flexible=True)
    writer.sized_bytes(hmac, FLEXIBLE)
    writer.i64(_NOW)
    writer.tags()
    return writer.getvalue()


def parse_expire(response: bytes) -> int:
    """The error code of a broker's answer to `encode_expire`."""
    reader = Reader(response, response_header_size(response, flexible=True))
    code = reader.i16()
    reader.i64()
    reader.i32()
    reader.skip_tags()
    return code
