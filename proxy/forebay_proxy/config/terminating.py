"""What a listener is told of logins, here or at the brokers: contradictions within it. No I/O.

client.authentication=terminate      sasl.enabled.mechanisms, and for each of them who may log in; or certificates
upstream.identity=…                  as whom brokers know the clients
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from forebay_codecs.scram import HASHES
from forebay_proxy.config import jaas
from forebay_proxy.config.listeners import ClientListener
from forebay_proxy.config.principal_mapper import DEFAULT, PrincipalMapper

_ONLY_WITH_SASL: Final = (
    "sasl.enabled.mechanisms",
    "plain.sasl.jaas.config",
    "scram.credentials.location",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.expected.audience",
    "oauthbearer.sasl.jaas.config",
    "connections.max.reauth.ms",
)
_ONLY_TERMINATING: Final = ("upstream.identities.location", *_ONLY_WITH_SASL)
_IDENTITIES: Final = {
    "passthrough": ("passthrough", "client"),
    "terminate": ("service", "mapped", "client", "delegation_token"),
}


def login_conflicts(listener: ClientListener) -> Iterator[tuple[str, str]]:
    """(setting, what is wrong with it) for each contradiction."""
    told = listener.told
    if told.ssl_principal_mapping_rules != DEFAULT and not listener.takes_certificates:
        message = "needs client.authentication=terminate and the security protocol SSL: elsewhere it names nobody"
        yield listener.setting("ssl.principal.mapping.rules"), message
    if listener.terminates and not listener.uses_sasl:
        yield from _certificate_conflicts(listener)
        return
    identities = _IDENTITIES[told.client_authentication]
    if told.upstream_identity not in identities:
        message = f"must be {' or '.join(identities)} with client.authentication={told.client_authentication}"
        yield listener.setting("upstream.identity"), message
    elif told.upstream_identity == "client" and not listener.uses_sasl:
        yield listener.setting("upstream.identity"), _needs_sasl(listener)
    if not listener.terminates:
        for name in _ONLY_TERMINATING:
            if getattr(told, name.replace(".", "_")):
                yield listener.setting(name), "needs client.authentication=terminate: brokers do not learn of it"
        return
    yield from _mapped_conflicts(listener)
    if not told.sasl_enabled_mechanisms:
        yield listener.setting("sasl.enabled.mechanisms"), "is required with client.authentication=terminate"
    if told.upstream_identity == "client" and not set(told.sasl_enabled_mechanisms) <= set(HASHES):
        message = (
            f"can only have {' and '.join(HASHES)} with upstream.identity=client: others reveal no key for brokers"
        )
        yield listener.setting("sasl.enabled.mechanisms"), message
    yield from _plain_conflicts(listener)
    yield from _scram_conflicts(listener)
    yield from _bearer_conflicts(listener)


def _certificate_conflicts(listener: ClientListener) -> Iterator[tuple[str, str]]:
    """Of one without SASL: its clients show certificates, or nobody can know who they are."""
    told = listener.told
    if not listener.takes_certificates or told.ssl_client_auth == "none":
        message = (
            f"{_needs_sasl(listener)}; or it needs SSL with ssl.client.auth=required, where a certificate is the login"
        )
        yield listener.setting("client.authentication"), message
        return
    if told.upstream_identity not in ("service", "mapped", "delegation_token"):
        message = "must be service, mapped or delegation_token where a certificate is the login"
        yield listener.setting("upstream.identity"), message
    for name in _ONLY_WITH_SASL:
        if getattr(told, name.replace(".", "_")):
            yield listener.setting(name), _needs_sasl(listener)
    yield from _mapped_conflicts(listener)
    try:
        PrincipalMapper(told.ssl_principal_mapping_rules)
    except ValueError as error:
        yield listener.setting("ssl.principal.mapping.rules"), str(error)


def _mapped_conflicts(listener: ClientListener) -> Iterator[tuple[str, str]]:
    location, name = listener.told.upstream_identities_location, listener.setting("upstream.identities.location")
    if listener.told.upstream_identity == "mapped":
        if not location:
            yield name, "is required with upstream.identity=mapped"
    elif location:
        yield name, "needs upstream.identity=mapped"


def _needs_sasl(listener: ClientListener) -> str:
    return f"needs the security protocol SASL_PLAINTEXT or SASL_SSL, {listener.name} has {listener.protocol}"


def _scram_conflicts(listener: ClientListener) -> Iterator[tuple[str, str]]:
    location, name = listener.told.scram_credentials_location, listener.setting("scram.credentials.location")
    if set(HASHES).isdisjoint(listener.told.sasl_enabled_mechanisms):
        if location:
            yield name, "needs SCRAM-SHA-256 or SCRAM-SHA-512 in sasl.enabled.mechanisms"
    elif not location:
        yield name, "is required with SCRAM in sasl.enabled.mechanisms"


def _bearer_conflicts(listener: ClientListener) -> Iterator[tuple[str, str]]:
    told = listener.told
    has = {
        "sasl.oauthbearer.jwks.endpoint.url": told.sasl_oauthbearer_jwks_endpoint_url,
        "sasl.oauthbearer.expected.issuer": told.sasl_oauthbearer_expected_issuer,
        "sasl.oauthbearer.expected.audience": told.sasl_oauthbearer_expected_audience,
    }
    needed = "OAUTHBEARER" in told.sasl_enabled_mechanisms
    for name, value in has.items():
        if needed and not value:
            yield listener.setting(name), "is required with OAUTHBEARER in sasl.enabled.mechanisms"
        elif value and not needed:
            yield listener.setting(name), "needs OAUTHBEARER in sasl.enabled.mechanisms"
    if told.oauthbearer_sasl_jaas_config:
        name = listener.setting("oauthbearer.sasl.jaas.config")
        if not needed:
            yield name, "needs OAUTHBEARER in sasl.enabled.mechanisms"
            return
        try:
            if jaas.parse(told.oauthbearer_sasl_jaas_config).mechanisms != ("OAUTHBEARER",):
                yield name, "must begin with Kafka's OAuthBearerLoginModule"
        except ValueError as error:
            yield name, str(error)


def _plain_conflicts(listener: ClientListener) -> Iterator[tuple[str, str]]:
    line, name = listener.told.plain_sasl_jaas_config, listener.setting("plain.sasl.jaas.config")
    if "PLAIN" not in listener.told.sasl_enabled_mechanisms:
        if line:
            yield name, "needs PLAIN in sasl.enabled.mechanisms"
    elif not line:
        yield name, "is required with PLAIN in sasl.enabled.mechanisms"
    else:
        try:
            jaas.parse_users(line)
        except ValueError as error:
            yield name, str(error)
