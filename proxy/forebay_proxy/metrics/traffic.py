"""Counters of client connections, handshakes, renewed certificates and batches, looked up once: counting only adds."""

from __future__ import annotations

import time
from collections.abc import Callable

from forebay_codecs.apis import APIS
from forebay_policies.producer_batch import ProducerBatch
from forebay_proxy.metrics.catalog import (
    FLUSH_REASONS,
    FRAME_REASONS,
    HANDSHAKE_RESULTS,
    LOGIN_MECHANISMS,
    LOGIN_RESULTS,
    PATHS,
)
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.registry import MetricRegistry


class TrafficMetrics:
    """Counts what happens on client connections. `node_id` is that of a connection's listener, None: bootstrap."""

    def __init__(self, stats: MetricRegistry) -> None:
        self._clients = stats.clients
        self._open = {"bootstrap": 0, "node": 0}
        self._total = {kind: stats.counter("forebay_connections_total", listener=kind) for kind in self._open}
        for kind in self._open:
            stats.gauge("forebay_open_connections", lambda kind=kind: self._open[kind], listener=kind)  # type: ignore[misc]
        self._requests = {api.name: stats.counter("forebay_requests_total", api=api.name) for api in APIS.values()}
        self._bytes_in = stats.counter("forebay_request_bytes_total", side="client")
        self._bytes_out = stats.counter("forebay_response_bytes_total", side="client")
        self._passed_on = stats.counter("forebay_request_bytes_total", side="upstream")
        self._passed_back = stats.counter("forebay_response_bytes_total", side="upstream")
        self._produce_passed_on = stats.counter("forebay_produce_requests_total", side="upstream")
        self._refused = {
            reason: stats.counter("forebay_frames_refused_total", reason=reason) for reason in FRAME_REASONS
        }
        self._unread = {api: stats.counter("forebay_requests_unread_total", api=api) for api in ("Metadata", "Produce")}
        self._client_errors = stats.counter("forebay_errors_total", side="client", kind="protocol")
        self._too_old = stats.counter("forebay_errors_total", side="client", kind="too_old")
        self._cut_off = stats.counter("forebay_errors_total", side="client", kind="connection_lost")
        self._upstream_lost = stats.counter("forebay_errors_total", side="upstream", kind="connection_lost")
        self._upstream_protocol = stats.counter("forebay_errors_total", side="upstream", kind="protocol")
        self.added = tuple(stats.histogram("forebay_added_latency_seconds", path=path) for path in PATHS)
        """By path: the seconds that answers took beside the brokers' (response_orderer)."""
        self._connect_failed = stats.counter("forebay_errors_total", side="upstream", kind="connect")

    def opened(self, node_id: int | None) -> None:
        """A client has connected."""
        kind = "bootstrap" if node_id is None else "node"
        self._open[kind] += 1
        self._total[kind].value += 1

    def closed(self, node_id: int | None) -> None:
        """A connection that was `opened` has closed."""
        self._open["bootstrap" if node_id is None else "node"] -= 1

    def named(
        self, client_id: str | None, address: str, software: str | None, software_version: str | None
    ) -> SeenClient:
        """A connection has said whose it is; count its requests on what is returned."""
        return self._clients.connected(client_id, address, software, software_version, time.time())

    def gone(self, client: SeenClient) -> None:
        """A connection that was `named` has closed."""
        self._clients.gone(client, time.time())

    def request(self, api: str) -> None:
        """A request has come whole; `api` is one of catalog.API_NAMES."""
        self._requests[api].value += 1

    def requests_in(self, size: int) -> None:
        """`size` bytes of requests have come from clients."""
        self._bytes_in.value += size

    def responses_out(self, size: int) -> None:
        """`size` bytes of responses were written to clients."""
        self._bytes_out.value += size

    def passed_on(self, size: int) -> None:
        """`size` bytes of requests were written to brokers, on connections of clients' own."""
        self._passed_on.value += size

    def passed_back(self, size: int) -> None:
        """`size` bytes of responses have come on these."""
        self._passed_back.value += size

    def produce_passed_on(self) -> None:
        """A Produce request goes on one of these."""
        self._produce_passed_on.value += 1

    def refused(self, reason: str) -> None:
        """A frame or connection was refused; `reason` is one of FRAME_REASONS."""
        self._refused[reason].value += 1
        self._client_errors.value += not reason.startswith("max_connections")

    def unread(self, api: str) -> None:
        """A request that Forebay cannot read went to the broker as it came."""
        self._unread[api].value += 1

    def cut_off(self) -> None:
        """A client disconnected in the middle of a frame."""
        self._cut_off.value += 1

    def too_old(self, client: SeenClient, api_key: int, version: int) -> bool:
        """A broker closed a connection for a version it does not support. True: this was not known of the client."""
        self._too_old.value += 1
        return self._clients.too_old(client, api_key, version)

    def upstream_lost(self) -> None:
        """A broker closed a client's upstream connection while something was awaited."""
        self._upstream_lost.value += 1

    def upstream_protocol(self) -> None:
        """A broker's response to a client broke the protocol."""
        self._upstream_protocol.value += 1

    def connect_failed(self) -> None:
        """No broker could be reached for a client."""
        self._connect_failed.value += 1


