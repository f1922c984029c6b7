"""Bystanders: clients that a fault does not touch, directly and through Forebay at the same time.

    with Bystanders(posts) as bystanders:            # each has been acknowledged once
        …
        waits = bystanders.stop()
    waits.latency(THROUGH, {0, 2}, begun, ended).worst

A bystander has a connection of its own to one broker (or to Forebay's port for it) and writes one small record with a
key at a time to a partition of its own there, at a steady rate. It is as patient as clients are by default: an answer
may take 30 s, and a record is sent again until it is acknowledged. Every 20th record is sent by a newcomer: a new
connection, which asks for Metadata first.

What it waits is the time from a record's first try to its acknowledgement, connecting and asking included. All stand
in one process of their own, so that a busy test delays none of them: `python -m tests.chaos.bystander`, posts as JSON
in its argument, prints a line when all are under way, and all waits as JSON when its stdin ends.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count
from time import monotonic
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

from forebay_codecs.metadata_request import encode_metadata_request
from tests.codecs.record_writer import Record
from tests.kit.paths import ROOT
from tests.kit.ports import LOOPBACK
from tests.kit.wire import METADATA_VERSION, Response, batch, framed, metadata_of, only, produce

Way = Literal["direct", "forebay"]
DIRECT: Final = "direct"
THROUGH: Final = "forebay"

_REQUEST_TIMEOUT: Final = 30.0
_RETRY_BACKOFF: Final = 0.1
_NEWCOMER_EVERY: Final = 20
_UNDER_WAY_SECONDS: Final = 60
_NO_ERROR: Final = 0


@dataclass(frozen=True, slots=True)
class Post:
    """Where one bystander stands, and what it sends. `node` leads the partition; `port` is where it is reached."""

    way: Way
    node: int
    port: int
    topic: str
    partition: int = 0
    acks: int = 1
    client_id: str = "bystander"
    size: int = 100
    """Bytes of a record's value."""
    rate: float = 20.0
    """Records a second at most: the next one waits for the answer."""


class Wait(NamedTuple):
    """Of one record, by the monotonic clock, which processes share. `answered` is the end where nothing came until it.

    `errors`: how many tries were refused, timed out or lost their connection.
    """

    post: int
    sent: float
    answered: float
    errors: int


@dataclass(frozen=True, slots=True)
class Waits:
    """Of all bystanders, by the number of their post."""

    posts: Sequence[Post]
    waits: Sequence[Wait]

    def latency(self, way: Way, nodes: Collection[int], begun: float, ended: float) -> Latency:
        """Of bystanders at these brokers: what was under way at any time between `begun` and `ended`.

        While a record waits, its client sends no others. They count as if they had been sent when they were due:
        9 s at one record a second are nine records that waited 9 s, 8 s, 7 s …
        """
        seconds: list[float] = []
        errors = 0
        for wait in self.waits:
            post = self.posts[wait.post]
            if post.way == way and post.node in nodes and wait.sent <= ended and wait.answered >= begun:
                whole = wait.answered - wait.sent
                late = int(whole * post.rate)
                seconds += [whole, *(whole - number / post.rate for number in range(1, late))]
                errors += wait.errors
        return Latency.of(seconds, errors)


@dataclass(frozen=True, slots=True)
class Latency:
    """In seconds, of the records of one way."""

    p50: float
    p99: float
    worst: float
    errors: int

    @classmethod
    def of(cls, waits: Sequence[float], errors: int) -> Self:
        seconds = sorted(waits)
        p50, p99 = (seconds[int(len(seconds) * share)] for share in (0.5, 0.99))
        return cls(p50, p99, seconds[-1], errors)


class Bystanders:
    def __init__(self, posts: Sequence[Post]) -> None:
        self._posts = posts
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        """Returns when each was acknowledged once; AssertionError if that takes too long."""
        posts = json.dumps([dataclasses.asdict(post) for post in self._posts])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.bystander", posts],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the bystanders could not begin"
        return self

    def stop(self) -> Waits:
        """What they waited, records included that are still unanswered."""
        assert self._process is not None
        said, _ = self._process.communicate(timeout=_UNDER_WAY_SECONDS)
        return Waits(self._posts, [Wait(*wait) for wait in json.loads(said)])

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


# In the process of their own


class _Refused(Exception):
    """The answer is an error, or to another request."""


class _Bystander:
    def __init__(self, number: int, post: Post) -> None:
        self._number = number
        self._post = post
        self._records = batch([Record(b"bystander", bytes(post.size), (), int(time.time() * 1000))])
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._correlation = count(1)
        self._sent = 0.0
        self._errors = 0
        self._waiting = False
        self.under_way = asyncio.Event()
        self.waits: list[Wait] = []

    async def stand(self) -> None:
        for seq in count():
            if seq % _NEWCOMER_EVERY == 0:
                self._leave()
            self._sent, self._errors, self._waiting = monotonic(), 0, True
            while not await self._acknowledged():
                self._errors += 1
                self._leave()
                await asyncio.sleep(_RETRY_BACKOFF)
            self.settle()
            self.under_way.set()
            await asyncio.sleep(max(0.0, self._sent + 1 / self._post.rate - monotonic()))

    def settle(self) -> None:
        """The record that is under way, if one is, has waited until now."""
        if self._waiting:
            self.waits.append(Wait(self._number, self._sent, monotonic(), self._errors))
            self._waiting = False

    async def _acknowledged(self) -> bool:
        """One try."""
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                await self._try()
        except (OSError, EOFError, TimeoutError, _Refused):
            return False
        return True

    async def _try(self) -> None:
        post = self._post
        if self._streams is None:
            self._streams = await asyncio.open_connection(LOOPBACK, post.port)
            correlation = next(self._correlation)
            topics = (post.topic,)
            request = encode_metadata_request(correlation, post.client_id, METADATA_VERSION, topics)
            known = metadata_of(await self._ask(framed(request), correlation))
            if any(topic.error_code != _NO_ERROR for topic in known.topics):
                raise _Refused
        correlation = next(self._correlation)
        records = (post.topic, post.partition, self._records)
        request = produce(correlation, records, acks=post.acks, client_id=post.client_id)
        if only(await self._ask(request, correlation)).error_code != _NO_ERROR:
            raise _Refused

    async def _ask(self, request: bytes, correlation: int) -> Response:
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(request)
        whole = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        response = Response(int.from_bytes(whole[:4], "big"), whole)
        if response.correlation_id != correlation:
            raise _Refused
        return response

    def _leave(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def _main(posts: Sequence[Post]) -> None:
    bystanders = [_Bystander(number, post) for number, post in enumerate(posts)]
    standing = [asyncio.create_task(bystander.stand()) for bystander in bystanders]
    async with asyncio.timeout(_UNDER_WAY_SECONDS):
        for bystander in bystanders:
            await bystander.under_way.wait()
    print("under way", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in standing:
        if task.done():
            task.result()
        task.cancel()
    for bystander in bystanders:
        bystander.settle()
    print(json.dumps([wait for bystander in bystanders for wait in bystander.waits]))


if __name__ == "__main__":
    asyncio.run(_main([Post(**post) for post in json.loads(sys.argv[1])]))
