"""Every setting with its type, default, bounds and one line of description.

Attributes are snake_case, settings carry Kafka's names with dots: `linger_ms` ↔ `linger.ms`. Where Kafka's producer
or broker has the setting, name, type, default and bounds are Kafka's; comments say why where they differ. Times are in
milliseconds, sizes in bytes. `Settings` itself checks nothing: `conflicts` compares settings with each other, values.py
checks each by itself, sources.py reads them from where people write them, reference.py explains them in full.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from forebay_policies.own_choices import CHOOSE_PARTITIONS_THEMSELVES
from forebay_proxy.config import listeners as client_listeners
from forebay_proxy.config.kinds import (
    INT_MAX,
    LIVE,
    MAX_PORT,
    NODE,
    WORKERS,
    BrokerAddress,
    CipherSuites,
    Host,
    ListenerAddress,
    ListenerAddresses,
    NetworkRacks,
    NodeIds,
    NodePorts,
    Pem,
    PemFile,
    ProtocolMap,
    SecretPem,
    SecurityProtocol,
    TlsVersions,
    Url,
    about,
    dotted,
)
from forebay_proxy.config.listeners import DEFAULT_NAME, ClientListener, ListenerSettings
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.terminating import login_conflicts

LONGEST_SOCKET_PATH: Final = 103
"""Bytes. Linux has room for 107 and a zero, other systems for four less."""

SHORTEST_AGE_MS: Final = 1000
"""Connections that live for less cost more than what they carry."""

ALIASES: Final = {
    "enable.adaptive.partitioning": "partitioner.adaptive.partitioning.enable",
    "partition.availability.timeout.ms": "partitioner.availability.timeout.ms",
}
"""Other names that are understood: those in KIP-794, which Kafka's release changed."""


