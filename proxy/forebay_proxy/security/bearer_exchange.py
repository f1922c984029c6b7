"""OAUTHBEARER at Forebay itself (RFC 7628), as Kafka's brokers have it.

    client: the token ──valid──▶ server: nothing, and it is who it is until the token expires
                      ──other──▶ server: {"status":"invalid_token"} ──▶ client: ^A ──▶ refused

In: a client's bytes. Out: what is answered, and who the client is (client_exchanges).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from forebay_codecs.bearer_initial import parse_initial
from forebay_proxy.config import jaas
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.config.secret import Secret
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


def exchanges(told: ListenerSettings) -> Callable[[], BearerExchange]:
    """A new exchange each time, all with the keys of one issuer: as a listener was told of it.

    Raises StartError where certificates for the issuer's endpoint cannot be used.
    """
    url = told.sasl_oauthbearer_jwks_endpoint_url
    options: Mapping[str, Secret] = {}
    if told.oauthbearer_sasl_jaas_config:
        options = jaas.parse(told.oauthbearer_sasl_jaas_config).options
    context = endpoint_context(options) if url.startswith("https://") else None
    expected = Expected(
        told.sasl_oauthbearer_expected_issuer,
        told.sasl_oauthbearer_expected_audience,
        told.sasl_oauthbearer_sub_claim_name,
        told.sasl_oauthbearer_clock_skew_seconds,
    )
    keys = JwkSet(url, told.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000, context)
    validator = JwtValidator(keys, expected)
    return lambda: BearerExchange(validator)
