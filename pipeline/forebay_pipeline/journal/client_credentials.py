"""OAUTHBEARER: how tokens are got by client credentials (RFC 6749, 4.4), as each of two clients has to be told it.

In: who asks, and where. Out: settings of librdkafka, and of Kafka's Java client as it is in Spark's connectors, 3.4 and
3.9, which know credentials as options of `sasl.jaas.config` alone. Both ask the token endpoint themselves, and again
before a token is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

OAUTHBEARER: Final = "OAUTHBEARER"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})
"""A quoted text of Java's ends with its line."""


@dataclass(frozen=True)
class ClientCredentials:
    """`trusted`: certificates that the endpoint's is checked against, as PEM; empty: those of the system."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    trusted: str = ""

    def librdkafka(self) -> dict[str, str]:
        """What is empty is to be left out."""
        return {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.client.id": self.client_id,
            "sasl.oauthbearer.client.secret": self.client_secret,
            "sasl.oauthbearer.scope": self.scope,
            "https.ca.pem": self.trusted,
        }

    def java(self) -> dict[str, str]:
        """The secret is in `sasl.jaas.config`, which neither Kafka nor Spark shows."""
        options = {"clientId": self.client_id, "clientSecret": self.client_secret, "scope": self.scope}
        if self.trusted:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.trusted}
        said = "".join(f' {name}="{value.translate(_ESCAPED)}"' for name, value in options.items() if value)
        return {
            "sasl.login.callback.handler.class": f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.jaas.config": f"{_PACKAGE}.OAuthBearerLoginModule required{said};",
        }
