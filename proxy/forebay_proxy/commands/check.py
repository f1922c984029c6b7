"""What `forebay check` does: whether Forebay could be started with these settings, here and now.

In: settings. Out: findings in the order in which Forebay would meet them: brokers as they are reached, logged
in at and listed, what is made of files, ports, addresses that clients would be told, memory, descriptors, the journal.
Nothing stays behind: ports are bound and given back, brokers are asked for ApiVersions and Metadata only.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from time import time
from typing import Final, Literal, NamedTuple

import msgspec
from prometheus_client.metrics_core import Metric as Family

from forebay_codecs.api_keys import METADATA, PRODUCE
from forebay_codecs.errors import Malformed
from forebay_codecs.metadata import Metadata, parse_metadata_response
from forebay_codecs.metadata_request import MAX_VERSION, encode_metadata_request
from forebay_policies import response_memory, untaken_answers
from forebay_policies.throttling import CLIENT_ID
from forebay_proxy.brokers.connector import Connector, takes_produce
from forebay_proxy.brokers.dial import TlsFailed
from forebay_proxy.brokers.metadata_updater import LOWEST_VERSION
from forebay_proxy.brokers.upstream_connection import UpstreamConnection
from forebay_proxy.clients.client_listeners import tls_context
from forebay_proxy.clients.descriptors import room
from forebay_proxy.clients.handshakes import MAX_PENDING
from forebay_proxy.clients.listener import listen
from forebay_proxy.clients.listener_ports import ListenerPorts
from forebay_proxy.config.advertised import may_strand
from forebay_proxy.config.listeners import ClientListener
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.config.without_effect import without_effect
from forebay_proxy.errors import StartError
from forebay_proxy.inherited import Inherited
from forebay_proxy.metrics.admin import bound
from forebay_proxy.metrics.admin_access import AdminAccess
from forebay_proxy.metrics.admin_socket import AdminSocket
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.process.exporting import otlp_export
from forebay_proxy.process.lifecycle import COMPILED
from forebay_proxy.security import expiry
from forebay_proxy.security.authenticator import AuthenticationFailed
from forebay_proxy.security.client_logins import ClientLogins
from forebay_proxy.security.tls import TlsContext, brokers_context
from forebay_proxy.security.upstream_identities import read_targets

Verdict = Literal["ok", "warning", "failure"]
FAILURE: Final = "failure"

CGROUP_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""cgroup v2, v1."""
PROCESS_BYTES: Final = 56 << 20
"""What a worker takes before it holds anything of clients."""
ANSWERS_BYTES: Final = 2 * response_memory.LIMIT + untaken_answers.LIMIT
"""Of answers that clients do not take; twice the limit where several of those that are rewritten pile up."""
TLS_BYTES: Final = 43_000
"""Of a client that produces over TLS (docs/security.md)."""
PASSED_TLS_BYTES: Final = 111_000
"""Of one that is passed through, on a connection to a broker of its own."""


class Finding(msgspec.Struct, frozen=True):
    """What was looked at, what came of it, and where it is not well what to do."""

    what: str
    verdict: Verdict
    said: str


PURE: Final = Finding(
    "installation",
    "warning",
    "pure Python, more than ten times the CPU for reading records: install a C compiler and Python's headers, then "
    "Forebay with FOREBAY_REQUIRE_COMPILE=1",
)


