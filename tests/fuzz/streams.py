"""What clients and brokers say to the whole proxy (whole.py), and how it is made wrong.

A client's stream: one byte of how it is run, then frames. A broker's answer: the API's key, the version, how many
answers of that kind come first, then the answer from behind its correlation id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Final

from forebay_codecs import api_versions, produce_request, produce_response
from forebay_codecs.api_keys import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    SASL_HANDSHAKE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
)
from forebay_codecs.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
)
from forebay_codecs.errors import Malformed
from forebay_codecs.produce_response import PartitionResponse
from tests.codecs.record_oracle import CODECS
from tests.fuzz.batches import batch_mutated
from tests.fuzz.corpus import RECORDS, batches, produce_requests, responses
from tests.fuzz.message_sets import message_sets
from tests.fuzz.mutation import LONGEST, mutated
from tests.fuzz.target import Target
from tests.fuzz.whole import World, check_client, frames, in_world
from tests.kit.wire import (
    PRODUCE_VERSION,
    batch,
    echo,
    framed,
    keyed,
    metadata,
    null_key,
    old_produce,
    produce,
    request,
    transactional,
)

# Clients


@cache
def clients() -> tuple[bytes, ...]:
    rng = Random(1)
    fine = [framed(frame) for frame in produce_requests()]
    for codec in CODECS:
        mixed = batch(list(RECORDS), codec)
        fine.append(produce(5, ("golden", 0, mixed), ("golden", 1, mixed), ("ponds", 0, batch(null_key("a"), codec))))
        fine.append(produce(6, ("golden", 2, mixed), acks=0, version=3))
        fine.append(produce(7, ("golden", 2, batch(keyed("b"), codec)), acks=-1, version=12))
    fine += [
        produce(8, ("golden", 0, batch(null_key("t"))), ("nowhere", 0, batch(null_key("t"))), timeout_ms=10),
        transactional(produce(9, ("golden", 0, batch(keyed("t"))))),
        produce(10, ("golden", 0, batch(keyed("t"), producer_id=7)), ("golden", 0, batch(keyed("t")))),
        *[
            old_produce(11, ("golden", 0, messages), ("ponds", 0, messages[:-1]), acks=acks, version=version)
            for acks in (0, 1)
            for version, messages in enumerate(message_sets()[:3])
        ],
        *[framed(api_versions.request(13 + version, "c", version, "old", "1")) for version in range(6)],
        *[request(METADATA, version, 20 + version, b"\0\0\0\0") for version in (0, 4, 8)],
        metadata(30, "golden", "nowhere"),
        *[request(FETCH, version, 40 + version, b"\0" * 20) for version in (4, 16, 18)],
        *[request(key, 1, 60 + key, b"\0") for key in (FIND_COORDINATOR, DESCRIBE_CLUSTER, SHARE_FETCH)],
        request(SASL_HANDSHAKE, 1, 70, b"\0\5PLAIN"),
        request(SASL_HANDSHAKE, 0, 71, b"\0\5PLAIN") + framed(b"\0user\0password"),
        *[echo(80 + size % 7, bytes(size)) for size in (0, 1, 5000)],
    ]
    alone = [bytes([number % 256]) + frame for number, frame in enumerate(fine)]
    together = [bytes([number]) + b"".join(rng.sample(fine, rng.randrange(2, 9))) for number in range(60)]
    return (*alone, *together)


def _numbered(stream: list[bytes]) -> list[bytes]:
    """Each frame with a correlation id of its own, so that answers can be told apart."""
    return [frame[:4] + number.to_bytes(4, "big") + frame[8:] for number, frame in enumerate(stream, start=100)]


def _wrong_frame(frame: bytes, rng: Random) -> bytes:
    way = rng.random()
    if way < 0.3:
        return frame[:4] + mutated(frame[4:], rng, 2)
    if way < 0.4:
        return mutated(frame, rng, 2)
    try:
        found = produce_request.parse(frame)
    except Malformed:
        return frame[:8] + mutated(frame[8:], rng)
    if rng.random() < 0.2:
        found.acks, found.version = rng.choice((0, 1, -1)), rng.randrange(3, 13)
    topics = [
        (name, [(index, _wrong_records(frame[start:end], rng)) for index, start, end in partitions])
        for name, partitions in found.topics
    ]
    if topics and rng.random() < 0.2:
        topics.append(rng.choice(topics))
    made = produce_request.encode(
        found.version,
        found.correlation_id,
        found.client_id,
        found.acks,
        found.timeout_ms,
        [(name, [(index, len(records), [records]) for index, records in parts]) for name, parts in topics],
    )
    return b"".join(made)[4:]


def _wrong_records(records: bytes, rng: Random) -> bytes:
    if rng.random() < 0.3:
        return records
    if rng.random() < 0.1:
        return records + rng.choice(batches())
    return batch_mutated(records if rng.random() < 0.6 else rng.choice(batches()), rng)


def client_mutated(data: bytes, rng: Random) -> bytes:
    how, stream = data[:1], data[1:]
    if rng.random() < 0.1:
        return bytes([rng.randrange(256)]) + mutated(stream, rng)
    found = frames(stream)
    if not found or rng.random() < 0.3:
        found += frames(rng.choice(clients())[1:])
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(found))
        if rng.random() < 0.15:
            found.insert(at, found[rng.randrange(len(found))])
        else:
            found[at] = _wrong_frame(found[at], rng)
    if rng.random() < 0.9:
        found = _numbered(found)
    return (how + b"".join(map(framed, found[:12])))[: 4 * LONGEST]


# Brokers

OWN: Final = (METADATA, PRODUCE, API_VERSIONS)
ASKED: Final = {
    FETCH: "fetch",
    FIND_COORDINATOR: "find_coordinator",
    DESCRIBE_CLUSTER: "describe_cluster",
    SHARE_FETCH: "share_fetch",
    SHARE_ACKNOWLEDGE: "share_acknowledge",
    METADATA: "metadata",
    PRODUCE: "produce",
    API_VERSIONS: "api_versions",
}


@cache
def answers() -> tuple[bytes, ...]:
    found = []
    for key, name in ASKED.items():
        for response in responses(name):
            for first in (0, 1, 2) if key in OWN else (0,):
                found.append(bytes([key, response[0], first]) + response[5:])
    return (*found, *_fates())


def _fates() -> Iterator[bytes]:
    """Of the partitions that are asked for; some are what no broker has ever said."""
    for code in (NONE, CORRUPT_MESSAGE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, MESSAGE_TOO_LARGE, INVALID_RECORD):
        for offset in (-1, 100, 2**63 - 1):
            for version, message in ((8, "x" * 32_767), (12, "x" * 40_000), (12, None)):
                fates = [PartitionResponse(n, code, offset, -1, 0, [(0, "no"), (9, None)], message) for n in range(3)]
                made = produce_response.encode(version, 0, [("golden", fates), ("ponds", fates[:2])], 7)
                for first in range(4):
                    yield bytes([PRODUCE, version, first]) + made[8:]


async def _works_again(world: World) -> bool:
    """Soon: metadata that named wrong addresses is not asked for again before somebody needs it."""
    for _ in range(10):
        neighbour = world.client()
        neighbour.send(
            produce(1, *[("ponds", index, batch(null_key("one"))) for index in range(2)])
            + produce(2, ("golden", 1, batch(keyed("two"))))
            + echo(3)
        )
        answers = await world.answers(neighbour, 1, 2, 3)
        neighbour.leave()
        await world.empties(0)
        if answers is not None and all(code == 0 for answer in answers[:2] for code in _error_codes(answer)):
            return True
        await asyncio.sleep(40)
    return False


def _error_codes(answer: bytes) -> list[int]:
    parsed = produce_response.parse(answer, PRODUCE_VERSION)
    return [partition.error_code for _, partitions in parsed.topics for partition in partitions]


def check_broker(data: bytes) -> bool:
    """Once, and to whoever asks, a broker says what stands in `data`. Then the proxy works as if it had not."""
    key, version, first = (*data[:3], 0, 0, 0)[:3]
    said = 0

    def spoil(asked: int, _version: int, response: bytes) -> bytes:
        nonlocal said
        if asked != key:
            return response
        said += 1
        return response[:4] + data[3:] if said == 1 + first % 4 else response

    kept: list[bool] = []

    async def run(world: World) -> None:
        client = world.client()
        client.send(
            produce(1, ("golden", 0, batch(null_key("a"))), ("golden", 1, batch(keyed("b"))))
            + produce(2, ("golden", 0, batch(keyed("i"), producer_id=7)), ("golden", 2, batch(keyed("c"))))
            + b"".join(produce(number, ("golden", 1, batch(keyed("merged"))), version=8) for number in (5, 6))
            + metadata(3, "golden")
            + (request(key, version, 4, b"\0\0\0\0") if key != PRODUCE else echo(4))
        )
        await asyncio.sleep(40)  # longer than a broker may take for an answer
        kept.append(not client.closed)
        client.leave()
        await world.empties(0)
        assert await _works_again(world)

    in_world(run, 12 if version >= 9 or key != PRODUCE else max(version, 3), spoil=spoil)
    return kept[0]


def answer_mutated(data: bytes, rng: Random) -> bytes:
    if rng.random() < 0.02:
        return mutated(data[:3], rng)[:3].ljust(3, b"\0") + data[3:]
    return data[:3] + mutated(data[3:], rng)


def targets() -> list[Target]:
    return [
        Target("client", clients(), check_client, client_mutated, 6.0),
        Target("broker", answers(), check_broker, answer_mutated, 4.0),
    ]
