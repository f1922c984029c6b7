"""Certificates for tests: an authority that exists for as long as the test, and what it has signed, as PEM files.

authority = Authority(tmp_path)
broker = authority.issue("broker", LOOPBACK, "localhost")      # a file with certificate, chain and key
… KafkaCluster(…, settings=authority.broker_settings(broker)) …
"""

from __future__ import annotations

import datetime
import ssl
import subprocess
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


class Authority:
    """`pem` is the file of its own certificate."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self.pem = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.pem))

    def issue(
        self,
        name: str,
        *hosts: str,
        subject: str | None = None,
        expired: bool = False,
        private: bool = True,
        password: str = "",
    ) -> Path:
        """A PEM file `name`.pem with a certificate for the hosts, its chain and its key; `subject` is its CN.

        With a `password` the key is encrypted.
        """
        until = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1) if expired else None
        leaf = self._ca.issue_cert(*hosts, common_name=subject, not_after=until, key_type=trustme.KeyType.ECDSA)
        path = self._folder / f"{name}.pem"
        # Kafka reads keys in PKCS8 form only.
        key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        form, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        closed = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        blobs = [key.private_bytes(form, pkcs8, closed)]
        blobs += [blob.bytes() for blob in (*leaf.cert_chain_pems, self._ca.cert_pem)]
        path.write_bytes(b"".join(blobs))
        path.chmod(0o600 if private else 0o644)
        return path

    def client_context(self, keystore: Path | None = None, *, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        """For a client that trusts this authority, and shows what is in `keystore`; of one `version` of TLS only."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.pem)
        if keystore is not None:
            context.load_cert_chain(keystore)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context

    def java_props(self) -> dict[str, str]:
        """For a Java client of any age that trusts this authority. The older ones read JKS only."""
        store = self._folder / "truststore.jks"
        if not store.exists():
            words = ["-storepass", "changeit", "-noprompt", "-alias", "ca", "-storetype", "JKS"]
            files = ["-keystore", str(store), "-file", str(self.pem)]
            subprocess.run(["keytool", "-importcert", *words, *files], check=True, capture_output=True, timeout=60)
        return {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(store),
            "ssl.truststore.password": "changeit",
            "ssl.endpoint.identification.algorithm": "HTTPS",
        }

    def broker_settings(self, keystore: Path, *, client_auth: str = "none") -> dict[str, str]:
        """Of a Kafka cluster whose CLIENT listener speaks TLS and has this certificate."""
        return {
            "listener.security.protocol.map": "CLIENT:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            **self.listener_settings(keystore, client_auth=client_auth),
        }

    def listener_settings(self, keystore: Path, *, client_auth: str = "none") -> dict[str, str]:
        """The part of them that is about certificates."""
        prefix = "listener.name.client.ssl."
        return {
            f"{prefix}keystore.type": "PEM",
            f"{prefix}keystore.location": str(keystore),
            f"{prefix}truststore.type": "PEM",
            f"{prefix}truststore.location": str(self.pem),
            f"{prefix}client.auth": client_auth,
        }


def server_context(keystore: Path) -> ssl.SSLContext:
    """For a server that shows what is in `keystore`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keystore)
    return context
