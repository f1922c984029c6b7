"""A Kafka with users who may each do everything with what bears their name, and clients that log in as one of them.

    logins = Logins(tmp_path)
    with KafkaCluster("4.3.1", settings=logins.broker_settings()) as cluster:
        logins.add_users(cluster)
        client = logins.client("java-4.3.1", "alice", "SCRAM-SHA-512", "SASL_SSL")
        … it may write topics alice-…, and join groups alice-…; nobody else may …

Brokers take PLAIN, SCRAM and OAUTHBEARER. A login by SCRAM-SHA-256 is taken for `reauth_ms`, a token for `token_s`, all
others for ever.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.kit.clients import Client
from tests.kit.go_clients import GoClient
from tests.kit.java import AncientJavaClient, JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.python_clients import AioKafkaClient, ConfluentClient, KafkaPythonClient
from tests.kit.sasl import MODULES, Secured, give_scram_password, quoted

USERS = ("alice", "bob")
TOKEN_S = 3600


def password_of(user: str) -> str:
    return f"{user}'s=own, 1"


def token_of(user: str, for_s: int = TOKEN_S) -> str:
    """A JWT that nobody has signed, as only a test's Kafka takes it."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + for_s})
    return ".".join(
        [*(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts), ""]
    )


class Logins:
    """`protocol` of the brokers' listener: SASL_SSL or SASL_PLAINTEXT."""

    def __init__(self, folder: Path, protocol: str = "SASL_SSL", reauth_ms: int = 0, token_s: int = TOKEN_S) -> None:
        self._token_s = token_s
        self.secured = Secured(folder)
        self.authority = self.secured.authority
        self._folder = folder
        self.protocol = protocol
        self._reauth_ms = reauth_ms

    def broker_settings(self) -> dict[str, str]:
        prefix = "listener.name.client."
        users = " ".join(f"user_{user}={quoted(password_of(user))}" for user in USERS)
        reauth = {f"{prefix}scram-sha-256.connections.max.reauth.ms": str(self._reauth_ms)} if self._reauth_ms else {}
        return {
            **self.secured.broker_settings(),
            "listener.security.protocol.map": f"CLIENT:{self.protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"{prefix}plain.sasl.jaas.config": f"{MODULES['PLAIN']} required {users};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",  # on INTERNAL and CONTROLLER nobody logs in
            **reauth,
        }

    def add_users(self, cluster: KafkaCluster) -> None:
        for user in USERS:
            give_scram_password(cluster, user, password_of(user))
            self.allow(cluster, user, f"{user}-")

    def allow(self, cluster: KafkaCluster, user: str, names: str) -> None:
        """The user may do everything with topics and groups whose names begin so."""
        admin = AdminClient({"bootstrap.servers": cluster.internal})
        kinds = (ResourceType.TOPIC, ResourceType.GROUP)
        rules = [
            AclBinding(
                kind,
                names,
                ResourcePatternType.PREFIXED,
                f"User:{user}",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            for kind in kinds
        ]
        for done in admin.create_acls(rules).values():
            done.result(30)

    def forebay_settings(self) -> dict[str, str]:
        """Without a login of Forebay's own."""
        tls = {"ssl.truststore.location": str(self.authority.pem)} if self.protocol == "SASL_SSL" else {}
        return {"security.protocol": self.protocol, **tls}

    def client(self, name: str, user: str, mechanism: str, protocol: str, password: str | None = None) -> Client:
        password = password_of(user) if password is None else password
        if name.startswith("java-"):
            version = name.removeprefix("java-")
            props = self._java_props(user, mechanism, protocol, password)
            return AncientJavaClient(version, props) if version.startswith("0.") else JavaClient(version, props)
        if name == "confluent":
            return ConfluentClient(self.librdkafka_props(user, mechanism, protocol, password))
        if name in ("franz-go", "sarama"):
            ca = self.authority.pem if protocol == "SASL_SSL" else None
            return GoClient(name, ca, login=(mechanism, user, password))
        props = {
            "security_protocol": protocol,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }
        if protocol == "SASL_SSL":
            props["ssl_context"] = self.authority.client_context()  # type: ignore[assignment]
        return AioKafkaClient(props) if name == "aiokafka" else KafkaPythonClient(props)

    def librdkafka_props(self, user: str, mechanism: str, protocol: str, password: str | None = None) -> dict[str, Any]:
        props: dict[str, Any] = {"security.protocol": protocol, "sasl.mechanisms": mechanism}
        if protocol == "SASL_SSL":
            props["ssl.ca.location"] = str(self.authority.pem)
        if mechanism == "OAUTHBEARER":
            for_s = self._token_s
            return {**props, "oauth_cb": lambda _: (token_of(user, for_s), time.time() + for_s)}
        return {**props, "sasl.username": user, "sasl.password": password_of(user) if password is None else password}

    def _java_props(self, user: str, mechanism: str, protocol: str, password: str) -> dict[str, str]:
        told = f"username={quoted(user)} password={quoted(password)}"
        if mechanism == "OAUTHBEARER":
            lifetime = f"unsecuredLoginLifetimeSeconds={quoted(str(self._token_s))}"
            told = f"unsecuredLoginStringClaim_sub={quoted(user)} {lifetime}"
        props = {
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{MODULES[mechanism]} required {told};",
        }
        if protocol == "SASL_SSL":
            props |= {
                "ssl.truststore.location": str(self._java_truststore()),
                "ssl.truststore.password": "changeit",
                "ssl.endpoint.identification.algorithm": "HTTPS",
            }
        return props

    def _java_truststore(self) -> Path:
        """Java's older clients read JKS only."""
        store = self._folder / "truststore.jks"
        if not store.exists():
            words = ["-storepass", "changeit", "-noprompt", "-alias", "ca", "-storetype", "JKS"]
            files = ["-keystore", str(store), "-file", str(self.authority.pem)]
            subprocess.run(["keytool", "-importcert", *words, *files], check=True, capture_output=True, timeout=60)
        return store
