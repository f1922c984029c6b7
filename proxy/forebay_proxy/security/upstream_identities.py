"""As whom Forebay logs in at brokers for a client that has logged in here: a listener's `upstream.identity`.

    service   as itself
    mapped    as a file says of the client's principal (config.identity_map)
    client    as the client itself, by what its login has revealed
    delegation_token    as the client itself, by a token that brokers give Forebay for it

In: who a client has proved to be. Out: a login, or None for Forebay's own. Whom there is nothing for is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from forebay_codecs.scram import HASHES
from forebay_proxy.config import identity_map, rereading
from forebay_proxy.config.identity_map import ANYBODY, Target
from forebay_proxy.config.listeners import ClientListener
from forebay_proxy.config.settings import Settings
from forebay_proxy.errors import StartError
from forebay_proxy.security.client_exchanges import LoginRefused, Proved
from forebay_proxy.security.logins import DelegatedLogin, Login, PasswordLogin, Tokens
from forebay_proxy.security.renewals import Renewable

TOKEN_MECHANISM: Final = "SCRAM-SHA-512"
"""By which delegation tokens are presented where Forebay's own login is not by SCRAM; brokers know each by all."""


def read_targets(listener: ClientListener, environ: Mapping[str, str]) -> Mapping[str, Target]:
    """What the listener's file says. Raises StartError."""
    try:
        return identity_map.read(listener.told.upstream_identities_location, environ)
    except ValueError as error:
        raise StartError(f"{listener.setting('upstream.identities.location')}: {error}") from None


class UpstreamIdentities:
    """The same principal has the same login until `generation` changes. Raises StartError for a file that is wrong."""

    def __init__(
        self, settings: Settings, listener: ClientListener, tokens: Tokens, environ: Mapping[str, str] = os.environ
    ) -> None:
        """`tokens`: where delegation tokens come from."""
        self.generation = 0
        self._delegated = listener.told.upstream_identity == "delegation_token"
        self._tokens = tokens
        self._mechanism = settings.sasl_mechanism if settings.sasl_mechanism in HASHES else TOKEN_MECHANISM
        self._is_itself = listener.told.upstream_identity == "client"
        self._mapped = listener.told.upstream_identity == "mapped"
        self._name = listener.name
        self._environ = environ
        self._targets: Mapping[str, Target] = {}
        prefixes = tuple(map(listener.setting, rereading.IDENTITIES))
        self.renewable = Renewable(
            "client", f"upstream identities of listener {listener.name}", prefixes, self._prepare
        )
        self._prepare(settings)()

    @property
    def need_proof(self) -> bool:
        """Whether a broker is to take a login before its client is told that it is in: it may know another password."""
        return self._is_itself

    def of(self, proved: Proved) -> Login | None:
        """Raises LoginRefused."""
        if self._is_itself:
            return proved.login
        if self._delegated:
            return DelegatedLogin(self._mechanism, proved.user, self._tokens)
        if not self._mapped:
            return None
        target = self._targets.get(proved.principal) or self._targets.get(ANYBODY)
        if target is None:
            raise LoginRefused(f"{proved.principal} has no identity at the brokers")
        return PasswordLogin(*target)

    def _prepare(self, settings: Settings) -> Callable[[], None]:
        listener = next(each for each in settings.client_listeners if each.name == self._name)
        targets = read_targets(listener, self._environ) if self._mapped else {}

        def commit() -> None:
            if targets != self._targets:
                self._targets = targets
                self.generation += 1

        return commit
