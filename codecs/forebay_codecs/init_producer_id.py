"""InitProducerId v0 to v5 without a transactional id: the proxy's own request, and what brokers answer.

Requests begin at api_key, responses at correlation_id; no size prefix in either. The parser raises Malformed.
v2+ flexible; v3+ producer_id and producer_epoch in the request, −1 for a new id. v6 is not stable in Kafka 4.3.
Source: Kafka's InitProducerIdRequest.json and its response; KIP-98, KIP-360.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from forebay_codecs.api_keys import INIT_PRODUCER_ID
from forebay_codecs.header import begin_request, response_header_size
from forebay_codecs.primitives import Reader

MAX_VERSION: Final = 5
_FLEXIBLE_FROM: Final = 2
_WITH_ID_FROM: Final = 3
_NO_TIMEOUT_MS: Final = 2**31 - 1
"""Of transactions, of which there are none."""


class ProducerIdResponse(NamedTuple):
    """A new producer id and its first epoch; both −1 where `error_code` is not 0."""

    error_code: int
    producer_id: int
    producer_epoch: int


def encode_init_producer_id(correlation_id: int, client_id: str | None, version: int) -> bytes:
    """Asks for a new producer id."""
    flexible = version >= _FLEXIBLE_FROM
    writer = begin_request(INIT_PRODUCER_ID, version, correlation_id, client_id, flexible=flexible)
    writer.nullable_string(None, flexible)
    writer.i32(_NO_TIMEOUT_MS)
    if version >= _WITH_ID_FROM:
        writer.i64(-1)
        writer.i16(-1)
    if flexible:
        writer.tags()
    return writer.getvalue()


def parse_init_producer_id(response: bytes, version: int) -> ProducerIdResponse:
    """Read a broker's answer to `encode_init_producer_id`. Raises Malformed."""
    flexible = version >= _FLEXIBLE_FROM
    reader = Reader(response, response_header_size(response, flexible=flexible))
    reader.i32()  # throttle time
    found = ProducerIdResponse(reader.i16(), reader.i64(), reader.i16())
    reader.skip_tags(flexible)
    return found
