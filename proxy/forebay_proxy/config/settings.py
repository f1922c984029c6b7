"""What Forebay can be told: every setting with its type, default, bounds and one line of explanation.

Attributes are snake_case, settings carry Kafka's names with dots: `linger_ms` ↔ `linger.ms`. Where Kafka's producer
or broker has the name, type, default and bounds are Kafka's; what differs says why. Times are in milliseconds, sizes
in bytes. `Settings` itself checks nothing: `conflicts` compares settings with each other, values.py checks
each alone, sources.py reads them from where people write them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

INT_MAX: Final = 2**31 - 1
"""Kafka's INT. Times that Kafka has as LONG end here too: 24 days, and asyncio's timers take it."""

MAX_PORT: Final = 65_535

# By default nobody who chooses partitions for null-key records itself is touched. These name themselves:
#   Kafka Connect's source tasks, and so MirrorMaker 2's MirrorSourceConnector: connector-producer-<connector>-<task>;
#   Kafka Streams: <application.id>-<uuid>-StreamThread-<n>-producer;
#   MirrorMaker 2's own producer of offset syncs: <source>-><target>|<task>|offset-syncs-source-producer (or -target-).
# MirrorMaker 1 has no id of its own (it is producer-1 unless its producer.config says otherwise) and names a partition
# only through a message handler; the last two patterns catch the ids that people give it.
CHOOSE_PARTITIONS_THEMSELVES: Final = (
    "connector-producer-*",
    "*-StreamThread-*",
    "*|offset-syncs-*-producer",
    "*[Mm]irror[Mm]aker*",
    "*[Mm]irror-[Mm]aker*",
)

ALIASES: Final = {
    "enable.adaptive.partitioning": "partitioner.adaptive.partitioning.enable",
    "partition.availability.timeout.ms": "partitioner.availability.timeout.ms",
}
"""Other names that are understood: those of KIP-794 before Kafka took it in."""


class HostPort(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Servers = tuple[HostPort, ...]
Patterns = tuple[str, ...]
NodePorts = dict[int, int]
Partitioner = Annotated[
    str, Meta(extra={"allowed": "adaptive, expected_wait, uniform, sticky, round_robin or an entry point"})
]
Host = Annotated[str, Meta(extra={"allowed": "a host name or address without a port, or empty"})]
Folder = Annotated[str, Meta(extra={"allowed": "a folder that can be written, or empty"})]
Topic = Annotated[str, Meta(extra={"allowed": "the name of a topic, or empty"})]
Ms = Annotated[int, Meta(ge=0, le=INT_MAX)]
PositiveMs = Annotated[int, Meta(ge=1, le=INT_MAX)]
Bytes = Annotated[int, Meta(ge=1, le=INT_MAX)]
# Chunks below 512 bytes cost more to keep in chains than they hold.
BatchBytes = Annotated[int, Meta(ge=512, le=INT_MAX)]


def about(description: str) -> Meta:
    return Meta(description=description)


def _dotted(attribute: str) -> str:
    return attribute.replace("_", ".")


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename=_dotted):
    """All settings. The two without a default are the two that nobody else can know."""

    # Where
    bootstrap_servers: Annotated[Servers, about("brokers to begin with, as in any Kafka client")]
    listen: Annotated[HostPort, about("bootstrap address for clients; broker n is on this port + 1 + n")]
    advertised_host: Annotated[Host, about("host told to clients; empty: the address they connected to")] = ""
    node_ports: Annotated[NodePorts, about("ports of brokers that are not at listen + 1 + id")] = {}
    admin: Annotated[HostPort | None, about("address of /metrics, /healthz, /readyz; empty: none")] = None
    workers: Annotated[int, Meta(ge=1, le=64), about("processes that share the ports, each with one core")] = 1

    # Which records
    topics_include: Annotated[Patterns, about("topics whose null-key records may move")] = ("*",)
    topics_exclude: Annotated[Patterns, about("topics passed on untouched; wins over topics.include")] = ()
    client_ids_include: Annotated[Patterns, about("clients whose null-key records may move")] = ("*",)
    client_ids_exclude: Annotated[
        Patterns, about("clients passed on untouched; by default those that choose partitions themselves")
    ] = CHOOSE_PARTITIONS_THEMSELVES

    # Whereto
    partitioner: Annotated[Partitioner, about("who chooses the partition of null-key records")] = "adaptive"
    partitioner_adaptive_partitioning_enable: Annotated[
        bool, about("favour partitions with short queues; false: adaptive is uniform")
    ] = True
    partitioner_sticky_batch_size: Annotated[
        int, Meta(ge=0, le=INT_MAX), about("bytes to a partition before the next is chosen; 0: batch.size")
    ] = 0
    partitioner_availability_timeout_ms: Annotated[
        Ms, about("a partition whose ready batch waits for longer is not chosen; 0: off")
    ] = 0
    partitioner_min_share: Annotated[
        float, about("expected_wait: least share of choices for each partition, so that a recovery is noticed")
    ] = 0.005

    # How much at once (KIP-782)
    linger_ms: Annotated[int, Meta(ge=-1, le=60_000), about("how long a batch waits for more; -1: adaptive")] = -1
    batch_initial_size: Annotated[BatchBytes, about("memory of a batch grows by chunks of this size")] = 4096
    batch_size: Annotated[BatchBytes, about("a batch of this size is ready, yet grows until it is sent")] = 16_384
    batch_max_size: Annotated[BatchBytes, about("a batch grows no further")] = 262_144
    buffer_memory: Annotated[
        int, Meta(ge=1, le=2**63 - 1), about("bytes of records held, per worker; beyond, clients wait")
    ] = 33_554_432
    max_request_size: Annotated[Bytes, about("bytes of batches in one produce request to a broker")] = 1_048_576
    max_in_flight_requests_per_connection: Annotated[
        int, Meta(ge=1, le=INT_MAX), about("unanswered produce requests to one broker")
    ] = 5

    # How long
    request_timeout_ms: Annotated[PositiveMs, about("wait for one answer of a broker")] = 30_000
    delivery_timeout_ms: Annotated[PositiveMs, about("wait from append to answer, retries included")] = 120_000
    retry_backoff_ms: Annotated[Ms, about("pause before the first retry; doubles with each")] = 100
    retry_backoff_max_ms: Annotated[Ms, about("longest pause before a retry")] = 1000
    reconnect_backoff_ms: Annotated[Ms, about("pause before connecting to a broker again; doubles")] = 50
    reconnect_backoff_max_ms: Annotated[Ms, about("longest pause before connecting to a broker again")] = 1000
    socket_connection_setup_timeout_ms: Annotated[PositiveMs, about("wait for a connection to a broker")] = 10_000
    metadata_max_age_ms: Annotated[
        Ms, about("older metadata of a topic is not served before brokers were asked again")
    ] = 300_000
    # Kafka has none: its producer asks for a topic at max age, and for all of its topics together (KIP-526).
    metadata_soft_age_ms: Annotated[
        Ms, about("older metadata of a topic is refreshed in the background, and served meanwhile")
    ] = 60_000
    metadata_max_idle_ms: Annotated[Ms, about("metadata of a topic that nobody used for so long is forgotten")] = (
        300_000
    )
    # A broker's default, so clients with their own (540000) leave first and never write into a closing connection.
    # Upstream the proxy is the client: see `upstream_max_idle_ms`.
    connections_max_idle_ms: Annotated[
        int,
        Meta(ge=-1, le=INT_MAX),
        about("close idle clients; brokers are left after 9/10 of it; -1: never"),
    ] = 600_000
    # Kafka has none. What comes slower than 4 KiB/s has stalled; a line that is merely slow may take hours.
    socket_request_timeout_ms: Annotated[PositiveMs, about("a client whose request stalls for so long is closed")] = (
        60_000
    )
    shutdown_timeout_ms: Annotated[Ms, about("drain for at most this long after SIGTERM")] = 30_000

    # How much at most
    socket_request_max_bytes: Annotated[Bytes, about("a client that sends a larger request is closed")] = 104_857_600
    # Kafka has none (-1), and allocates what a size prefix announces; here only what has arrived counts. Twice the
    # default of buffer.memory: 64 clients at once in the middle of the largest request that they send by default.
    queued_max_request_bytes: Annotated[
        int,
        Meta(ge=-1, le=2**63 - 1),
        about("bytes of requests held that are not whole or wait, per worker; beyond, clients wait; -1: no limit"),
    ] = 67_108_864
    # The client's max.request.size bounds what it sends uncompressed, 1 MiB by default; brokers refuse more than that
    # compressed. 64 times that lets in every honest batch and bounds what 1 MiB of zstd can blow up to.
    max_decompressed_bytes: Annotated[Bytes, about("what decompresses to more in one request is refused")] = 67_108_864
    # Java pipelines 5 requests, librdkafka up to 1,000,000; a broker works on one of a connection at a time. Enough to
    # keep any connection busy, and a bound on what one client can leave waiting and on what comes at once of it.
    client_max_in_flight_requests: Annotated[
        int, Meta(ge=1, le=INT_MAX), about("unanswered requests of a client before it stops being read")
    ] = 100
    # Kafka has none (2147483647). A bound keeps a storm of reconnects from taking the descriptors that brokers need.
    max_connections: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        about("client connections per worker; the idlest make room, or the new are closed"),
    ] = 10_000
    max_connections_per_ip: Annotated[
        int, Meta(ge=1, le=INT_MAX), about("client connections from one address per worker; more are closed at once")
    ] = INT_MAX

    metadata_max_topics: Annotated[
        int, Meta(ge=1, le=1_000_000), about("topics whose metadata is kept, per worker; the least used make room")
    ] = 20_000
    metadata_refresh_group_size: Annotated[
        int, Meta(ge=1, le=10_000), about("topics refreshed together in the background")
    ] = 100

    # The journal
    journal_dir: Annotated[Folder, about("folder for the telemetry journal; empty: none")] = ""
    journal_topic: Annotated[Topic, about("topic for the telemetry journal, instead of a folder; empty: none")] = ""
    journal_ledger: Annotated[
        bool, about("the journal also tells what each produce request held and what became of it, for the audit")
    ] = False
    journal_segment_bytes: Annotated[
        int, Meta(ge=4096, le=INT_MAX), about("a journal file of this size is closed and compressed")
    ] = 67_108_864
    journal_roll_ms: Annotated[
        int, Meta(ge=100, le=3_600_000), about("a journal file of this age is closed and compressed")
    ] = 300_000
    journal_queue_bytes: Annotated[
        int, Meta(ge=262_144, le=INT_MAX), about("rows that wait for the disk, per worker; beyond, they are dropped")
    ] = 16_777_216
    # Kafka's log.retention.bytes has none (-1): here nobody else deletes, and the disk is often that of an application.
    journal_retention_bytes: Annotated[
        int, Meta(ge=-1, le=2**63 - 1), about("closed journal files; beyond, the oldest are deleted; -1: no limit")
    ] = 10_737_418_240

    # What it says
    log_level: Annotated[Literal["debug", "info", "warning", "error"], about("least level that is logged")] = "info"
    log_format: Annotated[
        Literal["auto", "console", "json"], about("auto: lines for people on a terminal, else JSON")
    ] = "auto"

    @property
    def upstream_max_idle_ms(self) -> int:
        """When to leave an idle broker, before it closes: 600000 → 540000, Kafka's own pair of defaults. −1: never."""
        return self.connections_max_idle_ms * 9 // 10 if self.connections_max_idle_ms >= 0 else -1


