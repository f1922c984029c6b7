"""What a command of Kafka's takes by --command-config: a .properties file that says how to reach a secured cluster.

    security.protocol=SSL
    ssl.truststore.location=/etc/forebay/ca.pem
    admin.bearer.token=${file:/run/secrets/forebay.properties:token}

In: the file. Names are Kafka's, and admin.bearer.token for the admin endpoint; whatever else a client's file holds is
ignored, as Kafka's commands do. Out: how to connect. What is wrong raises StartError.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forebay_proxy.config import properties, providers
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.values import SETTINGS
from forebay_proxy.errors import StartError
from forebay_proxy.security.tls import TlsSettings, client_context

_KNOWN: Final = ("security.protocol", "ssl.", "admin.bearer.token")
_STORE_TYPES: Final = ("ssl.truststore.type", "ssl.keystore.type")


@dataclass(frozen=True)
class CommandConfig:
    """`context`: for the bootstrap servers, None: they are spoken to without TLS. `https`: for the admin endpoint."""

    context: ssl.SSLContext | None
    https: ssl.SSLContext
    token: Secret


def read(path: str | None, environ: Mapping[str, str] = os.environ) -> CommandConfig:
    """What the file says; without one, plain connections. Raises StartError."""
    values = _values(path, environ) if path is not None else {}
    told: dict[str, Any] = {
        name: values.get(name, SETTINGS[name].default) for name in SETTINGS if name.startswith(_KNOWN)
    }
    protocol = told["security.protocol"]
    if protocol not in ("PLAINTEXT", "SSL"):
        raise StartError(f"security.protocol = {protocol}: this command speaks PLAINTEXT and SSL")
    https = _context(told)
    return CommandConfig(https if protocol == "SSL" else None, https, told["admin.bearer.token"])


def _context(told: Mapping[str, Any]) -> ssl.SSLContext:
    stores = TlsSettings(
        told["ssl.enabled.protocols"],
        told["ssl.truststore.location"],
        told["ssl.truststore.certificates"],
        told["ssl.keystore.location"],
        told["ssl.keystore.certificate.chain"],
        told["ssl.keystore.key"],
        told["ssl.key.password"],
    )
    return client_context(stores, verify_name=told["ssl.endpoint.identification.algorithm"] == "https")


def _values(path: str, environ: Mapping[str, str]) -> dict[str, object]:
    try:
        written = properties.parse(Path(path).read_text(encoding="utf-8"))
        public = providers.public(Path(path).stat().st_mode)
    except OSError as error:
        raise StartError(f"--command-config {path}: cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise StartError(f"--command-config {path}: is no .properties file in UTF-8") from None
    found: dict[str, object] = {}
    for name, text in written.items():
        if name in _STORE_TYPES and text.upper() != "PEM":
            raise StartError(f"{name} ({path}): must be PEM, and the store a PEM file")
        if name not in SETTINGS or not name.startswith(_KNOWN):
            continue
        setting = SETTINGS[name]
        if setting.is_secret and text and public and not providers.is_reference(text):
            raise StartError(f"{name} ({path}): is a secret, and others can read the file: chmod o-rwx {path}")
        try:
            resolved = providers.resolve(text, environ)
        except ValueError as error:
            raise StartError(f"{name} ({path}): {error}") from None
        try:
            found[name] = setting.parse(resolved)
        except ValueError:
            raise StartError(f"{name} ({path}): must be {setting.allowed}") from None
    return found
