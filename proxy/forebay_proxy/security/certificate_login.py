"""The login that a certificate is, on a listener with TLS and without SASL, as for Kafka's brokers.

In: the certificate that a client has shown, and that its authority is trusted is known already. Out: who it is, by
`ssl.principal.mapping.rules`; without a certificate ANONYMOUS. Whom no rule has a name for is refused.
"""

from __future__ import annotations

from typing import Final

from forebay_proxy.config.principal_mapper import PrincipalMapper
from forebay_proxy.security import distinguished_name
from forebay_proxy.security.client_exchanges import LoginRefused, Proved

ANONYMOUS: Final = "ANONYMOUS"


class CertificateLogin:
    """By these rules, which were looked at before."""

    def __init__(self, rules: str) -> None:
        self._mapper = PrincipalMapper(rules)

    def of(self, certificate: bytes | None) -> Proved:
        """Whom a certificate, in DER form, makes its owner. Raises LoginRefused."""
        if certificate is None:
            return Proved(ANONYMOUS, "")
        try:
            user = self._mapper.name(distinguished_name.subject(certificate))
        except ValueError as error:
            raise LoginRefused(str(error)) from None
        if not user:
            raise LoginRefused("the certificate names nobody")
        return Proved(user, "")