class HandshakeMetrics:
    """Counts how TLS handshakes of clients end."""

    def __init__(self, stats: MetricRegistry) -> None:
        self._ended = {
            result: stats.counter("forebay_tls_handshakes_total", result=result) for result in HANDSHAKE_RESULTS
        }

    def ended(self, result: str) -> None:
        """One has ended; `result` is one of HANDSHAKE_RESULTS."""
        self._ended[result].value += 1


class LoginMetrics:
    """Counts how logins of clients at Forebay itself end. Of a `mechanism` that there is not nothing was asked for."""

    def __init__(self, stats: MetricRegistry) -> None:
        self._ended = {
            (mechanism, result): stats.counter("forebay_client_logins_total", mechanism=mechanism, result=result)
            for mechanism in LOGIN_MECHANISMS
            for result in LOGIN_RESULTS
        }

    def accepted(self, mechanism: str) -> None:
        """A client has proved who it is, for the first time or again."""
        self._count(mechanism, "accepted")

    def refused(self, mechanism: str) -> None:
        """It has not, or has broken the protocol."""
        self._count(mechanism, "refused")

    def timed_out(self, mechanism: str) -> None:
        """It has not in time."""
        self._count(mechanism, "timed_out")

    def _count(self, mechanism: str, result: str) -> None:
        self._ended[mechanism or "none", result].value += 1


class RenewalMetrics:
    """Counts certificates and secrets that are made anew, and shows when certificates expire (renewals.Told)."""

    def __init__(self, stats: MetricRegistry) -> None:
        self._stats = stats

    def renewed(self, side: str) -> None:
        """New ones are in place; `side` is one of catalog.RENEWED_SIDES."""
        self._count(side, "renewed", 1)

    def failed(self, side: str) -> None:
        """New ones cannot be used."""
        self._count(side, "failed", 1)

    def watched(self, side: str, sound: Callable[[], bool]) -> None:
        """There are files; `sound`: whether they can be used."""
        self._stats.gauge("forebay_security_last_reload_successful", sound, side=side)
        for outcome in ("renewed", "failed"):
            self._count(side, outcome, 0)

    def expires(self, side: str, first_expiry: Callable[[], float]) -> None:
        """There may be certificates; `first_expiry` in seconds since 1970, inf: there are none."""
        self._stats.gauge("forebay_certificate_expiry_timestamp_seconds", first_expiry, side=side)

    def _count(self, side: str, outcome: str, more: int) -> None:
        self._stats.counter("forebay_security_reloads_total", side=side, outcome=outcome).value += more


class FlushMetrics:
    """Counts the batches that are sent to brokers, and why they left when they did."""

    def __init__(self, stats: MetricRegistry) -> None:
        self._linger = stats.histogram("forebay_batch_linger_time_seconds")
        self._records = stats.histogram("forebay_batch_records")
        self._bytes = stats.histogram("forebay_batch_bytes")
        self._reasons = {
            reason: stats.counter("forebay_batches_flushed_total", reason=reason) for reason in FLUSH_REASONS
        }

    def flushed(self, batch: ProducerBatch, now: float) -> None:
        """A batch is sent at `now`, in seconds of the clock of its `opened_at`."""
        self._linger.observe(now - batch.opened_at)
        self._records.observe(batch.record_count)
        self._bytes.observe(batch.size)
        self._reasons[batch.flush_reason].value += 1
