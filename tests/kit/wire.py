"""A client of the wire: request frames out, responses in, nothing hidden.

    client = await WireClient.connect(port)
    client.send(produce(1, ("ponds", 0, batch(null_key("a")))), echo(2))
    assert (await client.receive()).correlation_id == 1

Produce is v7 unless told otherwise, Metadata v4: plain layouts. `echo` is an API that no policy needs (ListGroups),
whose body the fake broker sends back.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, NamedTuple, Self

from forebay_codecs import produce_request, produce_response
from forebay_codecs.api_keys import PRODUCE
from forebay_codecs.metadata import Metadata, parse_metadata_response
from forebay_codecs.metadata_request import encode_metadata_request
from forebay_codecs.primitives import Reader, Writer
from forebay_codecs.produce_response import PartitionResponse
from tests.codecs.record_writer import Record, encode_batch
from tests.kit.event_loop import soon
from tests.kit.ports import LOOPBACK

PRODUCE_VERSION = 7
METADATA_VERSION = 4
CLIENT_ID: Final = "old-producer"
LIST_GROUPS = 16

Batches = tuple[str, int, bytes]
"""(topic, partition, its records field)."""


class Response(NamedTuple):
    correlation_id: int
    whole: bytes
    """From correlation_id on."""

    @property
    def body(self) -> bytes:
        return self.whole[4:]


class WireClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext | None = None) -> Self:
        return cls(*await soon(asyncio.open_connection(LOOPBACK, port, ssl=tls)))

    def send(self, *frames: bytes) -> None:
        """All of them in one write."""
        self._writer.write(b"".join(frames))

    @property
    def unsent(self) -> int:
        """Bytes that the other side does not take."""
        return self._writer.transport.get_write_buffer_size()

    async def receive(self) -> Response:
        size = int.from_bytes(await soon(self._reader.readexactly(4)), "big")
        whole = await soon(self._reader.readexactly(size))
        return Response(int.from_bytes(whole[:4], "big"), whole)

    async def receives(self, *correlation_ids: int) -> list[Response]:
        """That many responses, which must be to these requests, in this order."""
        responses = [await self.receive() for _ in correlation_ids]
        found = [response.correlation_id for response in responses]
        assert found == list(correlation_ids), f"responses to {found}"
        return responses

    async def is_closed(self) -> bool:
        """The other side closes without another byte."""
        try:
            rest = await soon(self._reader.read())
        except ConnectionError:
            return True
        return rest == b""

    def finish(self) -> None:
        """Close the sending half, behind everything."""
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.transport.abort()

    async def leave(self) -> None:
        """Close in an orderly way, once everything is written."""
        self._writer.close()
        await soon(self._writer.wait_closed())


# Requests


def framed(request: bytes) -> bytes:
    return len(request).to_bytes(4, "big") + request


def request(api_key: int, version: int, correlation_id: int, body: bytes, client_id: str = CLIENT_ID) -> bytes:
    """A request with a header that is not flexible."""
    writer = Writer()
    writer.i16(api_key)
    writer.i16(version)
    writer.i32(correlation_id)
    writer.client_id(client_id)
    writer.raw(body)
    return framed(writer.getvalue())


def echo(correlation_id: int, body: bytes = b"") -> bytes:
    return request(LIST_GROUPS, 0, correlation_id, body)


def metadata(correlation_id: int, *topics: str) -> bytes:
    return framed(
        encode_metadata_request(correlation_id, CLIENT_ID, METADATA_VERSION, topics, allow_auto_topic_creation=True)
    )


def produce(
    correlation_id: int,
    *batches: Batches,
    acks: int = 1,
    timeout_ms: int = 30_000,
    version: int = PRODUCE_VERSION,
    client_id: str | None = CLIENT_ID,
) -> bytes:
    topics: dict[str, list[tuple[int, int, list[bytes]]]] = {}
    for topic, partition, records in batches:
        topics.setdefault(topic, []).append((partition, len(records), [records]))
    frame = produce_request.encode(version, correlation_id, client_id, acks, timeout_ms, list(topics.items()))
    return b"".join(frame)


def transactional(frame: bytes, transactional_id: str = "t") -> bytes:
    """The same Produce request (v3–v8) of a transactional producer."""
    reader = Reader(frame, 12)
    reader.nullable_string(False)
    at = reader.pos
    writer = Writer()
    writer.string(transactional_id, False)
    return framed(frame[4:at] + writer.getvalue() + frame[at + 2 :])


def old_produce(correlation_id: int, *sets: Batches, acks: int = 1, version: int = 0) -> bytes:
    """Produce v0 to v2 of message sets."""
    writer = Writer()
    writer.i16(acks)
    writer.i32(30_000)
    writer.array(len(sets), False)
    for topic, partition, messages in sets:
        writer.string(topic, False)
        writer.array(1, False)
        writer.i32(partition)
        writer.i32(len(messages))
        writer.raw(messages)
    return request(PRODUCE, version, correlation_id, writer.getvalue())


# Batches


def null_key(*values: str) -> list[Record]:
    return [Record(None, value.encode()) for value in values]


def keyed(*values: str) -> list[Record]:
    return [Record(b"key", value.encode()) for value in values]


def batch(records: list[Record], codec: int = 0, **lies: int) -> bytes:
    return encode_batch(records, codec, **lies)


# Responses


def produced(response: Response, version: int = PRODUCE_VERSION) -> dict[tuple[str, int], PartitionResponse]:
    parsed = produce_response.parse(response.whole, version)
    return {(topic, partition.partition): partition for topic, found in parsed.topics for partition in found}


def only(response: Response, version: int = PRODUCE_VERSION) -> PartitionResponse:
    """The answer to a request for one partition."""
    (answer,) = produced(response, version).values()
    return answer


def metadata_of(response: Response) -> Metadata:
    return parse_metadata_response(response.whole, METADATA_VERSION)
