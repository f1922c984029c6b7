"""OAUTHBEARER at Forebay itself (RFC 7628), as Kafka's brokers have it.

    client: the token ──valid──▶ server: nothing, and it is who it is until the token expires
                      ──other──▶ server: {"status":"invalid_token"} ──▶ client: ^A ──▶ refused

In: a client's bytes. Out: what is answered, and who the client is (client_exchanges).
"""

from __future__ import annotations

from typing import Final

from forebay_codecs.bearer_initial import parse_initial
from forebay_proxy.security.client_exchanges import LoginRefused, Proved, Said
from forebay_proxy.security.jwt_validator import JwtValidator
from forebay_proxy.security.logins import OAUTHBEARER

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
