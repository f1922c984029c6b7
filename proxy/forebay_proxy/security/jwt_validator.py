"""Whether a token (a JWT, RFC 7519) is one of an issuer's, for us, and still good; and whose it is.

In: a token as a client presents it. Out: its user and when it expires. Any other one raises LoginRefused, in words for
the log that hold nothing of it.

What must be right, as with Kafka's brokers (KIP-768): the signature, by a key of the issuer (jwk_set); `iss`; one of
the `aud`; `exp` and `nbf`, but for `clock_skew_s`; and there must be `exp`, `iat` and the claim that names the
user, with a text. Nothing in the token says where its key is to be had: `jku`, `x5u` and `jwk` are not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import jwt

from forebay_proxy.security.client_exchanges import LoginRefused
from forebay_proxy.security.jwk_set import JwkSet

MAX_TOKEN: Final = 128 << 10
"""Bytes. Those with groups of a large directory have some ten thousand."""
_BLANKS: Final = "".join(map(chr, range(33)))
"""What Kafka trims."""


@dataclass(frozen=True)
class Expected:
    """What a token must say. `sub_claim_name`: which claim is the user."""

    issuer: str
    audience: Sequence[str]
    sub_claim_name: str = "sub"
    clock_skew_s: int = 30


class ValidToken(NamedTuple):
    """`expires_at` in seconds since 1970."""

    user: str
    expires_at: float


class JwtValidator:
    """Of one issuer's tokens."""

    def __init__(self, keys: JwkSet, expected: Expected) -> None:
        self._keys = keys
        self._expected = expected

    async def validate(self, token: str) -> ValidToken:
        """Raises LoginRefused."""
        if len(token) > MAX_TOKEN:
            raise LoginRefused(f"the token is larger than {MAX_TOKEN} bytes")
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            key = await self._keys.key(key_id, algorithm) if isinstance(algorithm, str) else None
            if key is None:
                raise LoginRefused("the token is signed with no key of the issuer")
            claims = jwt.decode(
                token,
                key.key,  # type: ignore[arg-type]  # one of PyJWT's own kinds
                algorithms=sorted(key.algorithms),
                audience=self._expected.audience,
                issuer=self._expected.issuer,
                leeway=self._expected.clock_skew_s,
                options={
                    "require": ["exp", "iat", self._expected.sub_claim_name],
                    "verify_sub": False,  # which claim it is, is looked at below
                    "verify_jti": False,
                    "verify_iat": False,  # it must be there; brokers do not mind when it was
                },
            )
        except (jwt.PyJWTError, ValueError, OverflowError, RecursionError) as error:
            raise LoginRefused(f"the token is not valid: {type(error).__name__}") from None
        user, expires_at = claims[self._expected.sub_claim_name], claims["exp"]
        if not isinstance(user, str) or not (name := user.strip(_BLANKS)) or not _is_text(name):
            raise LoginRefused(f"the token's {self._expected.sub_claim_name} is no name")
        if isinstance(expires_at, bool) or not isinstance(expires_at, int | float):
            raise LoginRefused("the token's exp is no number")
        return ValidToken(name, float(expires_at))


def _is_text(name: str) -> bool:
    """JSON may hold halves of characters (`\\ud800`), which nobody can write down."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