class HostPort(NamedTuple):
    """An address; `host` is a name, or an address without brackets. Its text is host:port or [address]:port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


MAX_WORKERS: Final = 64
Servers = tuple[HostPort, ...]
Patterns = tuple[str, ...]
TOPIC_PATTERN: Final = r"^[A-Za-z0-9._*?!\[\]-]+$"
"""With another character, one of quotes around it, say, a pattern would match no topic."""
TopicPatterns = tuple[Annotated[str, Meta(pattern=TOPIC_PATTERN)], ...]
Partitioner = Annotated[
    str, Meta(extra={"allowed": "adaptive, expected_wait, uniform, sticky, round_robin or the name of an entry point"})
]
Folder = Annotated[str, Meta(extra={"allowed": "a folder that can be written to, or empty"})]
SocketPath = Annotated[str, Meta(extra={"allowed": "the path of a socket, or empty"})]
Mechanism = Annotated[
    str, Meta(extra={"allowed": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; empty: no login"})
]
Topic = Annotated[str, Meta(extra={"allowed": "the name of a topic, or empty"})]
MILLISECONDS: Final = {"unit": "milliseconds"}
BYTES: Final = {"unit": "bytes"}
Ms = Annotated[int, Meta(ge=0, le=INT_MAX, extra=MILLISECONDS)]
PositiveMs = Annotated[int, Meta(ge=1, le=INT_MAX, extra=MILLISECONDS)]
Bytes = Annotated[int, Meta(ge=1, le=INT_MAX, extra=BYTES)]
# Chunks below 512 bytes cost more to keep in chains than they hold.
BatchBytes = Annotated[int, Meta(ge=512, le=INT_MAX, extra=BYTES)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename=dotted):
    """All settings. What nobody else can know has no default: the brokers, and either `listen` or `listeners`.

    They stand in the order in which they are listed; reference.py has the headings.
    """

    # Brokers and listeners
    bootstrap_servers: Annotated[Servers, about("Brokers to contact first, as in any Kafka client.")]
    listen: Annotated[
        HostPort | None, about("Bootstrap address for clients, without TLS; broker n is on this port + 1 + n.")
    ] = None
    listeners: Annotated[
        ListenerAddresses, about("Instead of listen: several listeners by name, each with ports for all brokers.")
    ] = ()
    listener_security_protocol_map: Annotated[
        ProtocolMap, about("How clients speak to each listener: with TLS, with a login of their own.")
    ] = msgspec.field(default_factory=lambda: {protocol: protocol for protocol in get_args(SecurityProtocol)})
    advertised_host: Annotated[Host, about("Host that clients are told; empty: the address they connected to.")] = ""
    advertised_address: Annotated[
        BrokerAddress | None, about("Address of broker n for clients, with $(node) for n; empty: host and port.")
    ] = None
    advertised_node_ports: Annotated[
        NodePorts, about("Ports that clients are told, where they differ from those that Forebay listens on.")
    ] = {}
    node_ports: Annotated[NodePorts, about("Ports of brokers that are not on listen's port + 1 + node id.")] = {}
    node_ports_only: Annotated[bool, about("Whether no broker but those of node.ports has a port.")] = False
    listener_name: dict[str, ListenerSettings] = {}
    """By name in lower case: what stands as `listener.name.<name>.<setting>`. It is no setting by itself."""
    references: dict[str, str] = {}
    """Full name → what was written, of values that stand in files, which may change (rereading.py). No setting, too."""

    # Process
    workers: Annotated[int, Meta(ge=1, le=MAX_WORKERS), about("Processes that share the ports, one core each.")] = 1
    admin: Annotated[HostPort | None, about("Address of the page, /metrics, /clients and probes; empty: none.")] = None
    admin_ssl_keystore_location: Annotated[
        PemFile, about("PEM file with the admin endpoint's key and certificate chain; empty: no TLS.")
    ] = ""
    admin_ssl_key_password: Annotated[Secret, about("Password of that key, if it is encrypted.")] = Secret("")
    admin_ssl_truststore_location: Annotated[
        PemFile, about("Whose certificates let a client read the admin endpoint; empty: nobody's.")
    ] = ""
    admin_bearer_token: Annotated[Secret, about("Token for reading the admin endpoint; empty: none.")] = Secret("")
    admin_change_token: Annotated[
        Secret, about("Token that allows changes over admin; empty: changes only over admin.socket.")
    ] = Secret("")
    admin_socket: Annotated[
        SocketPath,
        about("Path of a Unix socket, usable by its owner only, through which Forebay is controlled; empty: none."),
    ] = ""
    admin_unprotected: Annotated[bool, about("Let everybody who reaches admin read it, from other hosts, too.")] = False
    admin_hosts: Annotated[
        Patterns, about("Further names by which browsers reach admin; its own, localhost and addresses always may.")
    ] = ()
    admin_history_bytes: Annotated[
        int, Meta(ge=1 << 20, le=1 << 30, extra=BYTES), about("Memory for the hour of history that the page shows.")
    ] = 16 << 20
    metrics_topics_max: Annotated[
        int, Meta(ge=0, le=1000), about("Topics that have metrics of their own; 0: none. The others count together.")
    ] = 0
    otlp_endpoint: Annotated[
        Url, about("Where metrics are pushed to, by OTLP over HTTP: http://collector:4318/v1/metrics; empty: nowhere.")
    ] = ""
    otlp_interval_ms: Annotated[
        int, Meta(ge=1000, le=INT_MAX, extra=MILLISECONDS), about("How often metrics are pushed to otlp.endpoint.")
    ] = 60_000
    shutdown_timeout_ms: Annotated[Ms, about("Drain for at most this long after SIGTERM.")] = 30_000
    log_level: Annotated[Literal["debug", "info", "warning", "error"], about("Lowest level that is logged.", LIVE)] = (
        "info"
    )
    log_format: Annotated[
        Literal["auto", "console", "json"], about("Form of the log; auto: text on a terminal, JSON elsewhere.")
    ] = "auto"

    # Which records may move
    topics_include: Annotated[TopicPatterns, about("Topics whose records without a key may move.", LIVE)] = ("*",)
    topics_exclude: Annotated[
        TopicPatterns, about("Topics that are passed through untouched; wins over include.", LIVE)
    ] = ()
    client_ids_include: Annotated[Patterns, about("Clients whose records without a key may move.", LIVE)] = ("*",)
    client_ids_exclude: Annotated[
        Patterns,
        about("Clients passed through untouched; by default those that choose partitions themselves.", LIVE),
    ] = CHOOSE_PARTITIONS_THEMSELVES
    moves: Annotated[
        Literal["on", "observe"],
        about("observe: touch nothing, and measure what would move, merge and be saved.", LIVE),
    ] = "on"
    topics_move: Annotated[TopicPatterns, about("Topics that move although moves is observe.", LIVE)] = ()
    topics_observe: Annotated[TopicPatterns, about("Topics that are only observed, whatever moves is.", LIVE)] = ()
    client_ids_observe: Annotated[Patterns, about("Clients that are only observed, whatever moves is.", LIVE)] = ()

    # Partitioning
    partitioner: Annotated[Partitioner, about("How partitions are chosen for records without a key.", WORKERS)] = (
        "adaptive"
    )
    partitioner_adaptive_partitioning_enable: Annotated[
        bool, about("Prefer partitions with short queues; false: adaptive acts like uniform.", LIVE)
    ] = True
    partitioner_sticky_batch_size: Annotated[
        int,
        Meta(ge=0, le=INT_MAX, extra=BYTES),
        about("Bytes sent to one partition before the next is chosen; 0: batch.size.", LIVE),
    ] = 0
    partitioner_availability_timeout_ms: Annotated[
        Ms, about("Avoid partitions whose batch has been ready for longer than this; 0: off.", LIVE)
    ] = 0
    partitioner_min_share: Annotated[
        float,
        about("expected_wait: least share of choices per partition, so that recoveries are noticed.", LIVE),
    ] = 0.005

    # Kafka has none: its producer learns of a broker that is to be left alone by its not being there.
    brokers_avoid: Annotated[
        NodeIds,
        about("Brokers, by node id, that get records without a key only where there is no other.", LIVE),
    ] = ()

    # Racks (KIP-1123)
    partitioner_rack_aware: Annotated[
        bool, about("Prefer partitions whose leader is in the client's rack.", WORKERS)
    ] = False
    partitioner_rack_max_skew: Annotated[
        float,
        about("How far rack awareness may take a partition from its fair share, as a fraction of that share.", WORKERS),
    ] = 0.2
    client_rack: Annotated[str, about("Rack of clients of which nothing else is known; empty: none.", WORKERS)] = ""
    client_racks: Annotated[NetworkRacks, about("Racks of clients by the networks they come from.", WORKERS)] = {}

    # Batching (KIP-782)
    linger_ms: Annotated[
        int,
        Meta(ge=-1, le=60_000, extra=MILLISECONDS),
        about("How long a batch waits for more records; -1: adaptive.", LIVE),
    ] = -1
    batch_initial_size: Annotated[BatchBytes, about("A batch's memory grows in steps of this size.", WORKERS)] = 4096
    batch_size: Annotated[BatchBytes, about("A batch of this size is ready, but grows until it is sent.", WORKERS)] = (
        16_384
    )
    batch_max_size: Annotated[BatchBytes, about("No batch grows beyond this size.", WORKERS)] = 262_144
    max_request_size: Annotated[Bytes, about("Largest Produce request to a broker.", WORKERS)] = 1_048_576
    # Kafka has none: each of its producers has one client id.
    merge_across_client_ids: Annotated[
        bool,
        about(
            "Send records of several client ids in one request, under Forebay's own, until a broker throttles.",
            WORKERS,
        ),
    ] = True
    max_in_flight_requests_per_connection: Annotated[
        int,
        Meta(ge=1, le=INT_MAX),
        about("Unanswered Produce requests per broker and replica set; more than 16 count as 16.", WORKERS),
    ] = 5

    # Memory
    buffer_memory: Annotated[
        int,
        Meta(ge=1, le=2**63 - 1, extra=BYTES),
        about("Memory for records and their requests, per worker; clients wait for their share of it.", WORKERS),
    ] = 33_554_432
    # Kafka has none (-1), and allocates what a size prefix announces; here only what has arrived counts. Twice the
    # default of buffer.memory: 64 clients at once in the middle of the largest request that they send by default.
    queued_max_request_bytes: Annotated[
        int,
        Meta(ge=-1, le=2**63 - 1, extra=BYTES),
        about(
            "Memory for incomplete or queued requests, per worker; when full, clients are not read; -1: unlimited.",
            WORKERS,
        ),
    ] = 67_108_864
    # The client's max.request.size bounds what it sends uncompressed, 1 MiB by default; brokers refuse more than that
    # compressed. 64 times that lets in every honest batch and bounds what 1 MiB of zstd can blow up to.
    max_decompressed_bytes: Annotated[
        Bytes,
        about("Decompress at most this much of one request; batches beyond it are passed through.", WORKERS),
    ] = 67_108_864

    # Timeouts and retries
    request_timeout_ms: Annotated[PositiveMs, about("Wait at most this long for a broker's response.", WORKERS)] = (
        30_000
    )
    delivery_timeout_ms: Annotated[
        PositiveMs, about("Time for a record from arrival to acknowledgement, including retries.", WORKERS)
    ] = 120_000
    enable_idempotence: Annotated[
        bool,
        about(
            "Send merged records under a producer id, so that lost answers cost neither records nor copies.",
            WORKERS,
        ),
    ] = True
    retry_backoff_ms: Annotated[Ms, about("Pause before the first retry; doubles with each.", WORKERS)] = 100
    retry_backoff_max_ms: Annotated[Ms, about("Longest pause before a retry.", WORKERS)] = 1000
    reconnect_backoff_ms: Annotated[
        Ms, about("Pause before reconnecting to a broker; doubles with each try.", WORKERS)
    ] = 50
    reconnect_backoff_max_ms: Annotated[Ms, about("Longest pause before reconnecting to a broker.", WORKERS)] = 1000
    socket_connection_setup_timeout_ms: Annotated[
        PositiveMs, about("Wait at most this long for a connection to a broker.", WORKERS)
    ] = 10_000

    # Metadata
    metadata_max_age_ms: Annotated[
        Ms, about("Metadata of a topic older than this is refreshed before it is served.", LIVE)
    ] = 300_000
    # Kafka has none: its producer asks for a topic at max age, and for all of its topics together (KIP-526).
    metadata_soft_age_ms: Annotated[
        Ms, about("Metadata of a topic older than this is served, and refreshed in the background.", LIVE)
    ] = 60_000
    metadata_max_idle_ms: Annotated[Ms, about("Metadata of a topic unused for this long is dropped.", LIVE)] = 300_000
    metadata_max_topics: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        about("Topics in the cache, per worker; the least recently used are dropped.", WORKERS),
    ] = 20_000
    metadata_refresh_group_size: Annotated[
        int, Meta(ge=1, le=10_000), about("Topics per background refresh request.", WORKERS)
    ] = 100

    # Client limits
    # A broker's default, so clients with their own (540000) leave first and never write into a closing connection.
    # Upstream the proxy is the client: see `upstream_max_idle_ms`.
    connections_max_idle_ms: Annotated[
        int,
        Meta(ge=-1, le=INT_MAX, extra=MILLISECONDS),
        about("Close clients idle for this long, and broker connections after 9/10 of it; -1: never.", LIVE),
    ] = 600_000
    # Kafka has none.
    connections_max_age_ms: Annotated[
        int,
        Meta(ge=-1, le=INT_MAX, extra=MILLISECONDS),
        about("Close clients connected for this long, when nothing is owed to them; -1: never.", LIVE),
    ] = -1
    # Kafka has none. What comes slower than 4 KiB/s has stalled; a line that is merely slow may take hours.
    socket_request_timeout_ms: Annotated[
        PositiveMs, about("Close clients whose request makes no progress for this long.", WORKERS)
    ] = 60_000
    socket_request_max_bytes: Annotated[Bytes, about("Close clients that send a larger request.", WORKERS)] = (
        104_857_600
    )
    # Java pipelines 5 requests, librdkafka up to 1,000,000; a broker works on one of a connection at a time. Enough to
    # keep any connection busy, and a bound on what one client can leave waiting and on what comes at once of it.
    client_max_in_flight_requests: Annotated[
        int,
        Meta(ge=1, le=INT_MAX),
        about("Unanswered requests per client; beyond that it is not read.", WORKERS),
    ] = 100
    # Kafka has none (2147483647). A bound keeps a storm of reconnects from taking the descriptors that brokers need.
    max_connections: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        about("Client connections per worker; beyond that the idlest is closed, or the new one.", LIVE),
    ] = 10_000
    max_connections_per_ip: Annotated[
        int,
        Meta(ge=1, le=INT_MAX),
        about("Client connections per address and worker; more are closed at once.", LIVE),
    ] = INT_MAX

    # Logins at Forebay (client.authentication=terminate)
    # Kafka has none: there a client that never logs in is closed when it has been idle for long enough.
    authentication_timeout_ms: Annotated[
        PositiveMs, about("Close clients that have not logged in at Forebay after this long.", WORKERS)
    ] = 10_000
    connection_failed_authentication_delay_ms: Annotated[
        Ms, about("Answer a login at Forebay that fails, and close its connection, after this long.", WORKERS)
    ] = 100

    # Kafka has none.
    max_identities: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        about(
            "Identities that clients may have at brokers at once, per worker, by upstream.identity.",
            WORKERS,
        ),
    ] = 1000

    # Journal
    journal_dir: Annotated[Folder, about("Folder for the telemetry journal; empty: none.", WORKERS)] = ""
    journal_topic: Annotated[
        Topic, about("Topic for the telemetry journal, instead of a folder; empty: none.", WORKERS)
    ] = ""
    journal_ledger: Annotated[
        bool, about("Also record what each Produce request held and what became of it, for the audit.", WORKERS)
    ] = False
    journal_ledger_keys: Annotated[
        bool,
        about("The ledger has a hash of each record's key, too, for the audit of compacted topics.", WORKERS),
    ] = False
    journal_segment_bytes: Annotated[
        int,
        Meta(ge=4096, le=INT_MAX, extra=BYTES),
        about("A journal file of this size is closed and compressed.", WORKERS),
    ] = 67_108_864
    journal_roll_ms: Annotated[
        int,
        Meta(ge=100, le=3_600_000, extra=MILLISECONDS),
        about("A journal file of this age is closed and compressed.", WORKERS),
    ] = 300_000
    journal_queue_bytes: Annotated[
        int,
        Meta(ge=262_144, le=INT_MAX, extra=BYTES),
        about("Journal rows waiting to be written, per worker; when full, rows are dropped.", WORKERS),
    ] = 16_777_216
    # Kafka's log.retention.bytes has none (-1): here nobody else deletes, and the disk is often that of an application.
    journal_retention_bytes: Annotated[
        int,
        Meta(ge=-1, le=2**63 - 1, extra=BYTES),
        about("Size of all closed journal files; beyond that the oldest are deleted; -1: unlimited.", WORKERS),
    ] = 10_737_418_240

    # Security toward brokers
    security_protocol: Annotated[SecurityProtocol, about("How brokers are spoken to.")] = "PLAINTEXT"
    ssl_truststore_location: Annotated[
        PemFile, about("Certificates that brokers' are signed with; empty: the system's.", WORKERS)
    ] = ""
    ssl_truststore_certificates: Annotated[Pem, about("The same as text, instead of a file.", WORKERS)] = ""
    ssl_keystore_location: Annotated[
        PemFile,
        about("Forebay's own certificate, its chain and its key, shown to brokers; empty: none.", WORKERS),
    ] = ""
    ssl_keystore_certificate_chain: Annotated[
        Pem, about("Forebay's own certificate and its chain as text, instead of a file.", WORKERS)
    ] = ""
    ssl_keystore_key: Annotated[SecretPem, about("The key of ssl.keystore.certificate.chain.", WORKERS)] = Secret("")
    ssl_key_password: Annotated[Secret, about("What the key is encrypted with; empty: it is not.", WORKERS)] = Secret(
        ""
    )
    ssl_endpoint_identification_algorithm: Annotated[
        str,
        Meta(extra={"allowed": "https or empty"}),
        about("https: a broker's certificate must be valid for its host; empty: for anything.", WORKERS),
    ] = "https"
    ssl_enabled_protocols: Annotated[TlsVersions, about("Versions of TLS.", WORKERS)] = ("TLSv1.2", "TLSv1.3")
    ssl_cipher_suites: Annotated[
        CipherSuites, about("Cipher suites, the best first; empty: OpenSSL's choice.", WORKERS)
    ] = ()
    sasl_mechanism: Annotated[
        Mechanism, about("How Forebay itself logs in at brokers; empty: it does not.", WORKERS)
    ] = ""
    sasl_jaas_config: Annotated[Secret, about("As whom Forebay logs in at brokers: Java's line for it.", WORKERS)] = (
        Secret("")
    )
    sasl_oauthbearer_token_endpoint_url: Annotated[Url, about("OAUTHBEARER: where tokens are given out.", WORKERS)] = ""
    sasl_oauthbearer_client_credentials_client_id: Annotated[
        str, about("OAUTHBEARER: as whom they are asked for.", WORKERS)
    ] = ""
    sasl_oauthbearer_client_credentials_client_secret: Annotated[
        Secret, about("OAUTHBEARER: what proves it to the token endpoint.", WORKERS)
    ] = Secret("")
    sasl_oauthbearer_scope: Annotated[str, about("OAUTHBEARER: what the tokens are to be good for.", WORKERS)] = ""
    upstream_identity_shared: Annotated[
        bool, about("Let clients of other hosts, or several users, act as Forebay's own identity at the brokers.")
    ] = False

    @property
    def tells_racks_apart(self) -> bool:
        """Whether clients may be in several racks."""
        return bool(self.client_racks) or any(listener.told.client_rack for listener in self.client_listeners)

    @property
    def knows_racks(self) -> bool:
        """Whether it is said of any client in which rack it is."""
        return bool(self.client_rack) or self.tells_racks_apart

    @property
    def lends_identity(self) -> bool:
        """Whether brokers know whoever uses Forebay by a name that is Forebay's own."""
        own_certificate = bool(self.ssl_keystore_location or self.ssl_keystore_certificate_chain)
        return self.logs_in or (self.security_protocol == "SSL" and own_certificate)

    @property
    def uses_tls(self) -> bool:
        """Whether connections to brokers are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether brokers want a login: Forebay's, or that of each client of a SASL listener."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def logs_in(self) -> bool:
        """Whether Forebay has a login of its own at brokers."""
        return self.uses_sasl and bool(self.sasl_mechanism)

    @property
    def only_passes_logins(self) -> bool:
        """Whether Forebay has no login where brokers want one: it sees of them what its clients are told."""
        return self.uses_sasl and not self.sasl_mechanism

    @property
    def client_listeners(self) -> tuple[ClientListener, ...]:
        """Every listener for clients, in the order in which they were given."""
        if self.listeners:
            protocols = self.listener_security_protocol_map
            return client_listeners.resolve(self.listeners, protocols, self.listener_name, self.advertised_host)
        if self.listen is None:
            return ()
        short = [ListenerAddress(DEFAULT_NAME, *self.listen)]
        own = ListenerSettings(
            advertised_address=self.advertised_address,
            advertised_node_ports=self.advertised_node_ports,
            node_ports=self.node_ports,
            node_ports_only=self.node_ports_only,
        )
        told = {DEFAULT_NAME.lower(): own}
        return client_listeners.resolve(short, {DEFAULT_NAME: "PLAINTEXT"}, told, self.advertised_host)

    @property
    def upstream_max_idle_ms(self) -> int:
        """When to close an idle broker connection: 540000 for 600000, Kafka's own pair of defaults. -1: never."""
        return self.connections_max_idle_ms * 9 // 10 if self.connections_max_idle_ms >= 0 else -1


