"""A .properties file of Kafka's clients, as commands take it by --command-config: how to reach a secured cluster.

    security.protocol=SASL_SSL
    ssl.truststore.location=/etc/kafka/ca.pem
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=${file:/run/secrets/kafka.properties:sasl.jaas.config}

In: the file, and which families of settings are wanted of it. Out: Settings with them, free of contradictions. Other
names are ignored, as Kafka's commands do. But in a wanted family each must be known: misspelt, it would leave a
connection less safe than the file says, without a word. What is wrong raises StartError, which shows no secret.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from forebay_proxy.config import properties, providers
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.security import security_conflicts
from forebay_proxy.config.settings import Settings
from forebay_proxy.config.sources import close_names
from forebay_proxy.config.values import SETTINGS
from forebay_proxy.errors import StartError
from forebay_proxy.security import pem
from forebay_proxy.security.tls import brokers_context

TLS: Final = ("security.", "ssl.")
SASL: Final = ("sasl.",)
NOTHING: Final = Settings(bootstrap_servers=())
"""What no file says: connections in plain text."""

_STORE_TYPES: Final = ("ssl.truststore.type", "ssl.keystore.type")
_STORE_PASSWORDS: Final = ("ssl.truststore.password", "ssl.keystore.password")
"""A PEM file has none, and others are refused."""

_HANDLER: Final = "sasl.login.callback.handler.class"
_BEARER: Final = "org.apache.kafka.common.security.oauthbearer."
_HANDLERS: Final = tuple(f"{_BEARER}{package}OAuthBearerLoginCallbackHandler" for package in ("", "secured."))
"""Java's clients have to be told how they get tokens; we know one way."""


def read(path: str, families: Sequence[str], environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings whose names begin with one of `families`. Raises StartError.

    Without SASL among them, security.protocol is what it is without it: SASL_SSL is SSL.
    """
    values = {SETTINGS[name].attribute: value for name, value in _values(path, tuple(families), environ)}
    settings = Settings(bootstrap_servers=(), **values)  # type: ignore[arg-type]
    if not set(SASL) <= set(families):
        protocol = "SSL" if settings.uses_tls else "PLAINTEXT"
        settings = msgspec.structs.replace(settings, security_protocol=protocol)
    for name, why in security_conflicts(settings):
        raise StartError(f"{name} ({path}): {why}")
    if settings.only_passes_logins:
        raise StartError(f"sasl.mechanism ({path}): is required with security.protocol = {settings.security_protocol}")
    return settings


def with_stores_as_text(settings: Settings) -> Settings:
    """The same with what is in the stores in place of their locations, once it has been tried. Raises StartError."""
    brokers_context(settings)
    if location := settings.ssl_truststore_location:
        name = "ssl.truststore.location"
        trusted = pem.certificates(name, pem.read(name, location, private=False))
        settings = msgspec.structs.replace(settings, ssl_truststore_location="", ssl_truststore_certificates=trusted)
    if location := settings.ssl_keystore_location:
        name = "ssl.keystore.location"
        both = pem.read(name, location, private=True)
        settings = msgspec.structs.replace(
            settings,
            ssl_keystore_location="",
            ssl_keystore_certificate_chain=pem.certificates(name, both),
            ssl_keystore_key=Secret(pem.private_key(name, both)),
        )
    return settings


def _values(path: str, families: tuple[str, ...], environ: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    try:
        written = properties.parse(providers.read_settings(path))
        public = providers.public(Path(path).stat().st_mode)
    except OSError as error:
        raise StartError(f"--command-config {path}: cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise StartError(f"--command-config {path}: is no .properties file in UTF-8") from None
    for name, text in written.items():
        if not name.startswith(families) or name in _STORE_PASSWORDS:
            continue
        if name in _STORE_TYPES:
            if text.upper() != "PEM":
                raise StartError(f"{name} ({path}): must be PEM, and the store a PEM file")
            continue
        if name == _HANDLER:
            if text not in _HANDLERS:
                raise StartError(f"{name} ({path}): must be {_HANDLERS[0]}")
            continue
        if name not in SETTINGS:
            raise StartError(f"{name} ({path}): unknown setting{_hint(name, families)}")
        setting = SETTINGS[name]
        if setting.is_secret and text and public and not providers.is_reference(text):
            raise StartError(f"{name} ({path}): is a secret, and others can read the file: chmod o-rwx {path}")
        try:
            resolved = setting.resolve(text, environ)
        except ValueError as error:
            raise StartError(f"{name} ({path}): {error}") from None
        try:
            yield name, setting.parse(resolved)
        except ValueError:
            raise StartError(f"{name} ({path}): must be {setting.allowed}") from None


def _hint(name: str, families: tuple[str, ...]) -> str:
    near = [known for known in close_names(name, 3) if known.startswith(families)]
    return f"; did you mean {near[0]}?" if near else ""
