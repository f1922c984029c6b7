"""A Kafka whose CLIENT listener takes no one without a login, and users for it.

    secured = Secured(tmp_path, reauth_ms=4_000)
    with KafkaCluster("4.3.1", settings=secured.broker_settings()) as cluster:
        secured.add_users(cluster)
        … ForebayProcess(…, settings=secured.forebay_settings("SCRAM-SHA-512")) …

PLAIN and SCRAM know one user; OAUTHBEARER takes tokens without a signature, as only a test's Kafka does. With
`authorizer=True` the user may do nothing until it is allowed to (`allow`); whoever comes by INTERNAL may do anything.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.kit.certificates import Authority
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK
from tests.kit.waiting import wait_until

USER, PASSWORD = "forebay", "pass=word, 1"
_PACKAGE = "org.apache.kafka.common.security."
MODULES = {
    "PLAIN": f"{_PACKAGE}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_PACKAGE}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_PACKAGE}scram.ScramLoginModule",
    "OAUTHBEARER": f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule",
}
MECHANISMS = tuple(MODULES)


_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def login_line(mechanism: str, password: str = PASSWORD, user: str = USER) -> str:
    return f"{MODULES[mechanism]} required username={quoted(user)} password={quoted(password)};"


def plain_users(**passwords: str) -> dict[str, str]:
    """The broker setting that says whom PLAIN knows."""
    users = " ".join(f"user_{user}={quoted(password)}" for user, password in passwords.items())
    return {"listener.name.client.plain.sasl.jaas.config": f"{MODULES['PLAIN']} required {users};"}


def give_scram_password(cluster: KafkaCluster, user: str, password: str) -> None:
    """For both mechanisms; the one before is worth nothing then."""
    admin = AdminClient({"bootstrap.servers": cluster.internal})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        upsertion = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
        for done in admin.alter_user_scram_credentials([upsertion]).values():
            done.result(30)


class Secured:
    """`reauth_ms`: how long brokers take a login (0: for ever)."""

    def __init__(self, folder: Path, reauth_ms: int = 0, *, authorizer: bool = False) -> None:
        self._authorizer = authorizer
        self.authority = Authority(folder)
        self._folder = folder
        self._keystore = self.authority.issue("broker", LOOPBACK)
        self._reauth_ms = reauth_ms

    def broker_settings(self) -> dict[str, str]:
        prefix = "listener.name.client."
        lines = {f"{prefix}{name.lower()}.sasl.jaas.config": f"{module} required;" for name, module in MODULES.items()}
        lines |= plain_users(**{USER: PASSWORD})
        reauth = {f"{prefix}{name.lower()}.connections.max.reauth.ms": str(self._reauth_ms) for name in MODULES}
        return {
            **self.authority.listener_settings(self._keystore),
            "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"{prefix}sasl.enabled.mechanisms": ",".join(MODULES),
            **lines,
            **(reauth if self._reauth_ms else {}),
            **(_AUTHORIZER if self._authorizer else {}),
        }

    def add_users(self, cluster: KafkaCluster, password: str = PASSWORD) -> None:
        """Or give the user of SCRAM another password; the one before is worth nothing then."""
        give_scram_password(cluster, USER, password)

    def allow(self, cluster: KafkaCluster, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        """Returns once the broker knows it."""
        admin = AdminClient({"bootstrap.servers": cluster.internal})
        literal, allowed = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        rules = [AclBinding(kind, name, literal, f"User:{USER}", "*", each, allowed) for each in operations]
        for done in admin.create_acls(rules).values():
            done.result(30)
        every = AclBindingFilter(kind, name, literal, None, None, AclOperation.ANY, AclPermissionType.ANY)  # type: ignore[arg-type]
        wait_until(lambda: set(rules) <= set(admin.describe_acls(every).result(30)), 30, f"rules for {name}")

    def librdkafka_props(self, mechanism: str) -> dict[str, str]:
        """For a client that goes to the brokers itself."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.pem),
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

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
