"""One process of the proxy: constructs its parts, starts them, drains or aborts them.

    listeners → client connections ⇄ realm → brokers
                       ↕
             opaque connections → brokers

In: settings. Out: a running proxy until `drain` (stop accepting, flush, answer what was answered) or `abort`. A part is
given what it needs when it is constructed; whoever wants to hear of another's news registers with it there.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from random import Random
from time import monotonic
from typing import Any, Final

from forebay_policies.buffer_pool import BufferPool
from forebay_policies.departed_brokers import DepartedBrokers
from forebay_policies.described_topic import DescribedTopics
from forebay_policies.inbound_memory import InboundMemory
from forebay_policies.leave_turns import MOST_S, LeaveTurns
from forebay_policies.loop_turns import LoopTurns
from forebay_policies.response_memory import ResponseMemory
from forebay_policies.uniform_partitioner import UniformPartitioner
from forebay_policies.untaken_answers import UntakenAnswers
from forebay_proxy import logs
from forebay_proxy.brokers.broker_probe import BrokerProbe
from forebay_proxy.brokers.broker_versions import BrokerVersions
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.delegation_tokens import DelegationTokens
from forebay_proxy.clients.client_connection import ClientConnection
from forebay_proxy.clients.client_listeners import ClientListeners
from forebay_proxy.clients.client_racks import ClientRacks
from forebay_proxy.clients.connection_context import ConnectionContext
from forebay_proxy.clients.connections import ConnectionRegistry
from forebay_proxy.clients.descriptors import raise_limit
from forebay_proxy.clients.gateway import Gateway
from forebay_proxy.clients.handshakes import MAX_PENDING, Handshakes
from forebay_proxy.clients.held import held
from forebay_proxy.clients.listener import Listener
from forebay_proxy.clients.terminated_login import LoginDoor
from forebay_proxy.config.listeners import ClientListener
from forebay_proxy.config.live import with_live
from forebay_proxy.config.settings import Settings
from forebay_proxy.inherited import Inherited
from forebay_proxy.journal.files import JournalFiles
from forebay_proxy.journal.gauges import gauge_row
from forebay_proxy.journal.recorder import Journal, Sink
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.metrics.traffic import HandshakeMetrics, LoginMetrics, RenewalMetrics, TrafficMetrics
from forebay_proxy.metrics.worker_vitals import WorkerVitals
from forebay_proxy.produce.journal_topic import JournalTopic
from forebay_proxy.produce.memory_grants import MemoryGrants
from forebay_proxy.realms import dump
from forebay_proxy.realms.realm import Realm, Shared, TouchSettings
from forebay_proxy.realms.realms import ClientRealms
from forebay_proxy.security.certificate_login import CertificateLogin
from forebay_proxy.security.client_logins import ClientLogins
from forebay_proxy.security.renewals import Outcome, Renewals
from forebay_proxy.security.upstream_identities import UpstreamIdentities

log = get_logger()

OPAQUE_GRACE: Final = 1.0
"""Seconds that a drain gives to requests that wait at a broker by their nature (Fetch, JoinGroup)."""

DRAIN_STEP: Final = 0.02
TURN_STEP: Final = 0.05
"""As long as clients are served whose turn to leave has not come: each step cuts short what lingers."""
PACKET: Final = 1_200
"""Bytes that are in one packet on any network."""

NEWCOMER_S: Final = 1.0
"""A client that came just before a drain, and could not know, is answered if it asks within this time."""

UNCLAIMED_S: Final = 30.0
"""Until then brokers are known, and inherited sockets of ports that are none's are closed."""


