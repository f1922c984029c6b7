"""The listeners for clients: what each may be told by itself, and all of them as they result from the settings.

    listeners=INTERNAL://0.0.0.0:19092,EXTERNAL://0.0.0.0:19192
    listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:SSL
    listener.name.external.ssl.keystore.location=/etc/forebay/tls/keystore.pem

`listen` is short for one PLAINTEXT listener of that name. Names of settings, their meaning and their values are those
of Kafka's brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from forebay_proxy.config.kinds import (
    INT_MAX,
    MAX_PORT,
    WORKERS,
    BrokerAddress,
    CipherSuites,
    Host,
    ListenerAddress,
    NodePorts,
    Pem,
    PemFile,
    PrivateFile,
    ProtocolMap,
    SecretPem,
    SecurityProtocol,
    ServedMechanisms,
    TlsVersions,
    Url,
    about,
    dotted,
)
from forebay_proxy.config.secret import Secret

PREFIX: Final = "listener.name."
DEFAULT_NAME: Final = "PLAINTEXT"
ClientAuth = Literal["none", "requested", "required"]
ClientAuthentication = Literal["passthrough", "terminate"]
UpstreamIdentity = Literal["passthrough", "client", "service", "mapped", "delegation_token"]


class ListenerSettings(msgspec.Struct, frozen=True, kw_only=True, rename=dotted):
    """What one listener may be told, as `listener.name.<name>.<setting>`, the name in lower case."""

    advertised_host: Annotated[Host, about("Host that clients of this listener are told; empty: advertised.host.")] = ""
    advertised_address: Annotated[
        BrokerAddress | None, about("Address of broker n for its clients, with $(node) for n; empty: host and port.")
    ] = None
    advertised_node_ports: Annotated[
        NodePorts, about("Ports that its clients are told, where they differ from those that it listens on.")
    ] = {}
    node_ports: Annotated[NodePorts, about("Ports of brokers that are not on its port + 1 + node id.")] = {}
    node_ports_only: Annotated[bool, about("Whether no broker but those of node.ports has a port.")] = False
    client_rack: Annotated[str, about("Rack of its clients; empty: client.rack.", WORKERS)] = ""
    producers_only: Annotated[bool, about("One port for everything: clients see one broker, and may only produce.")] = (
        False
    )
    client_authentication: Annotated[
        ClientAuthentication, about("Where its clients log in: passthrough: at the brokers; terminate: at Forebay.")
    ] = "passthrough"
    upstream_identity: Annotated[
        UpstreamIdentity,
        about("As whom brokers know its clients, and so whose records are merged with whose."),
    ] = "passthrough"
    upstream_identities_location: Annotated[
        PrivateFile,
        about("TOML file with identities at brokers, and whose each is, with upstream.identity=mapped.", WORKERS),
    ] = ""
    sasl_enabled_mechanisms: Annotated[
        ServedMechanisms, about("By what clients log in at Forebay, with client.authentication=terminate.")
    ] = ()
    plain_sasl_jaas_config: Annotated[
        Secret, about('Whom Forebay lets in by PLAIN: a broker\'s line, with user_alice="password" for each.', WORKERS)
    ] = Secret("")
    scram_credentials_location: Annotated[
        PrivateFile, about("Whom Forebay lets in by SCRAM: the file that `forebay users` keeps.", WORKERS)
    ] = ""
    sasl_oauthbearer_jwks_endpoint_url: Annotated[
        Url, about("Where the issuer of OAUTHBEARER's tokens tells its keys (JWKS).", WORKERS)
    ] = ""
    sasl_oauthbearer_jwks_endpoint_refresh_ms: Annotated[
        int,
        Meta(ge=10_000, le=INT_MAX, extra={"unit": "milliseconds"}),
        about("After how long it is asked for its keys again.", WORKERS),
    ] = 3_600_000
    sasl_oauthbearer_expected_issuer: Annotated[
        str, about("What a token must say of who issued it (iss).", WORKERS)
    ] = ""
    sasl_oauthbearer_expected_audience: Annotated[
        tuple[str, ...], about("Audiences, one of which a token must name (aud).", WORKERS)
    ] = ()
    sasl_oauthbearer_sub_claim_name: Annotated[
        str, Meta(min_length=1), about("Which claim of a token is its user.", WORKERS)
    ] = "sub"
    sasl_oauthbearer_clock_skew_seconds: Annotated[
        int,
        Meta(ge=0, le=3_600, extra={"unit": "seconds"}),
        about("By how much the issuer's clock may differ.", WORKERS),
    ] = 30
    oauthbearer_sasl_jaas_config: Annotated[
        Secret, about("Whose certificate the endpoint of keys may have: the options ssl.… of a broker's line.", WORKERS)
    ] = Secret("")
    connections_max_reauth_ms: Annotated[
        int,
        Meta(ge=0, le=INT_MAX, extra={"unit": "milliseconds"}),
        about("For how long a login at Forebay is good; then the client must log in again; 0: for ever.", WORKERS),
    ] = 0
    sasl_server_max_receive_size: Annotated[
        int,
        Meta(ge=1024, le=INT_MAX, extra={"unit": "bytes"}),
        about("Largest request of a login at Forebay.", WORKERS),
    ] = 524_288
    ssl_client_auth: Annotated[
        ClientAuth,
        about("Whether clients must show a certificate; requested: they may, and it must be valid.", WORKERS),
    ] = "none"
    ssl_principal_mapping_rules: Annotated[
        str, about("What the owner of a certificate is called, where it is the login.", WORKERS)
    ] = "DEFAULT"
    ssl_keystore_location: Annotated[
        PemFile, about("PEM file with the listener's private key and its certificate chain.", WORKERS)
    ] = ""
    ssl_keystore_certificate_chain: Annotated[
        Pem, about("The certificate and its chain as text, instead of a file.", WORKERS)
    ] = ""
    ssl_keystore_key: Annotated[SecretPem, about("The key of ssl.keystore.certificate.chain.", WORKERS)] = Secret("")
    ssl_key_password: Annotated[Secret, about("Password of the private key, if it is encrypted.", WORKERS)] = Secret("")
    ssl_truststore_location: Annotated[
        PemFile, about("PEM file with the authorities that may have signed clients' certificates.", WORKERS)
    ] = ""
    ssl_truststore_certificates: Annotated[Pem, about("The same as text, instead of a file.", WORKERS)] = ""
    ssl_enabled_protocols: Annotated[TlsVersions, about("Versions of TLS that clients may speak.", WORKERS)] = (
        "TLSv1.2",
        "TLSv1.3",
    )
    ssl_cipher_suites: Annotated[
        CipherSuites, about("Cipher suites, the best first; empty: OpenSSL's choice.", WORKERS)
    ] = ()


@dataclass(frozen=True, slots=True)
class ClientListener:
    """One listener, with all that it was told. Broker n is on node_ports[n], else on `port` + 1 + n, if at all.

    With `producers_only` its clients know of no brokers, but of one for all, on `port`.
    """

    name: str
    protocol: SecurityProtocol
    host: str
    port: int
    advertised_host: str
    node_ports: NodePorts
    told: ListenerSettings

    def advertised(self, node_id: int, reached: str, port: int) -> tuple[str, int]:
        """As what (host, port) a broker is told to a client that `reached` that address; its own port here is `port`.

        No two brokers with a port of their own are told the same (listener_ports).
        """
        if self.told.advertised_address is not None:
            return self.told.advertised_address.of(node_id)
        return self.advertised_host or reached, self.told.advertised_node_ports.get(node_id, port)

    @property
    def producers_only(self) -> bool:
        """Whether it has one port for everything, and takes producers only."""
        return self.told.producers_only

    @property
    def uses_tls(self) -> bool:
        """Whether clients speak TLS."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether clients log in."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def terminates(self) -> bool:
        """Whether they do so here, and their connections to brokers know nothing of it."""
        return self.told.client_authentication == "terminate"

    @property
    def takes_certificates(self) -> bool:
        """Whether a certificate is their login there."""
        return self.terminates and self.protocol == "SSL"

    @property
    def passes_logins(self) -> bool:
        """Whether they do so at brokers, each as itself."""
        return self.uses_sasl and not self.terminates

    @property
    def lends_identity(self) -> bool:
        """Whether brokers take its clients for Forebay itself."""
        return not self.has_realms if self.terminates else not self.uses_sasl

    @property
    def has_realms(self) -> bool:
        """Whether brokers know its clients by several identities, records of each of which are merged."""
        return self.told.upstream_identity in ("client", "mapped", "delegation_token")

    def setting(self, name: str) -> str:
        """The full name of one of its settings."""
        return f"{PREFIX}{self.name.lower()}.{name}"


