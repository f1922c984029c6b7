"""A Kafka cluster inside this process: librdkafka's mock cluster, out of the confluent-kafka wheel.

In: a number of brokers, then topics, leaders and delays. Out: real listening ports on 127.0.0.1 that speak
Kafka's protocol, brokers numbered from 1, and a record of the requests they received.
Wrong: no wheel, or one without librdkafka beside it → MockClusterUnavailable; a call that librdkafka refuses →
MockClusterError with librdkafka's own words.

The brokers live on one native thread that never takes Python's lock. They keep records in memory, the newest 5 MiB
of a partition. A delay set by `set_broker_rtt` holds each response back; it does not serialize them.
Source: rdkafka_mock.h of librdkafka.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
from collections import Counter
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

MISSING: Final = "the embedded Kafka cluster needs confluent-kafka: pip install '.[demo]' in a clone of Forebay"

_PRODUCER: Final = 0
_CONF_OK: Final = 0
_ERROR_TEXT_SIZE: Final = 512


class MockClusterUnavailable(RuntimeError):
    """librdkafka is not there. The message says what to install."""


class MockClusterError(RuntimeError):
    """librdkafka refused a call."""


class MockRequest(NamedTuple):
    """A request that a broker received; `timestamp` in µs of librdkafka's monotonic clock."""

    broker: int
    api_key: int
    timestamp: int


_POINTER: Final = ctypes.c_void_p
_INT: Final = ctypes.c_int
_TEXT: Final = ctypes.c_char_p
_SIZE: Final = ctypes.c_size_t

# name: (result, arguments). ctypes would otherwise pass and return pointers as 32-bit integers.
_SIGNATURES: Final[dict[str, tuple[type | None, list[type]]]] = {
    "rd_kafka_conf_new": (_POINTER, []),
    "rd_kafka_conf_set": (_INT, [_POINTER, _TEXT, _TEXT, _TEXT, _SIZE]),
    "rd_kafka_new": (_POINTER, [_INT, _POINTER, _TEXT, _SIZE]),
    "rd_kafka_destroy": (None, [_POINTER]),
    "rd_kafka_err2str": (_TEXT, [_INT]),
    "rd_kafka_mock_cluster_new": (_POINTER, [_POINTER, _INT]),
    "rd_kafka_mock_cluster_destroy": (None, [_POINTER]),
    "rd_kafka_mock_cluster_bootstraps": (_TEXT, [_POINTER]),
    "rd_kafka_mock_topic_create": (_INT, [_POINTER, _TEXT, _INT, _INT]),
    "rd_kafka_mock_partition_set_leader": (_INT, [_POINTER, _TEXT, ctypes.c_int32, ctypes.c_int32]),
    "rd_kafka_mock_broker_set_rtt": (_INT, [_POINTER, ctypes.c_int32, _INT]),
    "rd_kafka_mock_start_request_tracking": (None, [_POINTER]),
    "rd_kafka_mock_stop_request_tracking": (None, [_POINTER]),
    "rd_kafka_mock_get_requests": (ctypes.POINTER(_POINTER), [_POINTER, ctypes.POINTER(_SIZE)]),
    "rd_kafka_mock_request_id": (ctypes.c_int32, [_POINTER]),
    "rd_kafka_mock_request_api_key": (ctypes.c_int16, [_POINTER]),
    "rd_kafka_mock_request_timestamp": (ctypes.c_int64, [_POINTER]),
    "rd_kafka_mock_request_destroy_array": (None, [ctypes.POINTER(_POINTER), _SIZE]),
}


def find_librdkafka() -> str:
    """The library's path: beside the package (Linux wheels), within it (macOS wheels), or the system's own."""
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise MockClusterUnavailable(MISSING)
    package = Path(spec.origin).parent
    for folder in (package.with_name("confluent_kafka.libs"), package / ".dylibs"):
        for found in sorted(folder.glob("librdkafka*")):
            return str(found)
    # confluent-kafka that was built from source is linked to a library of the system.
    system = ctypes.util.find_library("rdkafka")
    if system is None:
        raise MockClusterUnavailable(f"no librdkafka beside {package}; a wheel brings it. {MISSING}")
    return system