_HOST_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?"
)


_TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")


def is_host(text: str) -> bool:
    """Whether `text` is a host name, or an address without brackets."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST_NAME.fullmatch(text) is not None
    return True


def conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    """(setting, what is wrong with it) for each contradiction between two settings."""
    yield from _batch_conflicts(settings)
    yield from _listener_conflicts(settings)
    yield from _port_conflicts(settings)
    yield from _journal_conflicts(settings)
    patience = max(0, settings.linger_ms) + settings.request_timeout_ms
    if settings.delivery_timeout_ms < patience:
        yield "delivery.timeout.ms", f"must be at least linger.ms + request.timeout.ms = {patience}"
    if 0 <= settings.connections_max_age_ms < SHORTEST_AGE_MS:
        yield "connections.max.age.ms", f"must be -1 or at least {SHORTEST_AGE_MS}"
    if len(os.fsencode(settings.admin_socket)) > LONGEST_SOCKET_PATH:
        yield "admin.socket", f"must have at most {LONGEST_SOCKET_PATH} bytes: no socket can have a longer path"
    if settings.advertised_host and not is_host(settings.advertised_host):
        yield "advertised.host", "must be a host name or address without a port"


def _batch_conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    chunk = settings.batch_initial_size
    for smaller, larger in (
        ("batch.initial.size", "batch.size"),
        ("batch.size", "batch.max.size"),
        ("batch.max.size", "max.request.size"),
        ("batch.max.size", "buffer.memory"),
        ("batch.max.size", "max.decompressed.bytes"),
    ):
        least = _number(settings, smaller)
        if _number(settings, larger) < least:
            yield larger, f"must be at least {smaller} = {least}"
    for name in ("batch.size", "batch.max.size"):
        if (size := _number(settings, name)) > chunk and size % chunk:
            yield name, f"must be a multiple of batch.initial.size = {chunk}"


def _journal_conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.journal_dir and settings.journal_topic:
        yield "journal.topic", "cannot be set together with journal.dir"
    if settings.journal_topic and not _TOPIC_NAME.fullmatch(settings.journal_topic):
        yield "journal.topic", "must be a topic name: up to 249 letters, digits, dots, underscores and hyphens"
    if settings.journal_ledger and not (settings.journal_dir or settings.journal_topic):
        yield "journal.ledger", "needs journal.dir or journal.topic"
    if settings.journal_ledger_keys and not settings.journal_ledger:
        yield "journal.ledger.keys", "needs journal.ledger"


def _number(settings: Settings, name: str) -> int:
    value = getattr(settings, name.replace(".", "_"))
    assert isinstance(value, int)
    return value


def _listener_conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    listeners = settings.client_listeners
    if settings.listeners:
        if settings.listen is not None:
            yield "listen", "cannot be set together with listeners"
        for name in ("node.ports", "node.ports.only", "advertised.address", "advertised.node.ports"):
            if getattr(settings, name.replace(".", "_")):
                yield name, f"is for listen; with listeners, each has its own: listener.name.<name>.{name}"
        yield from client_listeners.conflicts(
            listeners, settings.listener_security_protocol_map, settings.listener_name
        )
    elif settings.listener_name:
        yield "listeners", "is required where a setting of a listener is set"
    for listener in listeners:
        host = listener.told.advertised_host
        if host and not is_host(host):
            yield listener.setting("advertised.host"), "must be a host name or address without a port"
        yield from _advertised_conflicts(settings, listener)
        yield from login_conflicts(listener)


def _advertised_conflicts(settings: Settings, listener: ClientListener) -> Iterator[tuple[str, str]]:
    told = listener.told
    address = told.advertised_address
    if address is not None and NODE not in address.host and not listener.producers_only:
        message = f"must be host:port with {NODE} in the host: clients must be able to tell brokers apart"
        yield _own(settings, listener, "advertised.address"), message
    host = told.advertised_host if settings.listeners else settings.advertised_host
    for name, value in (("advertised.host", host), ("advertised.node.ports", told.advertised_node_ports)):
        if value and told.advertised_address is not None:
            yield _own(settings, listener, "advertised.address"), f"cannot be set together with {name}"
    ports = told.advertised_node_ports
    if len(set(ports.values())) < len(ports):
        yield _own(settings, listener, "advertised.node.ports"), "has two brokers on one port"


def _own(settings: Settings, listener: ClientListener, name: str) -> str:
    """The full name of a setting that the listener has for itself."""
    return listener.setting(name) if settings.listeners else name


def _port_conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    listen, admin = settings.listen, settings.admin
    if listen is not None and listen.port >= MAX_PORT and not settings.node_ports:
        yield "listen", "leaves no port for the brokers: they are on its port + 1 + node id"
    named = "listeners" if settings.listeners else "listen"
    for listener in settings.client_listeners:
        address = HostPort(listener.host, listener.port)
        if address in settings.bootstrap_servers:
            yield "bootstrap.servers", f"{address} is the address in {named}: Forebay would connect to itself"
    users: dict[int, str] = {}
    for listener in settings.client_listeners:
        if listener.port in users:
            yield "listeners", f"port {listener.port} of {listener.name} is taken by {users[listener.port]}"
        users.setdefault(listener.port, listener.name if settings.listeners else "listen")
    for listener in settings.client_listeners:
        setting = _own(settings, listener, "node.ports")
        if listener.told.node_ports_only and not (listener.node_ports or listener.producers_only):
            yield f"{setting}.only", "needs node.ports: else no broker has a port"
        for node_id, port in listener.node_ports.items():
            if port in users:
                yield setting, f"port {port} of node {node_id} is taken by {users[port]}"
            users.setdefault(port, f"node {node_id}")
    if admin is not None and admin.port in users:
        yield "admin", f"port {admin.port} is taken by {users[admin.port]}"
