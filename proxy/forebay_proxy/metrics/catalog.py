"""Every metric that Forebay has: name, kind, labels with all their values, help. One table; nothing else defines any.

Label values come from closed sets, never from clients: what clients name (topics, client ids, unknown APIs) would grow
without bound. A new reason or kind of error is added here first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from forebay_codecs.apis import APIS
from forebay_policies.builtin_partitioners import BUILT_IN
from forebay_policies.eligibility import Reason
from forebay_policies.journal_rows import FlushReason

API_NAMES: Final = tuple(api.name for api in APIS.values())
"""Requests are counted by the name of their API, where it is one that clients are offered."""


SIDES: Final = ("client", "upstream", "internal")
ERROR_KINDS: Final = (
    "protocol",  # the bytes break the protocol
    "connect",  # no connection could be made
    "connection_lost",
    "timeout",  # no answer in time
    "metadata",  # a refresh failed
    "answered",  # a broker's error, passed on to the client
    "outcome_unknown",  # the connection was lost after a batch was written
    "expired",  # the client's time was up
    "partitioner",  # a partitioner of others failed
    "too_old",  # a broker does not take such old requests any more
)
FLUSH_REASONS: Final = get_args(FlushReason)
PARTITIONER_CHOICES: Final = ("sticky", "switch", "no_opinion", "chosen", "invalid")
RETRY_REASONS: Final = (
    "repartitioned",  # records without a key, to another partition at once
    "unreachable",  # the same, because nothing could be written to their broker
    "backoff",  # to the same partition after a pause
    "split",  # in halves, since the broker refused the batch as a whole
)
METADATA_CAUSES: Final = ("new_topic", "max_age", "error", "connection", "client")
FRAME_REASONS: Final = (
    "too_large",
    "malformed",
    "unknown_api",
    "unsupported_version",
    "stalled",
    "max_connections",
    "max_connections_per_ip",
)

# Sizes and counts: powers of two, as batches grow. Times: from 10 µs, four steps to each doubling, so a percentile is
# at most 19 % too high: p99 = 2.0 ms says that the truth is above 1.68 ms.
SIZES: Final = tuple(float(2**exponent) for exponent in range(25))
TIMES_MS: Final = tuple(0.01 * 2 ** (step / 4) for step in range(4 * 24 + 1))


@dataclass(frozen=True, slots=True)
class Metric:
    """`labels` maps each label to all its values; `buckets` are the upper bounds of a histogram.

    `shown_every`: Prometheus is shown one bound in so many. `windowed`: the histogram also yields gauges <name>_max,
    _p50, _p99 and _p999 over the last window, and `rate` names one with the observations per second.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()
    shown_every: int = 1
    windowed: bool = False
    rate: str = ""


_SIDE: Final = {"side": ("client", "upstream")}

