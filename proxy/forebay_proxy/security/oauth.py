"""Tokens of an OAuth 2 server by client credentials (RFC 6749, 4.4), as Kafka's clients get them.

In: where to ask, and who asks. Out: a token that is still good for a while; whoever asks meanwhile gets the same one.
What goes wrong is raised as OSError, in one line that holds neither the secret nor the token.

The endpoint is no broker: whose certificate it may have, the options `ssl.…` of `sasl.jaas.config` say, as in Kafka.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final

import aiohttp
import msgspec

from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import Settings
from forebay_proxy.config.values import SETTINGS
from forebay_proxy.errors import StartError
from forebay_proxy.security.http_answer import whole_body
from forebay_proxy.security.tls import brokers_context, explain

TIMEOUT_S: Final = 10.0
FRESH_PART: Final = 0.8
"""Of a token's life in which it is given out: who presents it needs some of it, too."""


class _Answer(msgspec.Struct):
    access_token: str
    expires_in: float | str | None = None
    """Text is against RFC 6749, and there are servers that write it; Kafka's clients do not look at it."""


@dataclass(frozen=True)
class ClientCredentials:
    """`url` is the token endpoint's; `scope` may be empty. `context`: for TLS with it; None: the url has none."""

    url: str
    client_id: str
    client_secret: Secret
    scope: str = ""
    context: ssl.SSLContext | None = None


def endpoint_settings(options: Mapping[str, Secret]) -> Settings:
    """How a token endpoint is reached, by the options of `sasl.jaas.config`. Raises StartError."""
    told: dict[str, object] = {}
    for name, value in options.items():
        if name.startswith("ssl.") and (setting := SETTINGS.get(name)) is not None:
            if not value and name.startswith("ssl.truststore."):  # which would trust the system's authorities
                raise StartError(f"sasl.jaas.config: its option {name} is empty")
            try:
                told[setting.attribute] = setting.parse(value.reveal())
            except ValueError:
                raise StartError(f"sasl.jaas.config: its option {name} must be {setting.allowed}") from None
    return Settings(bootstrap_servers=(), **told)  # type: ignore[arg-type]


def endpoint_context(options: Mapping[str, Secret]) -> ssl.SSLContext:
    """For a token endpoint, by the options of `sasl.jaas.config`. Without any: the system's certificates.

    The host is always verified. Raises StartError.
    """
    settings = endpoint_settings(options)
    try:
        context = brokers_context(settings)
    except StartError as error:
        raise StartError(f"sasl.jaas.config: its option {error}") from None
    context.check_hostname = True
    return context


class TokenSource:
    """Asks for a token only where none is fresh, and once for all who want one."""

    def __init__(self, credentials: ClientCredentials) -> None:
        self._credentials = credentials
        self._token = Secret("")
        self._fresh_until = 0.0
        self._asking = asyncio.Lock()

    async def token(self) -> Secret:
        """A fresh token. Raises OSError where the server gives none."""
        async with self._asking:
            if monotonic() >= self._fresh_until:
                asked_at = monotonic()
                answer = await self._ask()
                self._token = Secret(answer.access_token)
                self._fresh_until = asked_at + _life_s(answer.expires_in) * FRESH_PART
            return self._token

    def forget(self) -> None:
        """The token was refused: ask for another next time."""
        self._fresh_until = 0.0

    async def _ask(self) -> _Answer:
        told = self._credentials
        form = {"grant_type": "client_credentials"} | ({"scope": told.scope} if told.scope else {})
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT_S)) as session:
                login = b64encode(f"{told.client_id}:{told.client_secret.reveal()}".encode()).decode()
                headers = {"Authorization": f"Basic {login}"}
                tls = told.context or True
                asking = session.post(told.url, data=form, headers=headers, allow_redirects=False, ssl=tls)
                async with asking as response:
                    if response.status != 200:
                        raise ConnectionError(f"the token endpoint {told.url} answered {response.status}")
                    body = await whole_body(response)
        except TimeoutError:
            raise TimeoutError(f"the token endpoint {told.url} did not answer within {TIMEOUT_S:g} s") from None
        except (aiohttp.ClientError, ValueError) as error:
            cause = error.__cause__
            why = explain(cause) if isinstance(cause, ssl.SSLError) else str(error)
            raise ConnectionError(f"the token endpoint {told.url} cannot be asked: {why}") from None
        try:
            return msgspec.json.decode(body, type=_Answer)
        except (ValueError, RecursionError):  # not UTF-8, or nested too deep
            raise ConnectionError(f"the token endpoint {told.url} answered without a token") from None


def _life_s(told: float | str | None) -> float:
    """0 where it is not told, or is no number."""
    try:
        life_s = float(told or 0)
    except ValueError:
        return 0.0
    return max(0.0, life_s) if math.isfinite(life_s) else 0.0
