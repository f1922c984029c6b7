"""librdkafka's mock cluster with the faults that it has beside delays: brokers that go down, requests that fail."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

from forebay_proxy.demo.mock_cluster import MockCluster

_ARGUMENTS: Final[dict[str, list[type]]] = {
    "rd_kafka_mock_broker_set_down": [ctypes.c_void_p, ctypes.c_int32],
    "rd_kafka_mock_broker_set_up": [ctypes.c_void_p, ctypes.c_int32],
    "rd_kafka_mock_push_request_errors_array": [
        ctypes.c_void_p,
        ctypes.c_int16,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_int),
    ],
    "rd_kafka_mock_clear_request_errors": [ctypes.c_void_p, ctypes.c_int16],
    "rd_kafka_mock_clear_requests": [ctypes.c_void_p],
}
"""What they return is an error code, or nothing."""


class FaultyCluster(MockCluster):
    """Its faults last until they are taken back."""

    def __init__(self, brokers: int = 3) -> None:
        super().__init__(brokers)
        for name, arguments in _ARGUMENTS.items():
            getattr(self._library, name).argtypes = arguments

    def broker_down(self, broker: int) -> None:
        """Close the broker's connections and its port; it keeps its place in Metadata and its partitions."""
        self._check(self._library.rd_kafka_mock_broker_set_down(self._handle(), broker))

    def broker_up(self, broker: int) -> None:
        """Listen on the broker's port again."""
        self._check(self._library.rd_kafka_mock_broker_set_up(self._handle(), broker))

    def push_request_errors(self, api_key: int, codes: Sequence[int]) -> None:
        """The next len(codes) requests of that API, at whichever broker, are answered with these error codes.

        0 stands for a request that is carried out, librdkafka's −195 (_TRANSPORT) for a connection that is closed.
        """
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(self._handle(), api_key, len(codes), array)

    def clear_request_errors(self, api_key: int) -> None:
        """Forget the errors that were pushed and not yet given."""
        self._library.rd_kafka_mock_clear_request_errors(self._handle(), api_key)

    def clear_requests(self) -> None:
        """Forget the requests kept so far; tracking goes on."""
        self._library.rd_kafka_mock_clear_requests(self._handle())
