"""Request and response headers.

A request frame: size int32, then the header (api_key int16, api_version int16, correlation_id int32,
client_id nullable string, and tagged fields where the API's version is flexible), then the body.
A response frame: size int32, correlation_id int32, tagged fields where flexible (never for ApiVersions), body.
"""

from __future__ import annotations

from librt.strings import read_i16_be, read_i32_be

from forebay_codecs.errors import Malformed
from forebay_codecs.primitives import Reader, Writer

PEEK_SIZE = 8
"""Bytes of a request that `peek` needs, not counting the size prefix."""

FIRST_PRINTABLE = 0x20
"""Above every version of every API."""

LONGEST_HEADER = PEEK_SIZE + 2 + 0x7FFF
"""Bytes of a request, not counting the size prefix, that contain the client id, however long it is."""


def peek(data: bytes, pos: int) -> tuple[int, int, int]:
    """(api_key, api_version, correlation_id) of the request that begins at `pos`; PEEK_SIZE bytes must be there."""
    return read_i16_be(data, pos), read_i16_be(data, pos + 2), read_i32_be(data, pos + 4)


def may_be_request(start: bytes) -> bool:
    """Whether a frame that begins with `start`, PEEK_SIZE bytes of it or fewer, is a request and no raw SASL token.

    After SaslHandshake v0 tokens follow as frames without a header. Kafka's api keys and versions are small: a request
    begins with 0 key 0 version. Tokens of SCRAM and OAUTHBEARER begin with a letter or 1, those of Kerberos with 0x60
    or 5. One of PLAIN begins with 0, too: 0 user 0 password. It would be taken for a request if the user's name had one
    character, and the password began with a control character.
    """
    return len(start) == PEEK_SIZE and start[0] == 0 and start[2] == 0 and start[3] < FIRST_PRINTABLE


def peek_client_id(frame: bytes) -> str | None:
    """The client id of a request; `frame` may be its beginning only. Raises Malformed where that ends too early."""
    return Reader(frame, PEEK_SIZE).client_id()


def printable(client_id: str) -> str:
    """A client id as people and JSON can take it, with bytes that are not UTF-8 escaped: `till-\\xe4`."""
    return client_id.encode(errors="surrogateescape").decode(errors="backslashreplace")


def begin_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, *, flexible: bool = False
) -> Writer:
    """A Writer that begins with the header of a request of the proxy's own, without the size prefix."""
    writer = Writer()
    writer.i16(api_key)
    writer.i16(version)
    writer.i32(correlation_id)
    writer.client_id(client_id)
    if flexible:
        writer.tags()
    return writer


def read_client_id(reader: Reader, *, flexible: bool) -> str | None:
    """Read what follows correlation_id in a request header; the reader is then at the body. Raises Malformed."""
    client_id = reader.client_id()
    reader.skip_tags(flexible)
    return client_id


def response_header_size(data: bytes, *, flexible: bool) -> int:
    """The length of a response's header in bytes, without the size prefix. Raises Malformed if it is cut short."""
    if len(data) < 4:
        raise Malformed("a response without a correlation id")
    if not flexible:
        return 4
    reader = Reader(data, 4)
    reader.skip_tags()
    return reader.pos