@cache
def _load() -> ctypes.CDLL:
    path = find_librdkafka()
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise MockClusterUnavailable(f"{path} cannot be used: {error}. {MISSING}") from error
    return library


class MockCluster:
    """Brokers of librdkafka, as long as it is open.

    Close it, or use it as a context manager: its thread and ports live until then.
    """

    def __init__(self, brokers: int = 3) -> None:
        self._library = _load()
        self._client: int | None = self._new_client()
        self._cluster: int | None = self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        if not self._cluster:
            self._library.rd_kafka_destroy(self._client)
            raise MockClusterError(f"no mock cluster of {brokers} brokers could be started")
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        """host:port of every broker, comma-separated, as bootstrap.servers takes it."""

    def _new_client(self) -> int:
        """The librdkafka handle that a mock cluster hangs on; it never connects anywhere."""
        library = self._library
        text = ctypes.create_string_buffer(_ERROR_TEXT_SIZE)
        conf = library.rd_kafka_conf_new()
        # Only what is worse than a warning: librdkafka logs to stderr.
        if library.rd_kafka_conf_set(conf, b"log_level", b"3", text, len(text)) != _CONF_OK:
            raise MockClusterError(text.value.decode())
        client: int | None = library.rd_kafka_new(_PRODUCER, conf, text, len(text))
        if not client:
            raise MockClusterError(text.value.decode())
        return client

    def _handle(self) -> int:
        if self._cluster is None:
            raise MockClusterError("the mock cluster is closed")
        return self._cluster

    def _check(self, error: int) -> None:
        if error:
            raise MockClusterError(self._library.rd_kafka_err2str(error).decode())

    def create_topic(self, name: str, partitions: int, replication: int = 1) -> None:
        """Without it, a topic is created with 4 partitions when it is first asked for."""
        handle = self._handle()
        self._check(self._library.rd_kafka_mock_topic_create(handle, name.encode(), partitions, replication))

    def set_partition_leader(self, topic: str, partition: int, broker: int) -> None:
        """`broker` −1: the partition has no leader."""
        handle = self._handle()
        self._check(self._library.rd_kafka_mock_partition_set_leader(handle, topic.encode(), partition, broker))

    def set_broker_rtt(self, broker: int, ms: int) -> None:
        """Hold back every response of `broker` for `ms`; 0 ends it."""
        self._check(self._library.rd_kafka_mock_broker_set_rtt(self._handle(), broker, ms))

    def start_request_tracking(self) -> None:
        """From now on keep every request, until `stop_request_tracking`."""
        self._library.rd_kafka_mock_start_request_tracking(self._handle())

    def stop_request_tracking(self) -> None:
        """Stop, and forget what was kept."""
        self._library.rd_kafka_mock_stop_request_tracking(self._handle())

    def requests(self) -> list[MockRequest]:
        """What the brokers received since tracking began, in order of arrival."""
        library = self._library
        count = _SIZE()
        array = library.rd_kafka_mock_get_requests(self._handle(), ctypes.byref(count))
        try:
            return [
                MockRequest(
                    library.rd_kafka_mock_request_id(request),
                    library.rd_kafka_mock_request_api_key(request),
                    library.rd_kafka_mock_request_timestamp(request),
                )
                for request in array[: count.value]
            ]
        finally:
            library.rd_kafka_mock_request_destroy_array(array, count)

    def request_counts(self) -> Counter[tuple[int, int]]:
        """(broker, API key) → requests since tracking began."""
        return Counter((request.broker, request.api_key) for request in self.requests())

    def close(self) -> None:
        """Close every port and connection and end the thread. A second call does nothing."""
        cluster, self._cluster = self._cluster, None
        client, self._client = self._client, None
        if cluster is not None:
            self._library.rd_kafka_mock_cluster_destroy(cluster)
        if client is not None:
            self._library.rd_kafka_destroy(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
