"""What a client is asked to produce, what it says about it, and what is found in Kafka afterwards.

The records of a spec are known from their number alone, so that whoever made them (Java, librdkafka, Python, kcat)
made the same, and a test can say of any record found which one it is:

    ProduceSpec(topic="t", name="run", count=3, keys="mixed", key_count=2)
    seq 0: key b"key-0", value b"run-0"; seq 1: no key, value b"run-1"; seq 2: key b"key-0", value b"run-2"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Keys = Literal["keyed", "null", "mixed"]
Acks = Literal["0", "1", "all"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Headers = tuple[tuple[str, bytes | None], ...]

CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class ProduceSpec:
    """`size` pads values with dots. `rate` is in records a second, 0 as fast as it goes (Java only).
    `contents`: "mixed" has null and empty values too (ancient Java only).

    `props` are the client's own settings, by the client's own names.
    """

    topic: str
    name: str
    count: int = 200
    keys: Keys = "null"
    key_count: int = 13
    acks: Acks = "all"
    compression: Codec = "none"
    idempotence: bool = False
    transactional_id: str | None = None
    abort: bool = False
    headers: bool = False
    null_header: bool = True
    timestamp_base: int | None = None
    partition: int | None = None
    linger_ms: int = 5
    size: int = 0
    rate: int = 0
    contents: Literal["text", "mixed"] = "text"
    props: Mapping[str, str] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """Whether the whole spec must stay where the client put it, keyed or not."""
        return self.idempotence or self.transactional_id is not None

    def is_keyed(self, seq: int) -> bool:
        return self.keys == "keyed" or (self.keys == "mixed" and seq % 2 == 0)

    def key(self, seq: int) -> bytes | None:
        return f"key-{seq % self.key_count}".encode() if self.is_keyed(seq) else None

    def value(self, seq: int) -> bytes | None:
        if self.contents == "mixed" and seq % 3:
            return None if seq % 3 == 1 else b""
        return f"{self.name}-{seq}".ljust(self.size, ".").encode()

    def record_headers(self, seq: int) -> Headers:
        """A name that comes twice, an empty value and none at all: what a careless codec mixes up."""
        if not self.headers:
            return ()
        none: Headers = (("none", None),) if self.null_header else ()
        return (("seq", str(seq).encode()), ("empty", b""), *none, ("seq", self.name.encode()))

    def timestamp(self, seq: int) -> int | None:
        return None if self.timestamp_base is None else self.timestamp_base + seq


@dataclass(frozen=True, slots=True)
class Ack:
    """What the client was told of record `seq`; −1 where it was told nothing (acks=0, a record that moved)."""

    seq: int
    partition: int = -1
    offset: int = -1
    timestamp: int = -1


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """`stats` are latencies in ms (average_ms, p50_ms, p99_ms, p999_ms, max_ms), where the client measures them."""

    acks: list[Ack]
    failures: dict[int, str] = field(default_factory=dict)
    stats: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ClientFailed(Exception):
    """The client gave up, timed out or ended; the message holds what it said."""