_ALL: Final = (
    # Connections
    Metric("forebay_connections", "gauge", "Client connections open now.", {"listener": ("bootstrap", "node")}),
    Metric(
        "forebay_connections_total",
        "counter",
        "Client connections accepted.",
        {"listener": ("bootstrap", "node")},
    ),
    Metric("forebay_upstream_connections", "gauge", "Connections to brokers open now."),
    Metric("forebay_tasks", "gauge", "Tasks of the event loops: a number that only grows is a leak."),
    Metric("forebay_workers", "gauge", "Worker processes that run."),
    Metric("forebay_worker_restarts_total", "counter", "Workers that died and were started again."),
    # Requests
    Metric("forebay_requests_total", "counter", "Requests of clients.", {"api": API_NAMES}),
    Metric("forebay_request_bytes_total", "counter", "Bytes of requests: from clients, to brokers.", _SIDE),
    Metric("forebay_response_bytes_total", "counter", "Bytes of responses: to clients, from brokers.", _SIDE),
    Metric("forebay_produce_requests_total", "counter", "Produce requests: from clients, to brokers.", _SIDE),
    Metric(
        "forebay_requests_unread_total",
        "counter",
        "Requests that went to the broker as they came because they cannot be read here.",
        {"api": ("Metadata", "Produce")},
    ),
    Metric("forebay_frames_refused_total", "counter", "Frames or connections refused.", {"reason": FRAME_REASONS}),
    # Records
    Metric(
        "forebay_batches_in_total",
        "counter",
        "Record batches of clients, by what may be done with them.",
        {"reason": tuple(reason.value for reason in Reason)},
    ),
    Metric(
        "forebay_records_total",
        "counter",
        "Records: moved to a partition of the proxy's choice, kept but merged, or untouched.",
        {"fate": ("moved", "kept", "untouched")},
    ),
    Metric(
        "forebay_partitioner_choices_total",
        "counter",
        "Choices of the partitioner.",
        {"partitioner": (*BUILT_IN, "custom"), "kind": PARTITIONER_CHOICES},
    ),
    # Batches
    Metric(
        "forebay_batches_flushed_total",
        "counter",
        "Batches sent, by what made them due.",
        {"reason": FLUSH_REASONS},
    ),
    Metric("forebay_batch_records", "histogram", "Records in a batch sent.", buckets=SIZES),
    Metric("forebay_batch_bytes", "histogram", "Bytes in a batch sent.", buckets=SIZES),
    Metric(
        "forebay_batch_linger_time_ms",
        "histogram",
        "From the opening of a batch to its flush.",
        buckets=TIMES_MS,
        shown_every=4,
        windowed=True,
        rate="forebay_batch_flush_rate",
    ),
    Metric(
        "forebay_produce_latency_ms",
        "histogram",
        "From append to acknowledgement.",
        buckets=TIMES_MS,
        shown_every=4,
        windowed=True,
    ),
    # Queues and memory
    Metric("forebay_queued_bytes", "gauge", "Bytes of records waiting for their broker."),
    Metric("forebay_queued_batches", "gauge", "Batches waiting for their broker."),
    Metric("forebay_in_flight_requests", "gauge", "Produce requests that brokers have not answered."),
    Metric("forebay_buffer_memory_total_bytes", "gauge", "buffer.memory."),
    Metric("forebay_buffer_memory_available_bytes", "gauge", "Bytes of buffer.memory that hold no records."),
    Metric("forebay_buffer_memory_waiters", "gauge", "Clients that wait for memory."),
    Metric("forebay_queued_request_bytes", "gauge", "Bytes of requests that are not whole, or wait for memory."),
    Metric("forebay_pool_waits_total", "counter", "Times that a client had to wait for memory."),
    # Trouble
    Metric("forebay_errors_total", "counter", "Errors, by whose fault.", {"side": SIDES, "kind": ERROR_KINDS}),
    Metric("forebay_retries_total", "counter", "Batches sent again.", {"reason": RETRY_REASONS}),
    # Produce v0 to v2
    Metric(
        "forebay_records_converted_total",
        "counter",
        "Records that came in message format v0 or v1 and went on in v2.",
    ),
    Metric(
        "forebay_records_stamped_total",
        "counter",
        "Those of them that had no timestamp of their producer's and got that of their receipt.",
    ),
    # Metadata
    Metric(
        "forebay_metadata_refreshes_total",
        "counter",
        "Reasons to ask brokers for metadata.",
        {"cause": METADATA_CAUSES},
    ),
    Metric(
        "forebay_metadata_requests_total",
        "counter",
        "Metadata requests of clients, by who answered them.",
        {"answered": ("from_cache", "after_asking", "by_broker")},
    ),
    Metric(
        "forebay_metadata_topics_total",
        "counter",
        "Topics that clients asked for, found in the cache or not.",
        {"found": ("hit", "miss")},
    ),
    Metric(
        "forebay_metadata_age_ms",
        "histogram",
        "Age of the oldest topic in an answer.",
        buckets=TIMES_MS,
        shown_every=4,
        windowed=True,
    ),
    Metric("forebay_metadata_cached_topics", "gauge", "Topics in the cache."),
    Metric("forebay_metadata_upstream_requests_total", "counter", "Metadata requests to brokers."),
    Metric(
        "forebay_metadata_upstream_bytes_total",
        "counter",
        "Bytes of Metadata requests to brokers, and of the responses.",
        {"direction": ("request", "response")},
    ),
    # Journal
    Metric("forebay_journal_rows_total", "counter", "Rows of the telemetry journal."),
    Metric(
        "forebay_journal_rows_dropped_total",
        "counter",
        "Those of them that were lost, because where they go was slow, full or away.",
    ),
)

METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _ALL}
