"""ApiVersions v0 to v4: a broker's response narrowed to what the proxy understands, and the proxy's own request.

Responses begin at correlation_id, requests at api_key (no size prefix in either). The response header never has tagged
fields, whatever the version, so that a client can read the response to a version that the broker does not support.
Layout: error_code, array of (api_key, min_version, max_version); v1+ throttle_time_ms; v3+ flexible, with the
cluster's features as tagged fields. Functions that read raise Malformed.
Sources: Kafka's ApiVersionsRequest.json and ApiVersionsResponse.json.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Final

from forebay_codecs.addresses import splice
from forebay_codecs.api_keys import API_VERSIONS
from forebay_codecs.apis import APIS
from forebay_codecs.error_codes import NONE, UNSUPPORTED_VERSION
from forebay_codecs.header import PEEK_SIZE, begin_request, read_client_id
from forebay_codecs.primitives import FLEXIBLE, Reader, Writer

FLEXIBLE_FROM: Final = 3
HIGHEST_WITH_SOFTWARE: Final = 4
"""The newest request version whose layout is known; the client's software name and version are in it from v3 on."""

NO_LIMITS: Final[Mapping[int, int]] = MappingProxyType({})

ADMIN_TAG: Final = 0x464F4245
"""Forebay's own tagged field ("FOBE"), far above Kafka's, which are numbered from 0."""


def request(
    correlation_id: int, client_id: str | None, version: int, software_name: str, software_version: str
) -> bytes:
    """The proxy's own request, without the size prefix.

    Software name and version are sent from v3 on; brokers reject any characters but letters, digits, "-" and ".".
    """
    flexible = version >= FLEXIBLE_FROM
    writer = begin_request(API_VERSIONS, version, correlation_id, client_id, flexible=flexible)
    if flexible:
        writer.string(software_name, FLEXIBLE)
        writer.string(software_version, FLEXIBLE)
        writer.tags()
    return writer.getvalue()


def software(frame: bytes, version: int) -> tuple[str | None, str | None]:
    """The client's (software name, software version) from a request frame; (None, None) outside v3 to v4.

    Raises Malformed where `frame`, which may be the beginning only, ends before them.
    """
    if not FLEXIBLE_FROM <= version <= HIGHEST_WITH_SOFTWARE:
        return None, None
    reader = Reader(frame, PEEK_SIZE)
    read_client_id(reader, flexible=True)
    return reader.string(FLEXIBLE), reader.string(FLEXIBLE)


def parse_api_versions(response: bytes, version: int) -> dict[int, tuple[int, int]]:
    """api_key → (min_version, max_version) as the broker reports them.

    Empty if the broker does not support `version`: ask again with a lower one. What follows UNSUPPORTED_VERSION is not
    read, since brokers disagree: v0's layout, nothing at all before Kafka 2.4, other layouts elsewhere.
    """
    reader = Reader(response, 4)
    if reader.i16() == UNSUPPORTED_VERSION:
        return {}
    flexible = version >= FLEXIBLE_FROM
    ranges = {}
    for _ in range(reader.array(flexible)):
        key, lowest, highest = reader.i16(), reader.i16(), reader.i16()
        reader.skip_tags(flexible)
        ranges[key] = lowest, highest
    _skip_rest(reader, version)
    return ranges


def rewrite_api_versions(
    response: bytes, version: int, hidden: Container[int] = (), at_most: Mapping[int, int] = NO_LIMITS
) -> bytes:
    """The response with each range narrowed to what APIS offers, without `hidden` and APIs of which nothing is left.

    `at_most`: by API, a version above which none is offered. Throttle time and features are copied. A response with an
    error is returned unchanged.
    """
    flexible = version >= FLEXIBLE_FROM
    reader = Reader(response, 4)
    if reader.i16() != NONE:
        return response
    start = reader.pos
    count = 0
    elements = Writer()
    for _ in range(reader.array(flexible)):
        key, lowest, highest = reader.i16(), reader.i16(), reader.i16()
        tags = reader.pos
        reader.skip_tags(flexible)
        api = APIS.get(key) if key not in hidden else None
        offered = api.offered(lowest, min(highest, at_most.get(key, highest))) if api else None
        if offered is None:
            continue
        count += 1
        _write_range(elements, key, *offered)
        elements.raw(response[tags : reader.pos])
    end = reader.pos
    _skip_rest(reader, version)
    array = Writer()
    array.array(count, flexible)
    array.raw(elements.getvalue())
    return splice(response, start, end, array.getvalue())


def without_throttle_time(response: bytes, version: int) -> bytes:
    """The response with a throttle time of 0; v0, which has none, and one with an error, unchanged."""
    reader = _past_ranges(response, flexible=version >= FLEXIBLE_FROM) if version >= 1 else None
    return splice(response, reader.pos, reader.pos + 4, bytes(4)) if reader is not None else response


def with_admin(response: bytes, address: str) -> bytes:
    """A v3 or v4 response with the admin endpoint's address added as ADMIN_TAG; one with an error, unchanged."""
    reader = _at_tags(response)
    if reader is None:
        return response
    start = reader.pos
    fields = [(tag, response[first:last]) for tag, first, last in reader.tags()]
    writer = Writer()
    writer.tags([*fields, (ADMIN_TAG, address.encode())])
    return splice(response, start, reader.pos, writer.getvalue())


def admin(response: bytes) -> str | None:
    """The address that `with_admin` put into a v3 or v4 response; None if there is none."""
    reader = _at_tags(response)
    for tag, start, end in reader.tags() if reader is not None else ():
        if tag == ADMIN_TAG:
            return response[start:end].decode(errors="replace")
    return None


def _at_tags(response: bytes) -> Reader | None:
    """A reader at the tagged fields of a v3 or v4 response; None if the response is an error."""
    reader = _past_ranges(response, flexible=FLEXIBLE)
    if reader is not None:
        reader.skip(4)  # throttle_time_ms
    return reader


def _past_ranges(response: bytes, *, flexible: bool) -> Reader | None:
    """A reader at what follows the ranges; None if the response is an error."""
    reader = Reader(response, 4)
    if reader.i16() != NONE:
        return None
    for _ in range(reader.array(flexible)):
        reader.skip(6)
        reader.skip_tags(flexible)
    return reader


def unsupported_version_response(correlation_id: int) -> bytes:
    """The response to a version that the proxy does not support, without the size prefix.

    It is in v0, which every client can read, and lists the supported versions of ApiVersions.
    """
    writer = Writer()
    writer.i32(correlation_id)
    writer.i16(UNSUPPORTED_VERSION)
    writer.array(1, flexible=False)
    api = APIS[API_VERSIONS]
    assert api.highest is not None
    _write_range(writer, API_VERSIONS, api.lowest, api.highest)
    return writer.getvalue()


def _write_range(writer: Writer, key: int, lowest: int, highest: int) -> None:
    writer.i16(key)
    writer.i16(lowest)
    writer.i16(highest)


def _skip_rest(reader: Reader, version: int) -> None:
    if version >= 1:
        reader.skip(4)  # throttle_time_ms
    reader.skip_tags(version >= FLEXIBLE_FROM)
