"""How secured brokers are reached: what --command-config says, as each of two clients has to be told it.

In: a .properties file of Kafka's clients, read by the same code as Forebay's own settings (client_properties). Out:
settings of librdkafka, by which the driver asks for topics and offsets, and of the Java client in Spark's connector,
which reads records. Certificates, keys and passwords are passed as text, so that executors on other hosts need no
files; tokens they get themselves (client_credentials). What is wrong raises CannotRun, which shows no secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.client_credentials import OAUTHBEARER, ClientCredentials
from forebay_proxy.config import jaas
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import Settings
from forebay_proxy.errors import StartError
from forebay_proxy.security import client_properties
from forebay_proxy.security.oauth import endpoint_settings
from forebay_proxy.security.tls import brokers_context

_OURS: Final = (*client_properties.TLS, *client_properties.SASL)
_BARE_PKCS8: Final = "-----BEGIN PRIVATE KEY-----"
"""Kafka's Java client knows no other form of a key, and Java 17 no way to decrypt one that OpenSSL has encrypted."""


@dataclass(frozen=True)
class Security:
    """Settings for either client, by its own names; none: plain text. They hold secrets and are never shown."""

    librdkafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    java: Mapping[str, str] = field(default_factory=dict, repr=False)


PLAINTEXT: Final = Security()


def read_security(path: str | None, environ: Mapping[str, str] = os.environ) -> Security:
    """What the file says; without one, plain text. Raises CannotRun."""
    if path is None:
        return PLAINTEXT
    try:
        settings = client_properties.read(path, _OURS, environ)
        if settings.uses_tls:
            settings = client_properties.with_stores_as_text(settings)
        credentials = _credentials(settings) if settings.sasl_mechanism == OAUTHBEARER else None
    except StartError as error:
        raise CannotRun(str(error)) from None
    if settings.ssl_keystore_key and _BARE_PKCS8 not in settings.ssl_keystore_key.reveal():
        raise CannotRun(
            f"The key of the keystore ({path}) must be in PKCS8 form and not encrypted for Spark's connector; convert "
            "it, for a file that nobody else can read, with: openssl pkcs8 -topk8 -nocrypt -in KEY.pem"
        )
    return Security(_librdkafka(settings, credentials), _java(settings, credentials))


def _credentials(settings: Settings) -> ClientCredentials:
    """As the settings or, where they are empty, the options of `sasl.jaas.config` say."""
    options = jaas.parse(settings.sasl_jaas_config).options if settings.sasl_jaas_config else {}
    nothing = Secret("")
    url = settings.sasl_oauthbearer_token_endpoint_url
    client_id = settings.sasl_oauthbearer_client_credentials_client_id or options.get("clientId", nothing).reveal()
    secret = settings.sasl_oauthbearer_client_credentials_client_secret or options.get("clientSecret", nothing)
    scope = settings.sasl_oauthbearer_scope or options.get("scope", nothing).reveal()
    if not secret:
        raise CannotRun("sasl.oauthbearer.client.credentials.client.secret is missing: Kafka's Java client needs one.")
    trusted = _trusted_endpoint(options) if url.startswith("https://") else ""
    return ClientCredentials(url, client_id, secret.reveal(), scope, trusted)


def _trusted_endpoint(options: Mapping[str, Secret]) -> str:
    """The certificates that the options `ssl.…` trust, as text; empty: those of the system."""
    endpoint = endpoint_settings(options)
    try:
        endpoint = client_properties.with_stores_as_text(endpoint)
    except StartError as error:
        raise StartError(f"sasl.jaas.config: its option {error}") from None
    if endpoint.ssl_keystore_certificate_chain:
        raise CannotRun("sasl.jaas.config: jobs have no certificate of their own for the token endpoint.")
    return endpoint.ssl_truststore_certificates


def _librdkafka(settings: Settings, credentials: ClientCredentials | None) -> dict[str, str]:
    told: dict[str, str] = {"security.protocol": settings.security_protocol}
    if settings.uses_tls:
        told |= {
            "ssl.endpoint.identification.algorithm": settings.ssl_endpoint_identification_algorithm or "none",
            "ssl.cipher.suites": _openssl_suites(settings),
            "ssl.ca.pem": settings.ssl_truststore_certificates,
            "ssl.certificate.pem": settings.ssl_keystore_certificate_chain,
            "ssl.key.pem": settings.ssl_keystore_key.reveal(),
        }
    if settings.uses_sasl:
        told["sasl.mechanism"] = settings.sasl_mechanism
        if credentials is not None:
            told |= credentials.librdkafka()
        else:
            login = jaas.parse(settings.sasl_jaas_config).options
            told |= {"sasl.username": login["username"].reveal(), "sasl.password": login["password"].reveal()}
    return {name: value for name, value in told.items() if value}


def _openssl_suites(settings: Settings) -> str:
    """Those of TLS 1.2 by OpenSSL's names; empty: its own choice, as with TLS 1.3 always."""
    if not settings.ssl_cipher_suites:
        return ""
    return ":".join(each["name"] for each in brokers_context(settings).get_ciphers() if each["protocol"] == "TLSv1.2")


def _java(settings: Settings, credentials: ClientCredentials | None) -> dict[str, str]:
    told: dict[str, str] = {"security.protocol": settings.security_protocol}
    if settings.uses_tls:
        told["ssl.enabled.protocols"] = ",".join(settings.ssl_enabled_protocols)
        told["ssl.endpoint.identification.algorithm"] = settings.ssl_endpoint_identification_algorithm
        if settings.ssl_cipher_suites:
            told["ssl.cipher.suites"] = ",".join(settings.ssl_cipher_suites)
        if settings.ssl_truststore_certificates:
            told["ssl.truststore.type"] = "PEM"
            told["ssl.truststore.certificates"] = settings.ssl_truststore_certificates
        if settings.ssl_keystore_key:
            told["ssl.keystore.type"] = "PEM"
            told["ssl.keystore.certificate.chain"] = settings.ssl_keystore_certificate_chain
            told["ssl.keystore.key"] = settings.ssl_keystore_key.reveal()
    if settings.uses_sasl:
        told["sasl.mechanism"] = settings.sasl_mechanism
        if credentials is not None:
            told |= credentials.java()
        else:
            told["sasl.jaas.config"] = settings.sasl_jaas_config.reveal()
    return told
