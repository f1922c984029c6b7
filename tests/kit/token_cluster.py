"""A Kafka that takes nobody without a token of an issuer, and without TLS: the issuer's endpoint speaks it, too.

    with Tokens(folder) as tokens, tokens.cluster() as cluster:
        … cluster.bootstrap, tokens.client_file("jobs", "secret") …

Brokers check tokens against the key that the issuer had at first, and know a user by the client's id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.kit.certificates import Authority, server_context
from tests.kit.issuer import AUDIENCE, ISSUER, Issuer
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK
from tests.kit.sasl import MODULES, quoted

OAUTHBEARER = "OAUTHBEARER"
_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


class Tokens:
    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self._certificate = self.authority.issue("token-cluster", LOOPBACK)
        context = server_context(self._certificate)
        self.issuer = Issuer(context)
        self._folder = folder
        self._keys = folder / "keys.json"
        self._keys.write_text(json.dumps({"keys": self.issuer.keys}))

    def __enter__(self) -> Self:
        self.issuer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.issuer.__exit__(kind, error, at)

    @contextmanager
    def cluster(self) -> Iterator[KafkaCluster]:
        """Of one broker, of the newest version."""
        with ExitStack() as stack:
            with pytest.MonkeyPatch.context() as patch:
                allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed."
                patch.setenv("JAVA_TOOL_OPTIONS", f"{allowed}urls={self._keys.as_uri()} {allowed}files={self._keys}")
                cluster = KafkaCluster("4.3.1", brokers=1, settings=self._broker_settings())
                stack.enter_context(cluster)
            yield cluster

    def _broker_settings(self) -> dict[str, str]:
        prefix = "listener.name.client."
        mine = f"{prefix}oauthbearer.sasl."
        return {
            **self.authority.listener_settings(self._certificate),
            "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"{prefix}sasl.enabled.mechanisms": OAUTHBEARER,
            f"{mine}jaas.config": f"{MODULES[OAUTHBEARER]} required;",
            f"{mine}server.callback.handler.class": _VALIDATOR,
            f"{mine}oauthbearer.jwks.endpoint.url": self._keys.as_uri(),
            f"{mine}oauthbearer.expected.issuer": ISSUER,
            f"{mine}oauthbearer.expected.audience": AUDIENCE,
        }

    def client_file(self, user: str, secret: str, settings: Mapping[str, str] | None = None) -> Path:
        """For --command-config: Kafka's clients ask the issuer for tokens. `settings` are over those."""
        path = self._folder / "client.properties"
        path.touch(mode=0o600)
        lines = {**self._client_settings(user, secret), **(settings or {})}
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return path

    def _client_settings(self, user: str, secret: str) -> dict[str, str]:
        login = f"clientId={quoted(user)} clientSecret={quoted(secret)}"
        trust = f"ssl.truststore.type=PEM ssl.truststore.location={quoted(str(self.authority.pem))}"
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.pem),
            "sasl.mechanism": OAUTHBEARER,
            "sasl.login.callback.handler.class": _VALIDATOR.replace("Validator", "Login"),
            "sasl.oauthbearer.token.endpoint.url": self.issuer.token_url,
            "sasl.jaas.config": f"{MODULES[OAUTHBEARER]} required {login} {trust};",
        }
