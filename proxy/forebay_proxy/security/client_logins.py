"""Who may log in at a listener that terminates logins: its mechanisms, and an exchange for each login.

In: what the listener was told, and told anew when files change (`renewable`). Out: exchanges, each with what was in
force when it began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forebay_proxy.config import jaas
from forebay_proxy.config.listeners import ClientListener
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import Settings
from forebay_proxy.security.client_exchanges import Exchange, PlainExchange
from forebay_proxy.security.renewals import Renewable


class ClientLogins:
    """Nobody logs in by a mechanism that the listener does not have."""

    def __init__(self, settings: Settings, listener: ClientListener) -> None:
        self._name = listener.name
        self.mechanisms = listener.told.sasl_enabled_mechanisms
        self._plain: Mapping[str, Secret] = {}
        prefixes = (listener.setting("plain."),)
        self.renewable = Renewable("client", f"logins at listener {listener.name}", prefixes, self._prepare)
        self._prepare(settings)()

    def begin(self, mechanism: str) -> Exchange | None:
        """A login by `mechanism`; None: there is no such mechanism."""
        if mechanism not in self.mechanisms:
            return None
        return PlainExchange(self._plain)

    def _prepare(self, settings: Settings) -> Callable[[], None]:
        told = next(each.told for each in settings.client_listeners if each.name == self._name)
        plain = jaas.parse_users(told.plain_sasl_jaas_config) if "PLAIN" in self.mechanisms else {}

        def commit() -> None:
            self._plain = plain

        return commit