class App:
    """Serves clients from `start` on; after `drain` nothing acknowledged or accepted is left undelivered in it."""

    def __init__(
        self,
        settings: Settings,
        stats: MetricRegistry,
        worker: int = 0,
        inherited: Inherited | None = None,
        rng: Random | None = None,
    ) -> None:
        rng = rng or Random()
        self._inherited = inherited or Inherited()
        self._accepts = not self._inherited
        self._settings = settings
        self._stats = stats
        self._worker = worker
        self._rng = rng
        self._log = RateLimited(log)
        self._draining = False
        self._failed = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._accepting: asyncio.Task[None] | None = None
        metrics = TrafficMetrics(stats)
        self._login_metrics = LoginMetrics(stats)

        journaled = bool(settings.journal_dir or settings.journal_topic)
        self._journal = Journal(worker, stats, settings.journal_topic) if journaled else None

        # Brokers, and what belongs to one identity there.
        self._renewals = Renewals(settings, RenewalMetrics(stats))
        connector = Connector(settings, stats, rng)
        self._renewals.add(connector.renewable)
        self._pool = BufferPool(settings.buffer_memory, settings.batch_initial_size, settings.batch_size)
        MemoryGrants(self._pool, stats)
        self._versions = BrokerVersions(lambda node_id: self._realm.view.addresses.of(node_id), connector, self._log)
        departed = self._departed = DepartedBrokers(
            settings.request_timeout_ms / 1000, others=settings.workers > 1 or bool(self._inherited)
        )
        turns = LoopTurns(monotonic, asyncio.get_running_loop().call_soon)
        merges_users = any(listener.has_realms for listener in settings.client_listeners)
        described = DescribedTopics(settings.metadata_max_topics if merges_users else 0)
        shared = self._shared = Shared(
            settings,
            rng,
            self._pool,
            self._versions,
            turns,
            departed,
            self._journal,
            described,
            TouchSettings.of(settings).eligibility(),
        )
        self._realm = Realm(shared, connector, stats, asks=not settings.only_passes_logins)
        self._client_realms = ClientRealms(shared, self._realm, connector, stats, self._task_ended)
        view = self._realm.view
        self._tokens = DelegationTokens(view.addresses, connector)
        self._probe = BrokerProbe(view.addresses, connector, settings, rng) if settings.only_passes_logins else None

        # Clients.
        inbound_memory = InboundMemory(settings.queued_max_request_bytes, settings.socket_request_timeout_ms / 1000)
        responses = ResponseMemory()
        self._untaken = UntakenAnswers()

        def context_of(listener: Listener) -> ConnectionContext:
            gateway = Gateway(settings, view, listener, responses, self._realm.departing)
            told = listener.settings.told
            recognises = listener.settings.passes_logins and told.upstream_identity == "client"
            return ConnectionContext(
                gateway,
                self._realm.handler,
                self._realm.metadata,
                metrics,
                self._log,
                inbound_memory,
                turns,
                departed,
                settings.socket_request_max_bytes,
                settings.client_max_in_flight_requests,
                self._untaken,
                ClientRacks(settings.client_racks, listener.settings.told.client_rack or settings.client_rack),
                self._client_realms if recognises else None,
                self._door_of(listener.settings),
                _admin_address(settings),
            )

        most = self._most_of(settings)
        self._connections = ConnectionRegistry(
            settings,
            most,
            inbound_memory,
            responses,
            self._untaken,
            metrics,
            self._log,
            rng,
        )
        handshakes = self._handshakes = Handshakes(HandshakeMetrics(stats), most)
        self._listeners = ClientListeners(
            settings, self._connections, handshakes, self._log, self._renewals, context_of, self._inherited
        )
        stats.gauge("forebay_brokers_without_port", lambda: len(self._listeners.without_port))
        stats.gauge("forebay_tls_handshakes", lambda: len(handshakes))
        stats.gauge("forebay_queued_request_bytes", lambda: inbound_memory.total)
        stats.gauge("forebay_gathered_response_bytes", lambda: responses.total)
        stats.gauge("forebay_upstream_connections", lambda: sum(c.has_upstream for c in self._connections))
        self._vitals = WorkerVitals(stats, worker, monotonic)
        stats.gauge("forebay_tasks", lambda: len(asyncio.all_tasks()))

    def _door_of(self, listener: ClientListener) -> LoginDoor | None:
        if not listener.terminates:
            return None
        settings, told = self._settings, listener.told
        logins, identities = ClientLogins(settings, listener), UpstreamIdentities(settings, listener, self._tokens)
        self._renewals.add(logins.renewable)
        self._renewals.add(identities.renewable)
        return LoginDoor(
            logins,
            told.sasl_server_max_receive_size,
            settings.authentication_timeout_ms / 1000,
            settings.connection_failed_authentication_delay_ms / 1000,
            told.connections_max_reauth_ms / 1000,
            CertificateLogin(told.ssl_principal_mapping_rules) if listener.takes_certificates else None,
            identities,
            self._client_realms,
            self._login_metrics,
        )

    def _most_of(self, settings: Settings) -> int:
        with_tls = any(listener.uses_tls for listener in settings.client_listeners)
        return raise_limit(settings.max_connections, MAX_PENDING if with_tls else 0)

    # Start

    async def start(self) -> None:
        """Open the bootstrap listener; those of the brokers follow as soon as a broker tells of them."""
        if self._journal is not None:
            self._journal.start(self._journal_sink(), partial(gauge_row, self._journal, self._stats))
        await self._listeners.open()
        loop = asyncio.get_running_loop()
        if not self._accepts:
            self._accepting = loop.create_task(self._accept_once_ready())
            self._accepting.add_done_callback(self._accept_ended)
            loop.call_later(UNCLAIMED_S, self._inherited.close)
        parts = (self._probe, self._client_realms, self._connections, self._renewals, self._vitals)
        coroutines = [*self._realm.run(), *(part.run() for part in parts if part is not None)]
        self._tasks = [loop.create_task(coroutine) for coroutine in coroutines]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    def _journal_sink(self) -> Sink:
        settings, realm = self._settings, self._realm
        if settings.journal_dir:
            return JournalFiles(
                settings.journal_dir,
                self._worker,
                settings.journal_segment_bytes,
                settings.journal_roll_ms / 1000,
                settings.journal_queue_bytes,
                settings.journal_retention_bytes,
            )
        return JournalTopic(
            settings.journal_topic,
            settings.journal_queue_bytes,
            realm.accumulator,
            realm.view.cluster,
            realm.view.updater,
            realm.deadlines,
            UniformPartitioner(self._rng, settings.batch_size),
            realm.handler.flush_in_time,
        )

    def listening(self) -> list[socket.socket]:
        """All sockets by which clients come."""
        return self._listeners.sockets

    def reload(self) -> asyncio.Future[list[Outcome]]:
        """Make everything anew that stands in files: certificates, keys, passwords; what came of it."""
        return self._renewals.now()

    def prepare(self, settings: Settings) -> Callable[[], None]:
        """Get ready for other live settings; what puts them into force."""
        settings = with_live(self._shared.settings, settings)
        shared = self._shared
        touch = TouchSettings.of(settings)
        eligibility = shared.eligibility if touch == TouchSettings.of(shared.settings) else touch.eligibility()
        most = self._most_of(settings)

        def commit() -> None:
            if settings.log_level != shared.settings.log_level:
                logs.set_level(settings.log_level)
            shared.settings = settings
            shared.eligibility = eligibility
            self._connections.change(settings, most)
            self._handshakes.allow(most)
            for realm in self._all_realms():
                realm.change(settings, eligibility)

        return commit

    def dump(self) -> dict[str, Any]:
        """How it stands, for whoever looks for a fault: of bounded size, without records and secrets."""
        realms = self._all_realms()
        return {
            "memory": dump.memory(self._pool),
            "queues": dump.queues(realms, monotonic()),
            "brokers": dump.brokers(realms),
            "clients": held(self._connections),
        }

    async def _accept_once_ready(self) -> None:
        """Until then the one whose sockets they are serves whoever comes."""
        while True:
            if self._unready() is None:
                break
            await asyncio.sleep(DRAIN_STEP)
        if not self._draining:
            await self._listeners.accept()
            self._accepts = True

    def ready(self) -> str | None:
        """None once clients can be served; else why not."""
        if self._draining:
            return "draining"
        return self._unready() or (None if self._accepts else "not accepting yet")

    def _unready(self) -> str | None:
        if self._failed:
            return self._failed
        if self._probe is not None:
            return None if self._probe.answered else "no broker has answered yet"
        if self._realm.view.cluster.updated_at is None:
            return "no broker has told its metadata yet"
        return None

    def unhealthy(self) -> str | None:
        """Why the process should be restarted: a part of it has ended by a fault of ours. None: it need not be."""
        return self._failed or None

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """These tasks never end by themselves: that is a fault of ours, and must not go unseen."""
        if not task.cancelled():
            self._failed = "a part of the proxy has failed: see the log"
            log.error(self._failed, exc_info=task.exception())

    def _accept_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._task_ended(task)

    # Drain, abort

    async def drain(self, *, succeeded: bool = False) -> None:
        """Stop accepting and reading, flush everything, answer what brokers answer. The caller bounds the time.

        Where it is `succeeded` by others on the same ports, clients leave one broker after the other (leave_turns.py).
        """
        self._accept_no_more(succeeded=succeeded)
        turns = self._turns() if succeeded else LeaveTurns((), monotonic(), 0.0)
        while self._meets_newcomers(turns, turns.last + NEWCOMER_S):
            self._flush()
            await asyncio.sleep(DRAIN_STEP if monotonic() >= turns.last else TURN_STEP)
        self._leave()
        for connection in self._connections:
            connection.drain()
        until = monotonic() + OPAQUE_GRACE
        while any(realm.busy for realm in self._all_realms()) or self._awaiting(until):
            self._flush()
            await asyncio.sleep(DRAIN_STEP)
        for connection in self._connections:
            connection.close()
        await self._connections.all_gone()
        if self._journal is not None:
            await self._journal.close()
        # Which is seldom, has no rows, and may take longer than there is time.
        while any(realm.departing for realm in self._all_realms()):  # noqa: ASYNC110 - several, and any of them
            await asyncio.sleep(DRAIN_STEP)
        await self._tokens.close()
        self._stop()

    def _turns(self) -> LeaveTurns:
        """A broker that others do not tell of, as it has left the cluster, has none: its clients leave first."""
        rest_s = self._settings.shutdown_timeout_ms / 1000 - NEWCOMER_S - OPAQUE_GRACE
        nodes = self._realm.view.cluster.nodes.keys() - self._departed.left
        return LeaveTurns(nodes, monotonic(), min(MOST_S, max(rest_s, 0.0) / 4))

    def _meets_newcomers(self, turns: LeaveTurns, until: float) -> bool:
        """Whether some have yet to ask something, or it is not their turn to leave; all others are closed as soon as
        nothing is owed to them."""
        now = monotonic()
        met = len(self._handshakes) > 0 and now < until
        for connection in self._connections:
            may_leave = _may_leave(connection, turns, now)
            at_rest = may_leave and _at_rest(connection)
            if not (at_rest or (may_leave and turns.is_over(connection.node_id, now))):
                met = True
                continue
            connection.drain()
            if connection.quiet and (at_rest or not connection.undelivered):
                connection.close()
        return met

    def _flush(self) -> None:
        for realm in self._all_realms():
            realm.accumulator.flush_all(monotonic())

    def _all_realms(self) -> list[Realm]:
        return [self._realm, *self._client_realms]

    def _awaiting(self, until: float) -> bool:
        grace = monotonic() < until
        return any(
            connection.owing or (grace and (connection.awaiting or connection.undelivered))
            for connection in self._connections
        )

    async def cut_off(self) -> None:
        """A drain took too long: no client is answered any more, and the journal is closed. The caller bounds the time.

        `abort` follows.
        """
        self._leave()
        for connection in self._connections:
            connection.abort()
        if self._journal is not None:
            await self._journal.close()

    def abort(self) -> None:
        """Leave at once, whatever is under way."""
        self._leave()
        for connection in self._connections:
            connection.abort()
        for realm in self._all_realms():
            for departing in tuple(realm.departing):
                departing.abort()
        self._stop()

    def _accept_no_more(self, *, succeeded: bool = False) -> None:
        if not self._draining:
            self._draining = True
            self._listeners.close(succeeded=succeeded)
        self._inherited.close()

    def _leave(self) -> None:
        self._accept_no_more()
        self._realm.dispatcher.retire()
        self._client_realms.retire()
        self._handshakes.close()
        self._connections.close()

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._accepting is not None:
            self._accepting.cancel()
        self._client_realms.close()
        self._realm.close()
        self._versions.close()
        self._log.flush()


def _may_leave(connection: ClientConnection, turns: LeaveTurns, now: float) -> bool:
    """Whether a drain may read it no more: its turn has come, and it has asked something or had the time to."""
    if not turns.has_come(connection.node_id, now):
        return False
    return connection.awaiting > 0 or connection.answered or now >= connection.began + NEWCOMER_S


def _at_rest(connection: ClientConnection) -> bool:
    """Whether it can be closed with nothing lost. A client that waits for an answer sends nothing before it has come: a
    short one need not be known to have, as it is confirmed with the next request."""
    return connection.settled and connection.undelivered <= PACKET


def _admin_address(settings: Settings) -> str:
    """As `forebay clients` is told it: host:port, with https:// where TLS is spoken; empty: there is none."""
    if settings.admin is None:
        return ""
    return f"https://{settings.admin}" if settings.admin_ssl_keystore_location else str(settings.admin)
