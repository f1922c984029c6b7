"""A broker that costs next to nothing: `python -m bench.wire_sink PORT [--stall] [--wide N] [--keystore PEM]`.

A process of its own. It leads all partitions of TOPIC, and N of WIDE, and answers at once: Produce with offset 0 for
every partition, Fetch with as many bytes of records as it wants, ApiVersions, Metadata and InitProducerId as
tests.kit.fake_broker does, anything else with 4 zero bytes. `--stall`: Produce is taken and never answered.
`--keystore`: TLS is spoken, with that certificate and key.
Bytes are read into one buffer a connection and looked at in place; records are never looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import ssl
import struct
from typing import Final, cast

import uvloop

from bench.wire_frames import PARTITIONS, TOPIC, WIDE, fetch_answer
from forebay_codecs import error_codes, produce_request, produce_response
from forebay_codecs.api_keys import API_VERSIONS, FETCH, INIT_PRODUCER_ID, METADATA, PRODUCE
from forebay_codecs.produce_response import PartitionResponse
from tests.kit.fake_broker import Asked, BrokerConnection, FakeCluster
from tests.kit.ports import LOOPBACK

_PREFIX: Final = 4
_FIRST_BUFFER: Final = 64 << 10
_HEAD: Final = struct.Struct(">hhi")
"""api_key, api_version, correlation_id."""
_CORRELATION_ID: Final = struct.Struct(">i")


class SinkConnection(asyncio.BufferedProtocol):
    """See the module."""

    def __init__(self, cluster: FakeCluster, stall: bool) -> None:
        self.user = ""
        self._cluster = cluster
        self._stall = stall
        self._buffer = bytearray(_FIRST_BUFFER)
        self._filled = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        pos, out = 0, []
        while self._filled - pos >= _PREFIX:
            end = pos + _PREFIX + int.from_bytes(self._buffer[pos : pos + _PREFIX], "big")
            if end > self._filled:
                if end - pos > len(self._buffer):
                    self._grow(end - pos)
                break
            out.append(self._answer(pos + _PREFIX, end))
            pos = end
        if pos:
            self._buffer[: self._filled - pos] = self._buffer[pos : self._filled]
            self._filled -= pos
        if self._transport is not None and any(out):
            self._transport.write(b"".join(out))

    def _grow(self, size: int) -> None:
        self._buffer = self._buffer + bytes(size)

    def _answer(self, start: int, end: int) -> bytes:
        key, _, correlation_id = _HEAD.unpack_from(self._buffer, start)
        if key == PRODUCE:
            return b"" if self._stall else self._produced(bytes(self._buffer[start:end]))
        if key in (API_VERSIONS, METADATA, INIT_PRODUCER_ID):
            asked = Asked(cast(BrokerConnection, self), bytes(self._buffer[start:end]))
            body = self._cluster.body(asked)
        elif key == FETCH:
            body = _fetched(int.from_bytes(self._buffer[end - 4 : end], "big"))
        else:
            body = bytes(4)
        return (4 + len(body)).to_bytes(4, "big") + _CORRELATION_ID.pack(correlation_id) + body

    def _produced(self, frame: bytes) -> bytes:
        request = produce_request.parse(frame)
        topics = [
            (name, [PartitionResponse(index, error_codes.NONE, 0, -1, 0, [], None) for index, _, _ in partitions])
            for name, partitions in request.topics
        ]
        return produce_response.encode(request.version, request.correlation_id, topics, 0)


@functools.cache
def _fetched(size: int) -> bytes:
    return fetch_answer(size)


async def serve(port: int, stall: bool, wide: int, keystore: str) -> None:
    cluster = FakeCluster({TOPIC: [0] * PARTITIONS, **({WIDE: [0] * wide} if wide else {})})
    cluster.produce_versions = (0, produce_request.MAX_VERSION)
    cluster[0].port = port
    loop = asyncio.get_running_loop()
    context = None
    if keystore:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keystore)
    server = await loop.create_server(lambda: SinkConnection(cluster, stall), LOOPBACK, port, backlog=4096, ssl=context)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--stall", action="store_true")
    parser.add_argument("--wide", type=int, default=0)
    parser.add_argument("--keystore", default="")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, arguments.stall, arguments.wide, arguments.keystore))


if __name__ == "__main__":
    main()
