"""Who may read the admin endpoint, who may change things there, and by which TLS: as the settings `admin.…` say.

In: settings, and what a request shows: its Authorization header, and its client's certificate if TLS has verified one.
Out: its Standing; None: it has none. To read, a token or a certificate is enough; where neither is asked for, everybody
may. To change, the token for changes is needed, whatever else is shown. What a person must mend raises StartError.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping
from enum import Enum

from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import Settings
from forebay_proxy.security.tls import VERSIONS, TlsContext, TlsSettings, server_context


class Standing(Enum):
    """What who asks may do."""

    READER = "reader"
    CHANGER = "changer"
    """By TCP, with the token for changes."""
    OWNER = "owner"
    """By the socket: whoever may use its file may do everything."""


class AdminAccess:
    """`context`: for connections to the endpoint; None: they come without TLS. Raises StartError."""

    def __init__(self, settings: Settings) -> None:
        self._token = settings.admin_bearer_token
        self._change_token = settings.admin_change_token
        self._by_certificate = bool(settings.admin_ssl_truststore_location)
        self.is_open = not self._token and not self._by_certificate
        """Everybody may read."""
        self.context: TlsContext | None = None
        if settings.admin_ssl_keystore_location:
            stores = TlsSettings(
                tuple(VERSIONS),
                truststore_location=settings.admin_ssl_truststore_location,
                keystore_location=settings.admin_ssl_keystore_location,
                key_password=settings.admin_ssl_key_password,
                prefix="admin.",
            )
            # Probes have no certificate, so one is never required.
            self.context = server_context(stores, "requested" if self._by_certificate else "none")

    @property
    def expires_at(self) -> float:
        """When the endpoint's certificate expires, in seconds since 1970; inf: it has none."""
        return math.inf if self.context is None else self.context.expires_at

    def standing(self, authorization: str, certificate: Mapping[str, object] | None) -> Standing | None:
        """Of who shows these; empty: nothing was shown."""
        if _shows(authorization, self._change_token):
            return Standing.CHANGER
        if self.is_open:
            return Standing.READER
        if (self._by_certificate and certificate) or _shows(authorization, self._token):
            return Standing.READER
        return None


def _shows(authorization: str, expected: Secret) -> bool:
    scheme, _, token = authorization.partition(" ")
    told = token.strip().encode("utf-8", "surrogateescape")
    right = hmac.compare_digest(told, expected.reveal().encode())
    return bool(expected) and scheme.lower() == "bearer" and right
