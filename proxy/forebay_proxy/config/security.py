"""Contradictions between the settings of security, and those that would lend an identity to strangers. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from forebay_proxy.config.settings import Settings

TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


def security_conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    """(setting, what is wrong with it) for each contradiction."""
    yield from _tls_conflicts(settings)
    if settings.lends_identity and not settings.upstream_identity_shared and not is_loopback(settings.listen.host):
        yield (
            "listen",
            "can be reached from other hosts, and brokers would take whoever uses it for Forebay: listen on 127.0.0.1, "
            "or allow it with upstream.identity.shared=true",
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


def is_loopback(host: str) -> bool:
    """Whether only this host can reach what listens there. So it is with 127.0.0.1, ::1 and localhost."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
