"""Who may read the admin endpoint, and by which TLS: as the settings `admin.…` say.

In: settings, and what a request shows: its Authorization header, and its client's certificate if TLS has verified one.
Out: yes or no. A token or a certificate is enough; where neither is asked for, everybody may read. What a person must
mend is raised as StartError.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping

from forebay_proxy.config.settings import Settings
from forebay_proxy.security.tls import VERSIONS, TlsContext, TlsSettings, server_context


class AdminAccess:
    """`context`: for connections to the endpoint; None: they come without TLS. Raises StartError."""

    def __init__(self, settings: Settings) -> None:
        self._token = settings.admin_bearer_token
        self._by_certificate = bool(settings.admin_ssl_truststore_location)
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

    def admits(self, authorization: str, certificate: Mapping[str, object] | None) -> bool:
        """Whether who shows these may read; empty: nothing was shown."""
        if not self._token and not self._by_certificate:
            return True
        if self._by_certificate and certificate:
            return True
        scheme, _, token = authorization.partition(" ")
        told = token.strip().encode("utf-8", "surrogateescape")
        right = hmac.compare_digest(told, self._token.reveal().encode())
        return bool(self._token) and scheme.lower() == "bearer" and right
