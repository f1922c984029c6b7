"""The catalog of metrics: name, kind, labels with all their values, help. No metric is defined anywhere else.

Label values come from closed sets, or are brokers' node ids; never from clients: client ids and unknown APIs could grow
without bound. Topics are named only if a setting says how many.
A new reason or kind of error is added here first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from forebay_codecs.apis import APIS
from forebay_policies.builtin_partitioners import BUILT_IN
from forebay_policies.eligibility import Reason
from forebay_policies.journal_rows import FlushReason
from forebay_proxy.config.kinds import ServedMechanism
from forebay_proxy.config.settings import MAX_WORKERS

API_NAMES: Final = tuple(api.name for api in APIS.values())
"""Requests are counted by the name of their API, if it is one that Forebay offers to clients."""

SIDES: Final = ("client", "upstream", "internal")
ERROR_KINDS: Final = (
    "protocol",  # bytes that break the protocol
    "connect",  # no connection could be made
    "authentication",  # a broker refused our login
    "client_authentication",  # a broker refused a client's, with which the client itself is connected
    "connection_lost",
    "timeout",  # no answer in time
    "metadata",  # a refresh failed
    "answered",  # a broker's error, returned to the client
    "outcome_unknown",  # a batch may be appended, and is not sent again
    "idempotence",  # no broker gave out a producer id
    "refused",  # a batch that Forebay did not send, for good: its user may not see the topic, say
    "retriable",  # a batch that Forebay did not send, and that clients send again: its topic is not there yet, or gone
    "expired",  # not acknowledged before the client's or the delivery timeout
    "partitioner",  # a custom partitioner failed
    "too_old",  # a request version that the broker no longer supports
)
FLUSH_REASONS: Final = get_args(FlushReason)
PARTITIONER_CHOICES: Final = ("sticky", "switch", "no_opinion", "chosen", "invalid")
RETRY_REASONS: Final = (
    "repartitioned",  # records without a key, at once to another partition
    "unreachable",  # the same, because their broker could not be reached
    "backoff",  # after a pause, most to the same partition
    "split",  # in halves, because the broker refused the batch as a whole
    "outcome_unknown",  # under the same sequence: the broker may have it already
    "resequenced",  # under another sequence, because the broker did not take it
)
METADATA_CAUSES: Final = ("new_topic", "max_age", "error", "connection", "client")
FRAME_REASONS: Final = (
    "too_large",
    "malformed",
    "unknown_api",
    "unsupported_version",
    "stalled",
    "not_taken",
    "no_room",  # for an answer: others do not take theirs
    "max_connections",
    "max_connections_per_ip",
)

HANDSHAKE_RESULTS: Final = (
    "established",
    "failed",  # TLS or the client's certificate
    "not_tls",  # the client speaks something else
    "timed_out",  # nothing more came
    "refused",  # too many at once
    "client_left",
)

LOGIN_MECHANISMS: Final = ("none", *get_args(ServedMechanism))
LOGIN_RESULTS: Final = ("accepted", "refused", "timed_out")

PATHS: Final = (
    "merged",  # Produce requests, at least one batch of which was taken apart
    "untouched",  # Produce requests that went on as they came
    "passed",  # all others that a broker answered
)

WORKERS: Final = tuple(map(str, range(MAX_WORKERS)))

RENEWED_SIDES: Final = ("client", "upstream", "admin")

# Sizes and counts: powers of two, as batches grow. Times: from 10 µs, four steps per doubling, so a percentile is at
# most 19 % too high: for p99 = 2.0 ms the true value is above 1.68 ms.
SIZES: Final = tuple(float(2**exponent) for exponent in range(25))
TIMES_S: Final = tuple(1e-5 * 2 ** (step / 4) for step in range(4 * 24 + 1))


OF_THE_CLUSTER: Final = ()
"""A label's values are node ids, of which there are as many as the cluster has brokers."""
_NODE: Final = {"node": OF_THE_CLUSTER}
OF_CHOSEN_TOPICS: Final = ()
"""A label's values are topics, of which there are as many as metrics.topics.max says, and "(other)"."""
_TOPIC: Final = {"topic": OF_CHOSEN_TOPICS, "path": ("merged", "untouched")}


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as declared; its name never changes.

    `labels` maps each label to all its values, or to OF_THE_CLUSTER; `buckets` are a histogram's upper bounds, of which
    Prometheus is shown one in `shown_every`. If `windowed`, the histogram also yields gauges <name>_max, _p50, _p99 and
    _p999 over the last window, and `rate` names a gauge of observations per second. `least`: of several workers' gauges
    the least counts, not their sum.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()
    shown_every: int = 1
    windowed: bool = False
    rate: str = ""
    least: bool = False


