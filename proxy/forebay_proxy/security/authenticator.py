"""Proves to brokers who we are, by SASL: with one service identity, or as a client whose login has been seen.

In: a function that sends one request on a connection and waits for its response. Out: how long the broker takes it for
proved. A broker that refuses, or that does not prove to know the password where the mechanism asks for it, raises
AuthenticationFailed; a connection that ends raises what the function raises.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from forebay_codecs import sasl, scram
from forebay_codecs.error_codes import NONE
from forebay_codecs.errors import Malformed
from forebay_proxy.config import jaas
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import Settings
from forebay_proxy.security.logins import (
    OAUTHBEARER,
    PLAIN,
    BearerLogin,
    DelegatedLogin,
    Login,
    PasswordLogin,
    ScramKeyLogin,
)
from forebay_proxy.security.oauth import ClientCredentials, TokenSource, endpoint_context

CLIENT_ID: Final = "forebay"
_KEPT_OTHERWISE: Final = "the broker keeps another salt of the user than Forebay: make both by `forebay users add`"
MAX_SALTED: Final = 16
"""Salted passwords that are kept: brokers share one salt a user, or have had a few."""

Call = Callable[[Callable[[int], bytes]], Awaitable[bytes]]
Exchange = AsyncGenerator[bytes, bytes]
"""Yields what to send, and is sent what the broker answered; it ends when nothing more is to be sent."""


class AuthenticationFailed(ConnectionError):
    """The broker does not take us for whom we say we are: nothing to do with whether it can be reached."""


class NotKnownYet(AuthenticationFailed):
    """A delegation token that is so new that this broker may not have heard of it: to be tried again in a moment."""


class Authenticator:
    """Each exchange begins anew, with a nonce of its own; slow hashing is done once a salt, beside the event loop.

    Raises StartError where certificates for the token endpoint cannot be used.
    """

    def __init__(self, settings: Settings, of_client: Login | None = None) -> None:
        """`of_client`: as whom, instead of what the settings say."""
        self._of_client = of_client
        self.mechanism = of_client.identity[0] if of_client is not None else settings.sasl_mechanism
        login = jaas.parse(settings.sasl_jaas_config) if settings.sasl_jaas_config else None
        options = login.options if login is not None else {}
        nothing = Secret("")
        self._username = options.get("username", nothing).reveal()
        self._password = options.get("password", nothing)
        if isinstance(of_client, PasswordLogin):
            _, self._username, self._password = of_client
        elif of_client is not None:
            self._username = of_client.username
        self._salted: dict[scram.Challenge, bytes] = {}
        client_id = settings.sasl_oauthbearer_client_credentials_client_id
        self._client_id = client_id or options.get("clientId", nothing).reveal()
        url = settings.sasl_oauthbearer_token_endpoint_url
        asks_by_tls = of_client is None and self.mechanism == OAUTHBEARER and url.startswith("https://")
        self._tokens = TokenSource(
            ClientCredentials(
                url,
                self._client_id,
                settings.sasl_oauthbearer_client_credentials_client_secret or options.get("clientSecret", nothing),
                settings.sasl_oauthbearer_scope or options.get("scope", nothing).reveal(),
                endpoint_context(options) if asks_by_tls else None,
            )
        )

    @property
    def username(self) -> str:
        """As whom, where the mechanism has users."""
        return self._username

    @property
    def identity(self) -> tuple[str, ...]:
        """What a broker does not let change during a session: mechanism, user and client id; of a client all."""
        if self._of_client is not None:
            return self._of_client.identity
        return self.mechanism, self._username, self._client_id

    async def authenticate(self, call: Call, version: int) -> float:
        """Go through one exchange, with SaslAuthenticate of a `version`.

        Returns the seconds after which the broker wants another one; 0: it wants none. Raises AuthenticationFailed.
        """
        exchange = self._exchange()
        try:
            return await self._talk(exchange, call, version)
        except Malformed as error:
            raise AuthenticationFailed(str(error)) from None
        except AuthenticationFailed:
            self._tokens.forget()
            raise
        finally:
            await exchange.aclose()

    async def _talk(self, exchange: Exchange, call: Call, version: int) -> float:
        # What may take its time comes first: from the handshake on the broker waits.
        token = await anext(exchange)
        asked = lambda number: sasl.handshake_request(number, CLIENT_ID, self.mechanism)  # noqa: E731
        handshake = sasl.parse_handshake(await call(asked))
        if handshake.error_code != NONE:
            has = ", ".join(handshake.mechanisms) or "none"
            raise AuthenticationFailed(f"the broker does not offer {self.mechanism}; it has {has}")
        while True:
            said = await self._say(token, call, version)
            try:
                token = await exchange.asend(said.auth_bytes)
            except StopAsyncIteration:
                return said.session_lifetime_ms / 1000

    async def _say(self, token: bytes, call: Call, version: int) -> sasl.Authenticated:
        response = await call(lambda number: sasl.authenticate_request(number, CLIENT_ID, version, token))
        said = sasl.parse_authenticate(response, version)
        if said.error_code != NONE:
            why = said.error_message or f"the broker answered with error {said.error_code}"
            login = self._of_client
            is_new = isinstance(login, DelegatedLogin) and login.tokens.refused(login.username)
            raise NotKnownYet(why) if is_new else AuthenticationFailed(why)
        return said

    def _exchange(self) -> Exchange:
        if isinstance(self._of_client, DelegatedLogin):
            return self._by_token(self._of_client)
        if self.mechanism == PLAIN:
            return self._plain()
        return self._bearer() if self.mechanism == OAUTHBEARER else self._scram()

    async def _plain(self) -> Exchange:
        yield sasl.plain(self._username, self._password.reveal())

    async def _scram(self) -> Exchange:
        client = scram.ScramClient(self.mechanism, self._username, secrets.token_urlsafe(18))
        challenge = client.challenge((yield client.first()))
        login = self._of_client
        if isinstance(login, ScramKeyLogin):
            if challenge != (login.kept.salt, login.kept.iterations):
                raise AuthenticationFailed(_KEPT_OTHERWISE)
            final = client.final_of(bytes.fromhex(login.client_key.reveal()), login.kept.server_key)
        else:
            final = client.final(await self._salt(challenge, self._password))
        client.verify((yield final))

    async def _by_token(self, login: DelegatedLogin) -> Exchange:
        try:
            token = await login.tokens.of(login.username)
        except OSError as error:  # that there is none says nothing of this broker
            raise AuthenticationFailed(str(error)) from None
        client = scram.ScramClient(self.mechanism, token.token_id, secrets.token_urlsafe(18), by_token=True)
        challenge = client.challenge((yield client.first()))
        client.verify((yield client.final(await self._salt(challenge, token.password))))

    async def _bearer(self) -> Exchange:
        refusal = yield await self._bearer_first()
        if refusal:  # success is empty; an error is told first, and the refusal itself follows our answer
            yield sasl.BEARER_REFUSED
            raise AuthenticationFailed("the broker refuses the token")

    async def _bearer_first(self) -> bytes:
        if isinstance(self._of_client, BearerLogin):
            return sasl.bearer(self._of_client.token.reveal(), self._of_client.extensions)
        try:
            token = await self._tokens.token()
        except OSError as error:  # that a token cannot be had says nothing of the broker
            raise AuthenticationFailed(str(error)) from None
        return sasl.bearer(token.reveal())

    async def _salt(self, challenge: scram.Challenge, password: Secret) -> bytes:
        salted = self._salted.get(challenge)
        if salted is None:
            salted = await asyncio.to_thread(scram.salt_password, self.mechanism, password.reveal(), challenge)
            if len(self._salted) >= MAX_SALTED:
                self._salted.clear()
            self._salted[challenge] = salted
        return salted
