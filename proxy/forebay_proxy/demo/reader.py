"""What the demo asks a cluster: who leads the partitions, and what they hold in the end.

In: bootstrap addresses and a topic. Out: leaders, or a Stored. Wrong: OSError where a broker cannot be reached or hangs
up, Malformed where its answer is none. Each exchange has its own connection: this is never part of what is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from forebay_codecs.metadata import parse_metadata_response
from forebay_codecs.metadata_request import encode_metadata_request
from forebay_proxy.demo import wire

Address = tuple[str, int]

_METADATA_VERSION: Final = 4


class Stored(NamedTuple):
    """What a topic holds. `records` is partition → end offset: every record it ever took, since offsets begin at 0.

    `batches` and `records_in_batches` were counted in the record batches that are still there.
    """

    records: dict[int, int]
    batches: int
    records_in_batches: int

    @property
    def total(self) -> int:
        """Records in all partitions together."""
        return sum(self.records.values())


@contextmanager
def _hang_up_is_an_os_error(address: Address) -> Iterator[None]:
    try:
        yield
    except asyncio.IncompleteReadError as error:
        raise ConnectionError(f"{address[0]}:{address[1]} closed the connection without an answer") from error


class _Asker:
    """Requests one after the other on one connection."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> _Asker:
        self._streams = await asyncio.open_connection(*self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()

    async def ask(self, request: bytes) -> bytes:
        """`request` without its size prefix; the response from correlation_id on."""
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(len(request).to_bytes(4, "big") + request)
        with _hang_up_is_an_os_error(self._address):
            size = int.from_bytes(await reader.readexactly(4), "big")
            return await reader.readexactly(size)


async def find_leaders(bootstrap: str, topic: str) -> dict[int, Address]:
    """partition → its leader's address, as Metadata at the first of the `bootstrap` addresses says."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    request = encode_metadata_request(1, wire.CLIENT_ID, _METADATA_VERSION, [topic])
    async with _Asker((host, int(port))) as asker:
        metadata = parse_metadata_response(await asker.ask(request), _METADATA_VERSION)
    leaders = {}
    for partition in metadata.topics[0].partitions:
        broker = metadata.brokers.get(partition.leader_id)
        if broker is None:
            raise ConnectionError(f"partition {partition.partition_index} of {topic} has no leader")
        leaders[partition.partition_index] = (broker.host, broker.port)
    return leaders


async def read_stored(bootstrap: str, topic: str) -> Stored:
    """Count what the brokers themselves hold. To be called when nothing is produced any more."""
    leaders = await find_leaders(bootstrap, topic)
    led: dict[Address, list[int]] = {}
    for partition, address in sorted(leaders.items()):
        led.setdefault(address, []).append(partition)
    found = await asyncio.gather(*(_read_broker(address, topic, led[address]) for address in led))
    return Stored(
        {partition: end for stored in found for partition, end in stored.records.items()},
        sum(stored.batches for stored in found),
        sum(stored.records_in_batches for stored in found),
    )


async def _read_broker(address: Address, topic: str, partitions: list[int]) -> Stored:
    async with _Asker(address) as asker:
        ends, offsets = [
            wire.read_offsets(await asker.ask(wire.list_offsets_request(1, topic, partitions, which)))
            for which in (wire.LATEST, wire.EARLIEST)
        ]
        batches = records = 0
        while unread := {p: offset for p, offset in offsets.items() if offset < ends[p]}:
            fetched = wire.read_fetched(await asker.ask(wire.fetch_request(1, topic, unread)))
            if not fetched:
                raise ConnectionError(f"{address[0]}:{address[1]} does not give what it holds of {topic}")
            for partition, part in fetched.items():
                offsets[partition] = part.next_offset
                batches += part.batches
                records += part.records
    return Stored(ends, batches, records)
