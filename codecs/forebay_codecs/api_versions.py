"""ApiVersions v0 to v4: a broker's answer cut to what the proxy understands, and the proxy's own question.

Responses begin at correlation_id, requests at api_key (no size prefix either way). The response's header never has
tagged fields, whatever the version, so that a client can read the answer to a version that the broker lacks.
Layout: error_code, array of (api_key, min_version, max_version); v1+ throttle_time_ms; v3+ flexible, with the
cluster's features as tagged fields. Wrong bytes: Malformed.
Sources: Kafka's ApiVersionsRequest.json and ApiVersionsResponse.json.
"""

from __future__ import annotations

from typing import Final

from forebay_codecs.addresses import splice
from forebay_codecs.apis import API_VERSIONS, APIS
from forebay_codecs.error_codes import NONE, UNSUPPORTED_VERSION
from forebay_codecs.header import PEEK_SIZE, begin_request, read_client_id
from forebay_codecs.primitives import Reader, Writer

FLEXIBLE_FROM: Final = 3
HIGHEST_WITH_SOFTWARE: Final = 4

ADMIN_TAG: Final = 0x464F4245
"""Of Forebay's own tagged field, far from those that Kafka numbers from 0 on."""


def request(
    correlation_id: int, client_id: str | None, version: int, software_name: str, software_version: str
) -> bytes:
    """The proxy's own request. A broker refuses names and versions other than letters, digits, "-" and "."."""
    flexible = version >= FLEXIBLE_FROM
    writer = begin_request(API_VERSIONS, version, correlation_id, client_id, flexible)
    if flexible:
        writer.string(software_name, True)
        writer.string(software_version, True)
        writer.tags()
    return writer.getvalue()


def software(frame: bytes, version: int) -> tuple[str | None, str | None]:
    """(name, version) of the client, which requests from v3 on tell. Malformed where they are not there."""
    if not FLEXIBLE_FROM <= version <= HIGHEST_WITH_SOFTWARE:
        return None, None
    reader = Reader(frame, PEEK_SIZE)
    read_client_id(reader, True)
    return reader.string(True), reader.string(True)


def parse_api_versions(response: bytes, version: int) -> dict[int, tuple[int, int]]:
    """api_key → (min_version, max_version), as the broker says.

    Empty where the broker lacks `version`: ask again in a lower one. What stands behind UNSUPPORTED_VERSION is not
    read, since brokers disagree on it: v0's layout, nothing at all before Kafka 2.4, and other layouts elsewhere.
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


def rewrite_api_versions(response: bytes, version: int) -> bytes:
    """The response with each range cut to what APIS offers, and without the APIs of which nothing is left.

    Throttle time and features stay as they came, and so does a whole response with an error.
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
        api = APIS.get(key)
        offered = api.offered(lowest, highest) if api else None
        if offered is None:
            continue
        count += 1
        _write_range(elements, key, *offered)
        elements.raw(response[tags : reader.pos])
    end = reader.pos
    _skip_rest(reader, version)
    array = Writer()
    array.array(count, flexible)
    array.raw(elements.out)
    return splice(response, start, end, array.getvalue())


def with_admin(response: bytes, address: str) -> bytes:
    """A response of v3 or v4 with the address of Forebay's admin endpoint in a tagged field; an error as it came."""
    reader = _at_tags(response)
    if reader is None:
        return response
    start = reader.pos
    fields = [(tag, response[first:last]) for tag, first, last in reader.tags()]
    writer = Writer()
    writer.tags([*fields, (ADMIN_TAG, address.encode())])
    return splice(response, start, reader.pos, writer.getvalue())


def admin(response: bytes) -> str | None:
    """What `with_admin` said; None: nothing."""
    reader = _at_tags(response)
    for tag, start, end in reader.tags() if reader is not None else ():
        if tag == ADMIN_TAG:
            return response[start:end].decode(errors="replace")
    return None


def _at_tags(response: bytes) -> Reader | None:
    """Before the tagged fields of a response of v3 or v4; None where it is an error."""
    reader = Reader(response, 4)
    if reader.i16() != NONE:
        return None
    for _ in range(reader.array(True)):
        reader.skip(6)
        reader.skip_tags()
    reader.skip(4)  # throttle_time_ms
    return reader


def unsupported_version_response(correlation_id: int) -> bytes:
    """The answer to a version that the proxy lacks: v0, which every client reads, naming the versions that it has."""
    writer = Writer()
    writer.i32(correlation_id)
    writer.i16(UNSUPPORTED_VERSION)
    writer.array(1, False)
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
