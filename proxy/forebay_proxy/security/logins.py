"""What clients present to brokers, as far as Forebay can present it again: a password, or a token that can be read.

In: a mechanism's bytes. Out: a login, which says nothing of whether it is right: that is the broker's to judge. Raises
Malformed for what Forebay cannot present as the same identity again.

A token (OAUTHBEARER) is for a while, and another one follows it. Both are the same identity if they say the same of it:
all claims but those of the token's own time and number, and the SASL extensions. The user's name alone is not enough:
brokers may grant by scopes, groups or an identity pool.
"""

from __future__ import annotations

import sys
from base64 import urlsafe_b64decode
from typing import Final, NamedTuple, Protocol

import msgspec

from forebay_codecs import sasl
from forebay_codecs.errors import Malformed
from forebay_codecs.scram_credential import ScramCredential
from forebay_proxy.config.secret import Secret

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"

OF_THE_TOKEN: Final = frozenset({"iat", "exp", "nbf", "jti", "auth_time", "uti", "aio", "xms_ftd"})
"""Claims that say nothing of whom the token is for (RFC 7519; OpenID Connect; Microsoft's Entra ID)."""
_SEGMENTS: Final = 3


class BearerLogin(NamedTuple):
    """A token. `username`: its subject, empty where it has none. `authority`: all that it says of whom it is for."""

    username: str
    token: Secret
    authority: str
    expires_at: float
    extensions: tuple[tuple[str, str], ...] = ()

    @property
    def identity(self) -> tuple[str, ...]:
        """What brokers may tell apart."""
        return OAUTHBEARER, self.username, self.authority


class PasswordLogin(NamedTuple):
    """A name and a password for a mechanism: what a client has presented (PLAIN), or what stands for it (mapped)."""

    mechanism: str
    username: str
    password: Secret

    @property
    def identity(self) -> tuple[str, ...]:
        """What brokers may tell apart."""
        return self.mechanism, self.username, self.password.reveal()

    @property
    def expires_at(self) -> float:
        """Seconds since 1970; 0: it does not by itself."""
        return 0.0


class ScramKeyLogin(NamedTuple):
    """What a login by SCRAM has revealed: no password, but the key that proves it is known where the same is kept.

    `client_key` in hexadecimal digits. `kept`: what is kept here of the user.
    """

    mechanism: str
    username: str
    client_key: Secret
    kept: ScramCredential

    @property
    def identity(self) -> tuple[str, ...]:
        """What brokers may tell apart."""
        return self.mechanism, self.username, self.client_key.reveal()

    @property
    def expires_at(self) -> float:
        """Seconds since 1970; 0: it does not by itself."""
        return 0.0


class Token(NamedTuple):
    """A delegation token, as it is logged in with by SCRAM (KIP-48)."""

    token_id: str
    password: Secret


class Tokens(Protocol):
    """Where tokens come from that make Forebay somebody else at brokers, whose owners are known by their names."""

    async def of(self, owner: str) -> Token:
        """One that is good for a while. Raises OSError where brokers give none."""

    def refused(self, owner: str) -> bool:
        """A broker does not take the one that was given last. Returns whether it may not have heard of it yet."""

    def end(self, owner: str) -> None:
        """Nobody is there any more who would use it."""


class DelegatedLogin(NamedTuple):
    """Somebody who has logged in here, as whom a delegation token lets Forebay log in by SCRAM: always the newest."""

    mechanism: str
    username: str
    tokens: Tokens

    @property
    def identity(self) -> tuple[str, ...]:
        """What brokers may tell apart: the owner, not the token."""
        return self.mechanism, self.username, "tokenauth", "true"

    @property
    def expires_at(self) -> float:
        """Seconds since 1970; 0: it does not by itself, since another token follows."""
        return 0.0


Login = BearerLogin | PasswordLogin | ScramKeyLogin | DelegatedLogin


def read_login(mechanism: str, token: bytes) -> Login:
    """Of a mechanism's first bytes. Raises Malformed, also for other mechanisms."""
    if mechanism == PLAIN:
        username, password = sasl.parse_plain(token)
        return PasswordLogin(PLAIN, username, Secret(password))
    if mechanism == OAUTHBEARER:
        return read_bearer(*sasl.parse_bearer(token))
    raise Malformed(f"a login by {mechanism} cannot be presented again")


def read_bearer(token: str, extensions: dict[str, str]) -> BearerLogin:
    """A JWT as it is signed (RFC 7519, 7515); the signature is the broker's to check. Raises Malformed for others."""
    segments = token.split(".")
    if len(segments) != _SEGMENTS:
        raise Malformed("the token is not a JWT")
    told = tuple(sorted(extensions.items()))
    try:
        claims = _claims(segments[1])
        lasting = {name: value for name, value in claims.items() if name not in OF_THE_TOKEN}
        authority = msgspec.json.encode([lasting, told], order="sorted").decode()
    except (ValueError, OverflowError, RecursionError):  # whoever connects may send what no issuer writes
        raise Malformed("the token is not a JWT") from None
    subject, expires_at = claims.get("sub"), _expiry(claims.get("exp"))
    return BearerLogin(subject if isinstance(subject, str) else "", Secret(token), authority, expires_at, told)


def _claims(segment: str) -> dict[str, object]:
    return msgspec.json.decode(urlsafe_b64decode(segment + "=" * (-len(segment) % 4)), type=dict[str, object])


def _expiry(told: object) -> float:
    if isinstance(told, bool) or not isinstance(told, int | float) or not abs(told) <= sys.float_info.max:
        raise Malformed("the token does not say when it expires")
    return float(told)
