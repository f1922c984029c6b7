"""The keys with which an issuer signs its tokens (RFC 7517), as its endpoint tells them: a few, for a while.

In: a URL, and the key's id that a token names. Out: that key, with the algorithms that may be used with it; only
asymmetric ones, whatever the token or the endpoint say, since what checks a signature must not be able to make one.
Nothing is taken from the token but the id.

Keys are asked for by the first token, every `refresh_s` after that, while those that are there go on to serve, and for
an id that is not known. But never more often than every 10 s, so that nobody can have Forebay ask for invented ids all
the time; and for all who wait together. An endpoint that fails is told in the log, and what it said last stays.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final, NamedTuple

import aiohttp
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.security.http_answer import whole_body
from forebay_proxy.security.tls import explain

MAX_KEYS: Final = 100
TIMEOUT_S: Final = 5.0
"""A client has twice as long for its whole login."""
ASK_AGAIN_S: Final = 10.0
LEAST_RSA_BITS: Final = 2048
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_BY_CURVE: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}

Json = dict[str, object]


class SigningKey(NamedTuple):
    """`key` as PyJWT takes it; `algorithms` with which it may be used."""

    key_id: str | None
    key: object
    algorithms: frozenset[str]


class _Answer(msgspec.Struct):
    keys: list[Json]


class JwkSet:
    """`context`: for TLS with the endpoint; None: its URL has none. `now` as time.monotonic."""

    def __init__(
        self, url: str, refresh_s: float, context: ssl.SSLContext | None = None, now: Callable[[], float] = monotonic
    ) -> None:
        self._url = url
        self._refresh_s = refresh_s
        self._context = context
        self._now = now
        self._log = RateLimited(get_logger())
        self._keys: list[SigningKey] = []
        self._known_at = -math.inf
        self._asked_at = -math.inf
        self._asking: asyncio.Task[None] | None = None

    def use(self, context: ssl.SSLContext | None) -> None:
        """Another `context` from now on, with which the endpoint may be asked at once."""
        self._context = context
        self._asked_at = -math.inf

    async def key(self, key_id: str | None, algorithm: str) -> SigningKey | None:
        """The key of that id for an algorithm; without an id, the only key for it. None: there is none."""
        if self._now() >= self._known_at + self._refresh_s:
            self._ask()
        found = self._find(key_id, algorithm)
        if found is None and self._ask():
            assert self._asking is not None
            await asyncio.shield(self._asking)
            found = self._find(key_id, algorithm)
        return found

    def _find(self, key_id: str | None, algorithm: str) -> SigningKey | None:
        found = [key for key in self._keys if algorithm in key.algorithms and (key_id is None or key.key_id == key_id)]
        return found[0] if len(found) == 1 else None

    def _ask(self) -> bool:
        """Have the endpoint asked, unless it was a moment ago. Whether it is being asked."""
        if self._asking is None and self._now() >= self._asked_at + ASK_AGAIN_S:
            self._asked_at = self._now()
            self._asking = asyncio.get_running_loop().create_task(self._renew())
        return self._asking is not None

    async def _renew(self) -> None:
        asked_at = self._now()
        try:
            self._keys = list(_signing_keys(await self._fetch()))
            self._known_at = asked_at
        except OSError as error:
            self._log.warning("an issuer does not tell its keys: those known before stay", error=str(error))
        finally:
            self._asking = None

    async def _fetch(self) -> list[Json]:
        """Raises OSError, in one line."""
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT_S)) as session:
                tls = self._context or True
                async with session.get(self._url, allow_redirects=False, ssl=tls) as response:
                    if response.status != 200:
                        raise ConnectionError(f"{self._url} answered {response.status}")
                    body = await whole_body(response)
        except TimeoutError:
            raise TimeoutError(f"{self._url} did not answer within {TIMEOUT_S:g} s") from None
        except (aiohttp.ClientError, ValueError) as error:
            cause = error.__cause__
            why = explain(cause) if isinstance(cause, ssl.SSLError) else str(error)
            raise ConnectionError(f"{self._url} cannot be asked: {why}") from None
        try:
            keys = msgspec.json.decode(body, type=_Answer).keys
        except (ValueError, RecursionError):
            raise ConnectionError(f"{self._url} answered without keys") from None
        if len(keys) > MAX_KEYS:
            raise ConnectionError(f"{self._url} answered with more than {MAX_KEYS} keys")
        return keys


def _signing_keys(told: list[Json]) -> Iterator[SigningKey]:
    """Those that can be used here; others are for somebody else, or for later."""
    for each in told:
        algorithms = _algorithms(each)
        if not algorithms or each.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK(each, algorithm=min(algorithms)).key
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        if isinstance(key, RSAPublicKey) and key.key_size < LEAST_RSA_BITS:
            continue
        key_id = each.get("kid")
        yield SigningKey(key_id if isinstance(key_id, str) else None, key, algorithms)


def _algorithms(key: Json) -> frozenset[str]:
    kind, curve = key.get("kty"), key.get("crv")
    possible: frozenset[str] = frozenset()
    if kind == "RSA":
        possible = _RSA
    elif kind in ("EC", "OKP") and isinstance(curve, str) and curve in _BY_CURVE:
        possible = frozenset({_BY_CURVE[curve]})
    return possible & {str(key["alg"])} if "alg" in key else possible