def check(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """Everything that was found. Takes as long as brokers that do not answer: socket.connection.setup.timeout.ms."""
    return asyncio.run(_everything(settings, environ))


async def _everything(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    now = time()
    findings, nodes = await _brokers(settings, now)
    findings += [
        Finding("settings without effect", "warning", f"{', '.join(idle.names)}: {idle.why}")
        for idle in without_effect(settings)
    ]
    findings += [] if COMPILED else [PURE]
    findings += _made(settings, environ, now)
    findings += _ports(settings, nodes)
    findings += _addresses(settings, environ)
    findings += [_memory(settings, CGROUP_LIMITS), _descriptors(settings)]
    findings += _journal(settings)
    return findings


# Brokers


async def _brokers(settings: Settings, now: float) -> tuple[list[Finding], list[int]]:
    """Findings, and the ids of all brokers; none: no broker tells of them."""
    try:
        connector = Connector(settings, MetricRegistry(), Random())
    except StartError as error:
        return [Finding("certificates and login", FAILURE, str(error))], []
    context = brokers_context(settings) if settings.uses_tls else None
    own = [_lasting("certificate for brokers", context, now)] if context and math.isfinite(context.expires_at) else []
    tried: list[_Tried] = []
    untold: list[Finding] = []
    known: Metadata | None = None
    for server in settings.bootstrap_servers:
        tried.append(await _try(connector, server, f"bootstrap server {server}"))
        connection = tried[-1].connection
        if connection is None:
            continue
        try:
            if known is None and not settings.only_passes_logins:
                known = await _cluster(connection)
        except (OSError, Malformed) as error:
            untold.append(Finding("cluster", FAILURE, f"{server} does not tell of it: {error}"))
        finally:
            connection.close()
    findings = [*own, *_together(tried, "another one is enough to start"), *untold]
    if settings.only_passes_logins:
        said = "not looked at: clients log in themselves, Forebay has no login"
        return [*findings, Finding("cluster", "warning", said)], []
    if known is None:
        return findings, []
    nodes = sorted(known.brokers)
    findings.append(Finding("cluster", "ok", f"{known.cluster_id}, brokers {', '.join(map(str, nodes))}"))
    tried = []
    for node_id in nodes:
        address = HostPort(known.brokers[node_id].host, known.brokers[node_id].port)
        tried.append(await _try(connector, address, f"broker {node_id} at {address}"))
        if tried[-1].connection is not None:
            tried[-1].connection.close()
    return [*findings, *_together(tried, "partitions that it leads are not served")], nodes


class _Tried(NamedTuple):
    """`connection`: None where there is none. `down`: nobody answers there, which others may make up for."""

    finding: Finding
    connection: UpstreamConnection | None = None
    down: bool = False


def _together(tried: Sequence[_Tried], costs: str) -> Iterator[Finding]:
    """Where some serve, one that is down is a warning that says what it `costs`."""
    some_serve = any(it.connection is not None for it in tried)
    for finding, _, down in tried:
        if down and some_serve:
            yield Finding(finding.what, "warning", f"{finding.said}; {costs}")
        else:
            yield finding


async def _try(connector: Connector, server: HostPort, what: str) -> _Tried:
    try:
        connection = await connector.open(*server)
    except socket.gaierror as error:
        return _Tried(Finding(what, FAILURE, f"its name is not known here: {error}"), down=True)
    except (AuthenticationFailed, TlsFailed, UnicodeError, Malformed) as error:
        return _Tried(Finding(what, FAILURE, str(error)))
    except OSError as error:
        return _Tried(Finding(what, FAILURE, str(error)), down=True)
    takes = connection.versions.get(PRODUCE)
    offered = "none" if takes is None else f"v{takes[0]} to v{takes[1]}"
    if takes is None or not takes_produce(connection):
        connection.close()
        return _Tried(Finding(what, FAILURE, f"offers no Produce that Forebay speaks: {offered}. Is it Kafka?"))
    return _Tried(Finding(what, "ok", f"answers, Produce up to v{takes[1]}"), connection)


async def _cluster(connection: UpstreamConnection) -> Metadata:
    """Raises OSError or Malformed."""
    lowest, highest = connection.versions.get(METADATA, (0, -1))
    version = min(MAX_VERSION, highest)
    if version < max(lowest, LOWEST_VERSION):
        raise Malformed(f"it offers no Metadata v{LOWEST_VERSION}")
    response = await connection.call(
        lambda correlation_id: encode_metadata_request(correlation_id, CLIENT_ID, version, ())
    )
    return parse_metadata_response(response, version)


# This machine


def _made(settings: Settings, environ: Mapping[str, str], now: float) -> Iterator[Finding]:
    """What is made of files, and of an extra, before clients are let in: whether it can be, and for how long."""
    for what, make in _to_make(settings, environ):
        try:
            made = make()
        except StartError as error:
            yield Finding(what, FAILURE, str(error))
        else:
            context = made.context if isinstance(made, AdminAccess) else made
            yield _lasting(what, context if isinstance(context, TlsContext) else None, now)


def _lasting(what: str, context: TlsContext | None, now: float) -> Finding:
    """Of what can be used until its certificate expires. One of its chain may be of no use to anybody any more."""
    if context is None or context.expires_at - now >= expiry.SOON_S:
        return Finding(what, "ok", "can be used")
    if context.own_expires_at <= now:
        return Finding(what, FAILURE, f"its certificate expired at {expiry.written(context.own_expires_at)}")
    expires = "expires" if context.expires_at > now else "expired"
    whose = "its certificate" if context.expires_at == context.own_expires_at else "a certificate of its chain"
    return Finding(what, "warning", f"{whose} {expires} at {expiry.written(context.expires_at)}")


def _to_make(settings: Settings, environ: Mapping[str, str]) -> Iterator[tuple[str, Callable[[], object]]]:
    for listener in settings.client_listeners:
        if listener.uses_tls:
            yield f"certificates of {listener.name}", partial(tls_context, listener)
        if listener.terminates:
            yield f"logins at {listener.name}", partial(ClientLogins, settings, listener)
        if listener.told.upstream_identity == "mapped":
            yield f"identities at {listener.name}", partial(read_targets, listener, environ)
    if settings.admin is not None or settings.admin_socket:
        yield "access to the admin endpoint", partial(AdminAccess, settings)
    if settings.otlp_endpoint:
        yield "export of metrics", partial(otlp_export, settings, _no_metrics, MetricRegistry())


async def _no_metrics() -> Iterable[Family]:
    return ()


def _ports(settings: Settings, nodes: Sequence[int]) -> Iterator[Finding]:
    """Each port that would be opened: whether it is free, also once the admin endpoint has its own."""
    ports = ListenerPorts(settings.client_listeners)
    with ExitStack() as held:
        if settings.admin is not None:
            yield _admin(settings.admin, held)
        if settings.admin_socket:
            yield _socket(settings.admin_socket)
        for listener in settings.client_listeners:
            wanted: list[tuple[str, int | None]] = [("clients", listener.port)]
            if not listener.producers_only:
                wanted += [(f"broker {node_id}", ports.of(listener, node_id)) for node_id in nodes]
            yield _port(listener, wanted)


def _admin(address: HostPort, held: ExitStack) -> Finding:
    what = "admin endpoint"
    try:
        for each in bound(address, Inherited()):
            held.enter_context(each)
    except StartError as error:
        return Finding(what, FAILURE, str(error))
    return Finding(what, "ok", f"{address} is free")


def _socket(path: str) -> Finding:
    try:
        AdminSocket(path).close()
    except StartError as error:
        return Finding("admin socket", FAILURE, str(error))
    return Finding("admin socket", "ok", f"{path} can be made")


def _port(listener: ClientListener, wanted: Sequence[tuple[str, int | None]]) -> Finding:
    what = f"listener {listener.name}"
    without = [name for name, port in wanted if port is None]
    if without:
        return Finding(what, FAILURE, f"has no port for {', '.join(without)}: name one with node.ports")
    host, named = listener.host, [(name, port) for name, port in wanted if port is not None]
    if taken := [f"{port} for {name}: {why}" for name, port in named if (why := _why_not(host, port))]:
        return Finding(what, FAILURE, f"cannot listen on {host} port {'; '.join(taken)}")
    return Finding(what, "ok", f"{host}, ports {', '.join(str(port) for _, port in named)} are free")


def _why_not(host: str, port: int) -> str | None:
    """Why the port cannot be bound; None: it can."""
    try:
        listen(host, port, shared=False).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _addresses(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """What clients would be told."""
    strands = {listener.name for listener in may_strand(settings, environ)}
    for listener in settings.client_listeners:
        what = f"addresses told by {listener.name}"
        if listener.name in strands:
            said = (
                "each client is told the address at which it reached Forebay; behind a balancer that strands clients "
                "when this Forebay is replaced: set advertised.host"
            )
            yield Finding(what, "warning", said)
        elif listener.told.advertised_address is not None:
            yield Finding(what, "ok", "broker 0 is {}:{}".format(*listener.told.advertised_address.of(0)))
        else:
            yield Finding(what, "ok", listener.advertised_host or f"as reached, on {listener.host}")


def _memory(settings: Settings, limits: Sequence[Path]) -> Finding:
    opened = 2 * settings.max_decompressed_bytes  # a request, and what is made of its records
    bounded = settings.queued_max_request_bytes >= 0
    each = PROCESS_BYTES + settings.buffer_memory + max(0, settings.queued_max_request_bytes) + ANSWERS_BYTES + opened
    if settings.journal_dir or settings.journal_topic:
        each += settings.journal_queue_bytes
    history = settings.admin_history_bytes if settings.admin is not None or settings.admin_socket else 0
    needed = settings.workers * each + history
    limit = _limit(limits)
    said = f"{_mb(needed)} at most for {settings.workers} worker{'s' if settings.workers > 1 else ''}"
    if not bounded:
        said += ", and requests that arrive or wait, to which queued.max.request.bytes = -1 sets no bound"
    verdict: Verdict = "ok" if bounded else "warning"
    with_tls = 0
    if secured := [listener for listener in settings.client_listeners if listener.uses_tls]:
        passed = settings.moves == "observe" or any(it.passes_logins and not it.has_realms for it in secured)
        clients = settings.workers * settings.max_connections
        with_tls = clients * (PASSED_TLS_BYTES if passed else TLS_BYTES)
        which = "are passed through" if passed else "produce"
        said += f", and {_mb(with_tls)} for {clients:,} clients with TLS that {which}"
    if limit is None:
        return Finding("memory", verdict, f"{said}; no limit is set for this process")
    if needed > limit:
        more = "give it more, or lower buffer.memory, queued.max.request.bytes, max.decompressed.bytes or workers"
        return Finding("memory", FAILURE, f"{said}, but the limit is {_mb(limit)}: {more}")
    if needed + with_tls > limit:  # there may never be as many
        return Finding("memory", "warning", f"{said}, but the limit is {_mb(limit)}: lower max.connections")
    return Finding("memory", verdict, f"{said} of {_mb(limit)}")


def _limit(limits: Sequence[Path]) -> int | None:
    """Bytes that this process's control group may take; None: as many as there are."""
    for path in limits:
        try:
            written = path.read_text().strip()
        except OSError:
            continue
        if written.isdigit() and int(written) < 1 << 60:  # v1 writes "none" as a number beyond all memory
            return int(written)
    return None


def _mb(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


def _descriptors(settings: Settings) -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    pending = MAX_PENDING if any(listener.uses_tls for listener in settings.client_listeners) else 0
    enough_for = room(hard, pending)
    if hard == resource.RLIM_INFINITY or enough_for >= settings.max_connections:
        return Finding("file descriptors", "ok", f"enough for max.connections = {settings.max_connections:,} a worker")
    said = f"{hard:,}, enough for {enough_for:,} clients a worker, not for max.connections"
    return Finding("file descriptors", "warning", f"{said} = {settings.max_connections:,}: raise the limit (nofile)")


def _journal(settings: Settings) -> Iterator[Finding]:
    if settings.journal_topic:
        yield Finding("journal", "ok", f"to the topic {settings.journal_topic}")
    if not settings.journal_dir:
        return
    folder = Path(settings.journal_dir)
    there = folder
    while not os.path.exists(there):  # a Path's own raises where it may not look
        there = there.parent
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        why = "does not let us" if os.path.isdir(there) else "is not a folder"
        yield Finding("journal", FAILURE, f"{folder} cannot be written: {there} {why}")
        return
    free, kept = shutil.disk_usage(there).free, settings.journal_retention_bytes
    verdict: Verdict = "warning" if kept < 0 or kept > free else "ok"
    most = f"at most {_mb(kept)}" if kept >= 0 else "everything (journal.retention.bytes = -1)"
    yield Finding("journal", verdict, f"{folder}: keeps {most}, {_mb(free)} are free")


# For people


_SIGNS: Final[Mapping[Verdict, str]] = {"ok": "ok  ", "warning": "warn", "failure": "FAIL"}


def as_text(findings: Sequence[Finding]) -> str:
    """A line each, and how many are not well."""
    lines = [f"{_SIGNS[finding.verdict]}  {finding.what}: {finding.said}" for finding in findings]
    failures, warnings = (sum(it.verdict == verdict for it in findings) for verdict in ("failure", "warning"))
    if failures:
        last = f"Forebay would not serve: {failures} failure{'s' if failures > 1 else ''}."
    elif warnings:
        last = f"Forebay would serve; {warnings} warning{'s' if warnings > 1 else ''}."
    else:
        last = "Forebay would serve."
    return "\n".join([*lines, last])