def resolve(
    addresses: Sequence[ListenerAddress],
    protocols: ProtocolMap,
    told: Mapping[str, ListenerSettings],
    advertised_host: str,
) -> tuple[ClientListener, ...]:
    """Every listener of `addresses`; a name that `protocols` lacks counts as PLAINTEXT, which `conflicts` reports."""
    listeners = []
    for name, host, port in addresses:
        own = told.get(name.lower(), ListenerSettings())
        protocol = protocols.get(name, "PLAINTEXT")
        host_told = own.advertised_host or advertised_host
        listeners.append(ClientListener(name, protocol, host, port, host_told, own.node_ports, own))
    return tuple(listeners)


def conflicts(
    listeners: Sequence[ClientListener], protocols: ProtocolMap, told: Mapping[str, ListenerSettings]
) -> Iterator[tuple[str, str]]:
    """(setting, what is wrong with it) for each contradiction between listeners, or between settings of one."""
    names: set[str] = set()
    for listener in listeners:
        if listener.name in names:
            yield "listeners", f"has two listeners of the name {listener.name}"
        names.add(listener.name)
        if listener.name not in protocols:
            yield "listener.security.protocol.map", f"has no security protocol for the listener {listener.name}"
        if listener.port >= MAX_PORT and not listener.node_ports and not listener.producers_only:
            yield "listeners", f"leaves no port for the brokers of {listener.name}: they are on its port + 1 + node id"
        yield from _one_port_conflicts(listener)
        yield from _tls_conflicts(listener)
    for name in told:
        if name.upper() not in names:
            yield f"{PREFIX}{name}.*", f"there is no listener {name.upper()} in listeners"


