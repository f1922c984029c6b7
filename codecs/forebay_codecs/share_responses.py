"""NodeEndpoints, the last field of ShareFetch and ShareAcknowledge responses v1+: rewritten as response_filter.py says.

v0 of both was early access only. Sources: Kafka's ShareFetchResponse.json and ShareAcknowledgeResponse.json, KIP-932.
"""

from __future__ import annotations

from typing import Final

from forebay_codecs.addresses import rewrite_brokers, skip_rack
from forebay_codecs.errors import Malformed
from forebay_codecs.primitives import Reader
from forebay_codecs.response_filter import ResponseFilter, Steps, padded

_EMPTY: Final = b"\x01"
"""A compact array without elements."""


class _ShareResponseFilter(ResponseFilter):
    """The last section is the array of NodeEndpoints and the tagged fields behind it."""

    def _rewrite(self, section: bytes) -> bytes:
        reader = Reader(section)
        endpoints = rewrite_brokers(reader, self._translate, skip_rack, flexible=True)
        fields = [(tag, section[start:end]) for tag, start, end in reader.tags()]
        for candidate in (endpoints, _EMPTY):
            tags = padded(fields, reader.pos - len(candidate))
            if tags is not None:
                return candidate + tags + section[reader.pos :]  # trailing bytes are passed on to the client
        raise Malformed("node endpoints that leave no room for a padding field")

    def _skip_leader(self) -> Steps:
        yield from self._skip(8)  # leader_id, leader_epoch
        yield from self._skip_tags()


class ShareFetchResponseFilter(_ShareResponseFilter):
    """Of one ShareFetch response."""

    def _walk(self) -> Steps:
        yield from self._skip(4)  # correlation_id
        yield from self._skip_tags()
        yield from self._skip(6)  # throttle_time_ms, error_code
        yield from self._skip_string()  # error_message
        yield from self._skip(4)  # acquisition_lock_timeout_ms
        for _ in range((yield from self._compact_size())):
            yield from self._skip(16)  # topic_id
            for _ in range((yield from self._compact_size())):
                yield from self._skip(6)  # partition_index, error_code
                yield from self._skip_string()  # error_message
                yield from self._skip(2)  # acknowledge_error_code
                yield from self._skip_string()  # acknowledge_error_message
                yield from self._skip_leader()
                yield from self._skip((yield from self._compact_size()))  # records
                for _ in range((yield from self._compact_size())):
                    yield from self._skip(18)  # first_offset, last_offset, delivery_count
                    yield from self._skip_tags()
                yield from self._skip_tags()
            yield from self._skip_tags()


class ShareAcknowledgeResponseFilter(_ShareResponseFilter):
    """Of one ShareAcknowledge response."""

    def _walk(self) -> Steps:
        yield from self._skip(4)  # correlation_id
        yield from self._skip_tags()
        yield from self._skip(6)  # throttle_time_ms, error_code
        yield from self._skip_string()  # error_message
        if self._version >= 2:
            yield from self._skip(4)  # acquisition_lock_timeout_ms
        for _ in range((yield from self._compact_size())):
            yield from self._skip(16)  # topic_id
            for _ in range((yield from self._compact_size())):
                yield from self._skip(6)  # partition_index, error_code
                yield from self._skip_string()  # error_message
                yield from self._skip_leader()
                yield from self._skip_tags()
            yield from self._skip_tags()