_HOST_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?"
)


_TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")


def is_host(text: str) -> bool:
    """A host name, or an address without brackets."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST_NAME.fullmatch(text) is not None
    return True


def conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    """(setting, what is wrong with it) wherever two settings contradict each other."""
    yield from _batch_conflicts(settings)
    yield from _port_conflicts(settings)
    yield from _journal_conflicts(settings)
    patience = max(0, settings.linger_ms) + settings.request_timeout_ms
    if settings.delivery_timeout_ms < patience:
        yield "delivery.timeout.ms", f"must be at least linger.ms + request.timeout.ms = {patience}"
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
        yield "journal.topic", "the journal goes to journal.dir already"
    if settings.journal_topic and not _TOPIC_NAME.fullmatch(settings.journal_topic):
        yield "journal.topic", "must be the name of a topic: up to 249 letters, digits, dots, _ and -"
    if settings.journal_ledger and not (settings.journal_dir or settings.journal_topic):
        yield "journal.ledger", "needs journal.dir or journal.topic"


def _number(settings: Settings, name: str) -> int:
    value = getattr(settings, name.replace(".", "_"))
    assert isinstance(value, int)
    return value


def _port_conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    listen, admin = settings.listen, settings.admin
    if listen.port >= MAX_PORT and not settings.node_ports:
        yield "listen", "leaves no port for the brokers, which are on its port + 1 + node id"
    if listen in settings.bootstrap_servers:
        yield "bootstrap.servers", f"{listen} is listen: the proxy would connect to itself"
    users = {listen.port: "listen"}
    for node_id, port in settings.node_ports.items():
        if port in users:
            yield "node.ports", f"port {port} of node {node_id} is already that of {users[port]}"
        users.setdefault(port, f"node {node_id}")
    if admin is not None and admin.port in users:
        yield "admin", f"port {admin.port} is already that of {users[admin.port]}"
