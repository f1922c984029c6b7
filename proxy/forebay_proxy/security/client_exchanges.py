"""Logins at Forebay itself: one exchange for each, the server's side of a SASL mechanism.

In: a client's bytes. Out: what is answered, and who the client has proved to be, once it has. Who has not raises
LoginRefused, or Malformed for what the mechanism does not allow; their words are for the log, and tell no secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from forebay_codecs import sasl
from forebay_proxy.config.secret import Secret
from forebay_proxy.security.logins import PLAIN, Login


class LoginRefused(Exception):
    """Whoever it is, it is not whom it says it is."""


class Proved(NamedTuple):
    """Who a client is. `expires_at`: until when that is known, in seconds since 1970; 0: for ever.

    `login`: with what Forebay can log in as it; None: it cannot.
    """

    user: str
    mechanism: str
    expires_at: float = 0.0
    login: Login | None = None

    @property
    def principal(self) -> str:
        """As Kafka writes it."""
        return f"User:{self.user}"


class Said(NamedTuple):
    """What is answered; `proved`: who the client is, None while the exchange goes on."""

    token: bytes
    proved: Proved | None = None


class Exchange(Protocol):
    """One login."""

    async def step(self, token: bytes) -> Said:
        """Answer the client's next bytes. Not called any more after it has raised, or said who the client is."""


class PlainExchange:
    """PLAIN (RFC 4616), as Kafka has it: one message, which names nobody but the user himself."""

    def __init__(self, users: Mapping[str, Secret]) -> None:
        self._users = users

    async def step(self, token: bytes) -> Said:
        user, password = sasl.parse_plain(token)
        known = self._users.get(user, Secret(""))
        if not (known == Secret(password) and known):
            raise LoginRefused("wrong user or password")
        return Said(b"", Proved(user, PLAIN))
