"""NodeEndpoints in Fetch responses v16+, a tagged field: rewritten as response_filter.py says.

Sources: Kafka's FetchResponse.json (v16 to v18 are laid out alike), KIP-951.
"""

from __future__ import annotations

from typing import Final

from forebay_codecs.addresses import NODE_ENDPOINTS_TAG, rewrite_node_endpoints
from forebay_codecs.errors import Malformed
from forebay_codecs.primitives import Reader
from forebay_codecs.response_filter import ResponseFilter, Steps, padded

NAMES_BROKERS_FROM: Final = 16
"""The first version with NodeEndpoints. Older responses need no filter."""


class FetchResponseFilter(ResponseFilter):
    """Of one Fetch response of NAMES_BROKERS_FROM or newer."""

    def _walk(self) -> Steps:
        """Up to the response's own tagged fields."""
        yield from self._skip(4)  # correlation_id
        yield from self._skip_tags()
        yield from self._skip(10)  # throttle_time_ms, error_code, session_id
        for _ in range((yield from self._compact_size())):
            yield from self._skip(16)  # topic_id
            for _ in range((yield from self._compact_size())):
                # partition_index, error_code, high_watermark, last_stable_offset, log_start_offset
                yield from self._skip(30)
                for _ in range((yield from self._compact_size())):
                    yield from self._skip(16)  # an aborted transaction: producer_id, first_offset
                    yield from self._skip_tags()
                yield from self._skip(4)  # preferred_read_replica
                yield from self._skip((yield from self._compact_size()))  # records
                yield from self._skip_tags()  # diverging_epoch, current_leader, snapshot_id: ids, no addresses
            yield from self._skip_tags()

    def _rewrite(self, section: bytes) -> bytes:
        reader = Reader(section)
        fields = reader.tags()
        if reader.pos != len(section):  # trailing bytes, which clients ignore
            return self._rewrite(section[: reader.pos]) + section[reader.pos :]
        if all(tag != NODE_ENDPOINTS_TAG for tag, _, _ in fields):
            return section
        rewritten = rewrite_node_endpoints(section, fields, self._translate)
        without = [field for field in rewritten if field[0] != NODE_ENDPOINTS_TAG]
        for candidate in (rewritten, without):
            tags = padded(candidate, len(section))
            if tags is not None:
                return tags
        raise Malformed("tagged fields that leave no room for a padding field")
