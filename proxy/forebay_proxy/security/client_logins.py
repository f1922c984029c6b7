"""Who may log in at a listener that terminates logins: its mechanisms, and an exchange for each login.

In: what the listener was told, and told anew when files change (`renewable`). Out: exchanges, each with what was in
force when it began.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from forebay_codecs.scram import HASHES
from forebay_proxy.config import jaas, rereading
from forebay_proxy.config.listeners import ClientListener, ListenerSettings
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import Settings
from forebay_proxy.security.client_exchanges import Exchange, PlainExchange
from forebay_proxy.security.credentials_file import read_all
from forebay_proxy.security.logins import OAUTHBEARER
from forebay_proxy.security.renewals import Renewable
from forebay_proxy.security.scram_exchange import NOBODY, ScramExchange, ScramUsers

if TYPE_CHECKING:
    from forebay_proxy.security.bearer_exchange import BearerLogins

NONCE_BYTES: Final = 18
"""Of randomness; a nonce must be new each time."""


class ClientLogins:
    """Nobody logs in by a mechanism that the listener does not have. Raises StartError for a file that is wrong."""

    def __init__(self, settings: Settings, listener: ClientListener) -> None:
        self._name = listener.name
        self.mechanisms = listener.told.sasl_enabled_mechanisms
        self._plain: Mapping[str, Secret] = {}
        self._scram = NOBODY
        self._bearer = _bearer_logins(listener.told) if OAUTHBEARER in self.mechanisms else None
        prefixes = tuple(map(listener.setting, rereading.LOGINS))
        self.renewable = Renewable("client", f"logins at listener {listener.name}", prefixes, self._prepare)
        self._prepare(settings)()

    def begin(self, mechanism: str) -> Exchange | None:
        """A login by `mechanism`; None: there is no such mechanism."""
        if mechanism not in self.mechanisms:
            return None
        if mechanism in HASHES:
            return ScramExchange(mechanism, self._scram, secrets.token_urlsafe(NONCE_BYTES))
        if mechanism == OAUTHBEARER and self._bearer is not None:
            return self._bearer.begin()
        return PlainExchange(self._plain)

    def _prepare(self, settings: Settings) -> Callable[[], None]:
        listener = next(each for each in settings.client_listeners if each.name == self._name)
        told, scram = listener.told, NOBODY
        plain = jaas.parse_users(told.plain_sasl_jaas_config) if "PLAIN" in self.mechanisms else {}
        if not set(HASHES).isdisjoint(self.mechanisms):
            scram = _scram_users(listener.setting("scram.credentials.location"), told.scram_credentials_location)
        commit_bearer = self._bearer.prepare(told) if self._bearer is not None else None

        def commit() -> None:
            self._plain, self._scram = plain, scram
            if commit_bearer is not None:
                commit_bearer()

        return commit


def _scram_users(setting: str, path: str) -> ScramUsers:
    """Without a phantom key in the file one is made of what is secret in it, the same in all processes."""
    kept = read_all(setting, path)
    made = hashlib.sha256(b"".join(each.server_key for _, each in sorted(kept.credentials.items()))).digest()
    return ScramUsers(kept.credentials, kept.phantom_key or made)


def _bearer_logins(told: ListenerSettings) -> BearerLogins:
    """Raises StartError where certificates for the issuer's endpoint cannot be used."""
    from forebay_proxy.security.bearer_exchange import BearerLogins  # whoever has no tokens needs no cryptography

    return BearerLogins(told)
