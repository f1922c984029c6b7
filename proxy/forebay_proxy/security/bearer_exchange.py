"""OAUTHBEARER at Forebay itself (RFC 7628), as Kafka's brokers have it.

    client: the token ──valid──▶ server: nothing, and it is who it is until the token expires
                      ──other──▶ server: {"status":"invalid_token"} ──▶ client: ^A ──▶ refused

In: a client's bytes. Out: what is answered, and who the client is (client_exchanges).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

from forebay_codecs.bearer_initial import parse_initial
from forebay_proxy.config import jaas
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.security.client_exchanges import LoginRefused, Proved, Said
from forebay_proxy.security.jwk_set import JwkSet
from forebay_proxy.security.jwt_validator import Expected, JwtValidator
from forebay_proxy.security.logins import OAUTHBEARER
from forebay_proxy.security.oauth import endpoint_context

INVALID_TOKEN: Final = b'{"status":"invalid_token"}'


class BearerExchange:
    """One login."""

    def __init__(self, validator: JwtValidator) -> None:
        self._validator = validator
        self._why_refused = ""

    async def step(self, token: bytes) -> Said:
        if self._why_refused:  # it has been told, and only then it is over
            raise LoginRefused(self._why_refused)
        asked = parse_initial(token)
        try:
            valid = await self._validator.validate(asked.token)
        except LoginRefused as error:
            self._why_refused = str(error)
            return Said(INVALID_TOKEN)
        if asked.authzid not in ("", valid.user):
            raise LoginRefused("the client wants to be somebody else than its token is for")
        return Said(b"", Proved(valid.user, OAUTHBEARER, valid.expires_at))


class BearerLogins:
    """By tokens of one issuer, as a listener was told of it.

    Raises StartError where certificates for the issuer's endpoint cannot be used.
    """

    def __init__(self, told: ListenerSettings) -> None:
        expected = Expected(
            told.sasl_oauthbearer_expected_issuer,
            told.sasl_oauthbearer_expected_audience,
            told.sasl_oauthbearer_sub_claim_name,
            told.sasl_oauthbearer_clock_skew_seconds,
        )
        refresh_s = told.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
        self._keys = JwkSet(told.sasl_oauthbearer_jwks_endpoint_url, refresh_s, _context(told))
        self._validator = JwtValidator(self._keys, expected)

    def begin(self) -> BearerExchange:
        """A login."""
        return BearerExchange(self._validator)

    def prepare(self, told: ListenerSettings) -> Callable[[], None]:
        """Make anew what stands in files; what puts it in place. The keys that are known stay. Raises StartError."""
        return partial(self._keys.use, _context(told))


def _context(told: ListenerSettings) -> ssl.SSLContext | None:
    """For TLS with the issuer's endpoint."""
    if not told.sasl_oauthbearer_jwks_endpoint_url.startswith("https://"):
        return None
    line = told.oauthbearer_sasl_jaas_config
    return endpoint_context(jaas.parse(line).options if line else {})