_SIDE: Final = {"side": ("client", "upstream")}

_ALL: Final = (
    # Connections
    Metric("forebay_open_connections", "gauge", "Client connections open now.", {"listener": ("bootstrap", "node")}),
    Metric(
        "forebay_connections_total",
        "counter",
        "Client connections accepted.",
        {"listener": ("bootstrap", "node")},
    ),
    Metric("forebay_tls_handshakes", "gauge", "Client connections whose TLS handshake has not ended."),
    Metric(
        "forebay_tls_handshakes_total",
        "counter",
        "TLS handshakes of clients that have ended.",
        {"result": HANDSHAKE_RESULTS},
    ),
    # Security
    Metric(
        "forebay_client_logins_total",
        "counter",
        "Logins of clients at Forebay itself that have ended, by the mechanism that was asked for (none: it was not).",
        {"mechanism": LOGIN_MECHANISMS, "result": LOGIN_RESULTS},
    ),
    Metric("forebay_identities", "gauge", "Users whose records are merged, each one's among themselves."),
    Metric(
        "forebay_security_reloads_total",
        "counter",
        "Certificates, keys and secrets made anew after their files changed; failed: those in use stay.",
        {"side": RENEWED_SIDES, "outcome": ("renewed", "failed")},
    ),
    Metric(
        "forebay_security_last_reload_successful",
        "gauge",
        "1: certificates, keys and secrets are as in their files; 0: older ones are in use, the files cannot be used.",
        {"side": RENEWED_SIDES},
        least=True,
    ),
    Metric(
        "forebay_config_last_reload_successful",
        "gauge",
        "1: the settings in force are those of the start, or of the last reload (SIGHUP); 0: that one was refused.",
        least=True,
    ),
    Metric("forebay_config_generation", "gauge", "How often settings have been put into force, the start included."),
    Metric(
        "forebay_certificate_expiry_timestamp_seconds",
        "gauge",
        "When the first of Forebay's own certificates in use expires, in seconds since 1970; +Inf: it has none.",
        {"side": RENEWED_SIDES},
        least=True,
    ),
    Metric(
        "forebay_upstream_connections",
        "gauge",
        "Connections to brokers for merged records, and clients that have some of their own. Not counted: those that "
        "close behind a client that has left, and a few for metadata, versions and tokens.",
    ),
    Metric("forebay_tasks", "gauge", "Tasks in the event loops; steady growth is a leak."),
    Metric("forebay_ready", "gauge", "1: clients can be served; 0: not yet, no longer or not now, as /readyz says."),
    Metric("forebay_start_time_seconds", "gauge", "When this Forebay began, in seconds since 1970."),
    Metric("forebay_workers", "gauge", "Worker processes running."),
    Metric(
        "forebay_worker_cpu_seconds_total",
        "counter",
        "CPU time of a worker process, user and system.",
        {"worker": WORKERS},
    ),
    Metric(
        "forebay_worker_resident_memory_bytes",
        "gauge",
        "Memory of a worker process that is resident.",
        {"worker": WORKERS},
    ),
    Metric(
        "forebay_event_loop_lag_seconds",
        "histogram",
        "How late a worker's event loop came to what was due, looked at ten times a second.",
        {"worker": WORKERS},
        buckets=TIMES_S,
        shown_every=4,
        windowed=True,
    ),
    Metric("forebay_worker_restarts_total", "counter", "Workers restarted after they died."),
    # Requests
    Metric("forebay_requests_total", "counter", "Requests from clients.", {"api": API_NAMES}),
    Metric(
        "forebay_request_bytes_total",
        "counter",
        "Bytes of requests from clients (client) and to brokers (upstream).",
        _SIDE,
    ),
    Metric(
        "forebay_response_bytes_total",
        "counter",
        "Bytes of responses to clients (client) and from brokers (upstream).",
        _SIDE,
    ),
    Metric(
        "forebay_produce_requests_total",
        "counter",
        "Produce requests from clients (client) and to brokers (upstream).",
        _SIDE,
    ),
    Metric(
        "forebay_requests_unread_total",
        "counter",
        "Requests that Forebay cannot read and passed to the broker as they came.",
        {"api": ("Metadata", "Produce")},
    ),
    Metric("forebay_frames_refused_total", "counter", "Frames or connections refused.", {"reason": FRAME_REASONS}),
    # Records
    Metric(
        "forebay_batches_in_total",
        "counter",
        "Record batches from clients, by what may be done with them.",
        {"reason": tuple(reason.value for reason in Reason)},
    ),
    Metric(
        "forebay_records_total",
        "counter",
        "Records from clients: moved to a partition Forebay chose, kept in theirs but merged, or untouched.",
        {"fate": ("moved", "kept", "untouched")},
    ),
    Metric(
        "forebay_idempotent_null_key_records_total",
        "counter",
        "Untouched records without a key that could move if their clients were not idempotent; from 1 % of batches.",
    ),
    Metric(
        "forebay_observed_records_total",
        "counter",
        "Records that were only observed, and would have moved to another partition, or been kept in theirs.",
        {"fate": ("moved", "kept")},
    ),
    Metric(
        "forebay_observed_batches_total",
        "counter",
        "Batches that were only observed (client), and those that they would have been merged to (upstream).",
        _SIDE,
    ),
    Metric(
        "forebay_observed_requests_total",
        "counter",
        "Produce requests with observed batches (client), and those that would have been sent instead (upstream).",
        _SIDE,
    ),
    Metric(
        "forebay_observed_batches_unread_total",
        "counter",
        "Batches to be observed that were not looked at: too many, too large, damaged, or of a topic not known yet.",
    ),
    Metric(
        "forebay_partitioner_choices_total",
        "counter",
        "Choices made by the partitioner.",
        {"partitioner": (*BUILT_IN, "custom"), "kind": PARTITIONER_CHOICES},
    ),
    Metric(
        "forebay_rack_bytes_total",
        "counter",
        "Bytes of clients' batches as sent, by whether their leader is in the client's rack; only where racks are set.",
        {"rack": ("same", "other", "unknown")},
    ),
    # Batches
    Metric(
        "forebay_batches_flushed_total",
        "counter",
        "Batches sent, by the reason they were sent.",
        {"reason": FLUSH_REASONS},
    ),
    Metric("forebay_batch_records", "histogram", "Records per batch sent.", buckets=SIZES),
    Metric(
        "forebay_batch_bytes",
        "histogram",
        "Bytes of records per batch sent, uncompressed where it was merged.",
        buckets=SIZES,
    ),
    Metric(
        "forebay_batch_linger_time_seconds",
        "histogram",
        "Time from opening a batch to sending it.",
        buckets=TIMES_S,
        shown_every=4,
        windowed=True,
        rate="forebay_batch_flush_rate",
    ),
    Metric(
        "forebay_produce_latency_seconds",
        "histogram",
        "Time from a batch's first record to its acknowledgement.",
        buckets=TIMES_S,
        shown_every=4,
        windowed=True,
    ),
    Metric(
        "forebay_added_latency_seconds",
        "histogram",
        "Time between a request and its answer, less what its broker took; what was sent again is left out.",
        {"path": PATHS},
        buckets=TIMES_S,
        shown_every=4,
        windowed=True,
    ),
    # Queues and memory
    Metric("forebay_queued_bytes", "gauge", "Bytes of records waiting to be sent to brokers."),
    Metric("forebay_queued_batches", "gauge", "Batches waiting to be sent to brokers."),
    Metric("forebay_in_flight_requests", "gauge", "Produce requests that brokers have not answered yet."),
    Metric("forebay_buffer_memory_total_bytes", "gauge", "Bytes of buffer.memory, all workers."),
    Metric(
        "forebay_buffer_memory_available_bytes",
        "gauge",
        "Bytes of buffer.memory that neither records nor their requests take.",
    ),
    Metric("forebay_buffer_memory_waiters", "gauge", "Clients waiting for buffer.memory."),
    Metric("forebay_queued_request_bytes", "gauge", "Bytes of requests that are incomplete or wait for memory."),
    Metric("forebay_gathered_response_bytes", "gauge", "Bytes of brokers' responses that are taken whole."),
    Metric("forebay_pool_waits_total", "counter", "Times a client had to wait for buffer.memory."),
    # Brokers
    Metric(
        "forebay_broker_up",
        "gauge",
        "0: whoever last had to connect to the broker, for records or for a client, could not; it is asked every few "
        "seconds. 1: they could, or nobody had to. Of several workers, and identities, the least counts.",
        _NODE,
        least=True,
    ),
    Metric(
        "forebay_brokers_without_port",
        "gauge",
        "Brokers that clients are not told of, since a listener cannot have a port for them; each worker counts them.",
    ),
    Metric("forebay_broker_records_total", "counter", "Records sent to the broker; those sent again too.", _NODE),
    Metric("forebay_broker_bytes_total", "counter", "Bytes of batches sent to the broker; sent again too.", _NODE),
    Metric("forebay_broker_queued_bytes", "gauge", "Bytes of records queued for the broker or on their way.", _NODE),
    Metric(
        "forebay_broker_in_flight_requests", "gauge", "Produce requests that the broker has not answered yet.", _NODE
    ),
    Metric(
        "forebay_broker_latency_seconds",
        "histogram",
        "Time from writing a Produce request to the broker's answer.",
        _NODE,
        buckets=TIMES_S,
        shown_every=4,
        windowed=True,
    ),
    # Topics
    Metric("forebay_topic_records_total", "counter", "Records of a topic, merged or gone on untouched.", _TOPIC),
    Metric("forebay_topic_bytes_total", "counter", "Bytes of a topic's batches, merged or gone on untouched.", _TOPIC),
    # Trouble
    Metric("forebay_errors_total", "counter", "Errors, by side and kind.", {"side": SIDES, "kind": ERROR_KINDS}),
    Metric("forebay_retries_total", "counter", "Batches sent again, by reason.", {"reason": RETRY_REASONS}),
    # Idempotence
    Metric(
        "forebay_producer_ids",
        "gauge",
        "Producer ids in use, two per worker and identity, or more.",
    ),
    Metric(
        "forebay_identities_without_producer_ids",
        "gauge",
        "Identities whose batches have no producer ids, and are not sent again, of those that have sent any; each "
        "worker counts them.",
    ),
    Metric(
        "forebay_producer_epoch_bumps_total",
        "counter",
        "Times a partition's producer epoch was raised: a batch was given up that may be appended, or refused.",
    ),
    # Quotas
    Metric("forebay_throttled_requests_total", "counter", "Produce requests whose answer named a throttle time."),
    Metric(
        "forebay_throttled_client_ids",
        "gauge",
        "Client ids that are not sent to a broker because it throttles them, counted for each broker.",
    ),
    Metric(
        "forebay_unmerged_brokers",
        "gauge",
        "Brokers that are sent requests of one client id each, because they have throttled.",
    ),
    # Produce v0 to v2
    Metric(
        "forebay_records_converted_total",
        "counter",
        "Records converted from message format v0 or v1 to v2.",
    ),
    Metric(
        "forebay_records_stamped_total",
        "counter",
        "Converted records that had no timestamp and were given the time of receipt.",
    ),
    # Metadata
    Metric(
        "forebay_metadata_refreshes_total",
        "counter",
        "Causes for asking brokers for metadata.",
        {"cause": METADATA_CAUSES},
    ),
    Metric(
        "forebay_metadata_leaders_named_total",
        "counter",
        "New leaders that a broker named as it refused records (KIP-951): nobody had to be asked.",
    ),
    Metric(
        "forebay_metadata_requests_total",
        "counter",
        "Metadata requests from clients, by how they were answered.",
        {"answered": ("from_cache", "after_asking", "by_broker")},
    ),
    Metric(
        "forebay_metadata_topics_total",
        "counter",
        "Topics requested by clients, found in the cache or not.",
        {"found": ("hit", "miss")},
    ),
    Metric(
        "forebay_metadata_age_seconds",
        "histogram",
        "Age of the oldest topic in a Metadata response.",
        buckets=TIMES_S,
        shown_every=4,
        windowed=True,
    ),
    Metric("forebay_metadata_cached_topics", "gauge", "Topics in the metadata cache."),
    Metric("forebay_metadata_upstream_requests_total", "counter", "Metadata requests to brokers."),
    Metric(
        "forebay_metadata_upstream_bytes_total",
        "counter",
        "Bytes of Metadata requests to brokers and of their responses.",
        {"direction": ("request", "response")},
    ),
    # Exports
    Metric(
        "forebay_otlp_exports_total",
        "counter",
        "Exports of metrics to otlp.endpoint; skipped: the one before was still under way.",
        {"outcome": ("accepted", "failed", "skipped")},
    ),
    # Journal
    Metric("forebay_journal_rows_total", "counter", "Rows written to the telemetry journal, dropped ones included."),
    Metric(
        "forebay_journal_rows_dropped_total",
        "counter",
        "Journal rows dropped because the disk or the topic was slow, full or unavailable.",
    ),
)

METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _ALL}
