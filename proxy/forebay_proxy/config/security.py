"""Contradictions between the settings of security, and those that would lend an identity to strangers. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Final

from forebay_proxy.config import jaas
from forebay_proxy.config.listeners import ClientListener
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import Settings

TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


def security_conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    """(setting, what is wrong with it) for each contradiction."""
    yield from _tls_conflicts(settings)
    yield from _admin_conflicts(settings)
    yield from _login_conflicts(settings)
    if settings.lends_identity and not settings.upstream_identity_shared:
        yield from _lending_conflicts(settings)


def _lending_conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    """Who may do what is decided by brokers, for Forebay; it must not act so for somebody who may do less."""
    lending = [each for each in settings.client_listeners if each.lends_identity]
    if not all(is_loopback(each.host) or each.terminates for each in lending):
        yield (
            "listeners" if settings.listeners else "listen",
            "can be reached from other hosts, and brokers would take whoever uses it for Forebay: listen on 127.0.0.1, "
            "or allow it with upstream.identity.shared=true",
        )
    for listener in lending:
        if listener.terminates and not _only_one(listener):
            yield (
                listener.setting("upstream.identity"),
                "lets several users act as Forebay itself at the brokers, which could not tell them apart: allow it "
                "with upstream.identity.shared=true",
            )


def _only_one(listener: ClientListener) -> bool:
    """Whether nobody but one user can log in there."""
    if listener.told.sasl_enabled_mechanisms != ("PLAIN",):
        return False
    try:
        return len(jaas.parse_users(listener.told.plain_sasl_jaas_config)) == 1
    except ValueError:  # which is told already
        return True


def _admin_conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    tls = bool(settings.admin_ssl_keystore_location)
    if settings.admin_ssl_truststore_location and not tls:
        yield "admin.ssl.truststore.location", "needs admin.ssl.keystore.location: certificates are shown in TLS"
    others_come = settings.admin is not None and not is_loopback(settings.admin.host)
    if settings.admin_change_token and others_come and not tls:
        yield "admin.change.token", "needs admin.ssl.keystore.location where other hosts can reach admin"
    if settings.admin_change_token and settings.admin_change_token == settings.admin_bearer_token:
        yield "admin.change.token", "must not be admin.bearer.token: who may read could change things, too"
    if settings.admin is None or is_loopback(settings.admin.host) or settings.admin_unprotected:
        return
    if not tls or not (settings.admin_bearer_token or settings.admin_ssl_truststore_location):
        yield (
            "admin",
            "can be reached from other hosts: give it TLS (admin.ssl.keystore.location), and admin.bearer.token or "
            "admin.ssl.truststore.location, or listen on 127.0.0.1, or allow everybody with admin.unprotected=true",
        )


def _tls_conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    versions = settings.ssl_enabled_protocols
    if not versions or not set(versions) <= set(TLS_VERSIONS):
        yield "ssl.enabled.protocols", "must be TLSv1.2 and TLSv1.3, or one of them"
    if settings.ssl_endpoint_identification_algorithm not in ("https", ""):
        yield "ssl.endpoint.identification.algorithm", "must be https or empty"
    if settings.ssl_truststore_location and settings.ssl_truststore_certificates:
        yield "ssl.truststore.certificates", "cannot be set together with ssl.truststore.location"
    if settings.ssl_keystore_location and settings.ssl_keystore_certificate_chain:
        yield "ssl.keystore.certificate.chain", "cannot be set together with ssl.keystore.location"
    if bool(settings.ssl_keystore_certificate_chain) != bool(settings.ssl_keystore_key):
        yield "ssl.keystore.key", "and ssl.keystore.certificate.chain need each other"


def _login_conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    listeners = settings.client_listeners
    if not settings.uses_sasl:
        for listener in listeners:
            if not listener.lends_identity:
                message = f"must be SASL_PLAINTEXT or SASL_SSL: brokers know each client of {listener.name} by a login"
                yield "security.protocol", message
                return
    elif settings.logs_in or settings.sasl_jaas_config or any(each.lends_identity for each in listeners):
        yield from _sasl_conflicts(settings)
    elif settings.journal_topic:
        yield "sasl.mechanism", "is required with journal.topic: Forebay writes to it itself"
    elif any(each.told.upstream_identity == "delegation_token" for each in listeners):
        yield "sasl.mechanism", "is required with upstream.identity=delegation_token: Forebay asks for tokens as itself"


def _sasl_conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    mechanism = settings.sasl_mechanism
    if mechanism not in jaas.MECHANISMS:
        known = f"must be {', '.join(jaas.MECHANISMS[:-1])} or {jaas.MECHANISMS[-1]}"
        unless = "" if mechanism else "; it may be empty where clients have identities of their own"
        yield "sasl.mechanism", known + unless
        return
    options: Mapping[str, Secret] = {}
    if settings.sasl_jaas_config:
        try:
            login = jaas.parse(settings.sasl_jaas_config)
        except ValueError as error:
            yield "sasl.jaas.config", str(error)
            return
        if mechanism not in login.mechanisms:
            yield "sasl.jaas.config", f"is for {' or '.join(login.mechanisms)}, and sasl.mechanism is {mechanism}"
        options = login.options
    elif mechanism != "OAUTHBEARER":
        yield "sasl.jaas.config", f"is required with sasl.mechanism = {mechanism}"
    if mechanism == "OAUTHBEARER":
        if not settings.sasl_oauthbearer_token_endpoint_url:
            yield "sasl.oauthbearer.token.endpoint.url", "is required with OAUTHBEARER"
        if not (settings.sasl_oauthbearer_client_credentials_client_id or options.get("clientId")):
            yield "sasl.oauthbearer.client.credentials.client.id", "is required with OAUTHBEARER"


def is_loopback(host: str) -> bool:
    """Whether only this host can reach what listens there. So it is with 127.0.0.1, ::1 and localhost."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