def _one_port_conflicts(listener: ClientListener) -> Iterator[tuple[str, str]]:
    if not listener.producers_only:
        return
    if listener.uses_sasl:
        message = (
            f"needs the security protocol PLAINTEXT or SSL, {listener.name} has {listener.protocol}: a client's own "
            "login is good for one broker's connection, and behind one port there are many"
        )
        yield listener.setting("producers.only"), message
    for name, given in (
        ("node.ports", listener.node_ports),
        ("node.ports.only", listener.told.node_ports_only),
        ("advertised.node.ports", listener.told.advertised_node_ports),
    ):
        if given:
            yield listener.setting(name), "cannot be set together with producers.only: there is one port"


def _tls_conflicts(listener: ClientListener) -> Iterator[tuple[str, str]]:
    told = listener.told
    if not listener.uses_tls:
        if told.ssl_client_auth != "none":
            message = f"needs the security protocol SSL or SASL_SSL, {listener.name} has {listener.protocol}"
            yield listener.setting("ssl.client.auth"), message
        return
    yield from _store_conflicts(listener)
    if not (told.ssl_keystore_location or told.ssl_keystore_certificate_chain):
        yield listener.setting("ssl.keystore.location"), "is required: a listener with TLS needs a key and certificate"
    if told.ssl_client_auth != "none" and not (told.ssl_truststore_location or told.ssl_truststore_certificates):
        message = f"is required with ssl.client.auth={told.ssl_client_auth}: no authority is trusted by default"
        yield listener.setting("ssl.truststore.location"), message


def _store_conflicts(listener: ClientListener) -> Iterator[tuple[str, str]]:
    told = listener.told
    for text, location in (
        ("ssl.truststore.certificates", "ssl.truststore.location"),
        ("ssl.keystore.certificate.chain", "ssl.keystore.location"),
    ):
        if getattr(told, text.replace(".", "_")) and getattr(told, location.replace(".", "_")):
            yield listener.setting(text), f"cannot be set together with {location}"
    if bool(told.ssl_keystore_certificate_chain) != bool(told.ssl_keystore_key):
        yield listener.setting("ssl.keystore.key"), "and ssl.keystore.certificate.chain need each other"
