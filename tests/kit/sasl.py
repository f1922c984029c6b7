"""A Kafka whose CLIENT listener takes no one without a login, and users for it.

    secured = Secured(tmp_path, reauth_ms=4_000)
    with KafkaCluster("4.3.1", settings=secured.broker_settings()) as cluster:
        secured.add_users(cluster)
        … ForebayProcess(…, settings=secured.forebay_settings("SCRAM-SHA-512")) …

PLAIN and SCRAM know one user; OAUTHBEARER takes tokens without a signature, as only a test's Kafka does.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.kit.certificates import Authority
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK

USER, PASSWORD = "forebay", "pass=word, 1"
_PACKAGE = "org.apache.kafka.common.security."
_MODULES = {
    "PLAIN": f"{_PACKAGE}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_PACKAGE}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_PACKAGE}scram.ScramLoginModule",
    "OAUTHBEARER": f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule",
}
MECHANISMS = tuple(_MODULES)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def login_line(mechanism: str, password: str = PASSWORD) -> str:
    return f"{_MODULES[mechanism]} required username={_quoted(USER)} password={_quoted(password)};"


class Secured:
    """`reauth_ms`: how long brokers take a login (0: for ever)."""

    def __init__(self, folder: Path, reauth_ms: int = 0) -> None:
        self.authority = Authority(folder)
        self._folder = folder
        self._keystore = self.authority.issue("broker", LOOPBACK)
        self._reauth_ms = reauth_ms

    def broker_settings(self) -> dict[str, str]:
        prefix = "listener.name.client."
        lines = {f"{prefix}{name.lower()}.sasl.jaas.config": f"{module} required;" for name, module in _MODULES.items()}
        lines[f"{prefix}plain.sasl.jaas.config"] = f"{_MODULES['PLAIN']} required user_{USER}={_quoted(PASSWORD)};"
        reauth = {f"{prefix}{name.lower()}.connections.max.reauth.ms": str(self._reauth_ms) for name in _MODULES}
        return {
            **self.authority.listener_settings(self._keystore),
            "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"{prefix}sasl.enabled.mechanisms": ",".join(_MODULES),
            **lines,
            **(reauth if self._reauth_ms else {}),
        }

    def add_users(self, cluster: KafkaCluster) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.internal})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            upsertion = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            for done in admin.alter_user_scram_credentials([upsertion]).values():
                done.result(30)

    def forebay_settings(self, mechanism: str, password: str = PASSWORD, **more: str) -> dict[str, str]:
        """For --set: the login stands in a file that nobody else can read."""
        line = self._folder / f"{mechanism}-{len(password)}"
        line.touch(mode=0o600)
        line.write_text(login_line(mechanism, password))
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.authority.pem),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"${{dir:{self._folder}:{line.name}}}",
            **more,
        }
