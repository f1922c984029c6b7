"""What mutants are made of: what real clients sent and real brokers answered, and messages made from Kafka's schemas.

Goldens are as small as Kafka makes them; `made` adds arrays of several elements, nulls and tagged fields.
"""

from __future__ import annotations

import dataclasses
import types
import typing
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.primitive import TZAware, i8, i16, i32, i32Timedelta, i64

from forebay_codecs.record_batch import read_header
from tests.codecs.golden.produce_requests.cases import CLIENTS, read, specs
from tests.codecs.kio_oracle import encode_response, example, message
from tests.codecs.record_oracle import CODECS, NOW, Record, encode_batch
from tests.codecs.test_golden import golden
from tests.codecs.test_golden_requests import records_field

VERSIONS: Final[dict[str, Sequence[int]]] = {
    "metadata": range(14),
    "find_coordinator": range(7),
    "describe_cluster": range(3),
    "produce": range(3, 13),
    "fetch": range(16, 19),
    "share_fetch": range(1, 3),
    "share_acknowledge": range(1, 3),
    "api_versions": range(5),
}
"""API → the versions of its responses that are decoded."""

_WITHOUT_GOLDEN: Final = frozenset({("produce", version) for version in range(3, 10)})

RECORDS: Final = (
    Record(None, b"a"),
    Record(b"key", None, (("h", b"x"), ("", None))),
    Record(b"", b"", (), NOW - 70),
    Record(None, b"x" * 300, (("header", b"y" * 70),), NOW + 40_000),
)


@cache
def produce_requests() -> tuple[bytes, ...]:
    return tuple(read(client, case) for client in CLIENTS for case in specs(client))


@cache
def batches() -> tuple[bytes, ...]:
    captured = []
    for frame in produce_requests():
        start, end = records_field(frame)
        assert read_header(frame, start, end) is not None
        captured.append(frame[start:end])
    made = [encode_batch(RECORDS[first:], codec) for codec in CODECS for first in range(len(RECORDS))]
    return (*captured, *made)


def response_class(api: str, version: int) -> Any:
    return message(api, version, "".join(part.title() for part in api.split("_")) + "Response")


@cache
def responses(api: str) -> tuple[bytes, ...]:
    """Each behind one byte that says its version."""
    found = []
    for version in VERSIONS[api]:
        cls = response_class(api, version)
        rng = Random(version)
        bodies = [encode_response(example(cls)), *[encode_response(made(cls, rng)) for _ in range(3)]]
        if (api, version) not in _WITHOUT_GOLDEN:
            bodies.append(golden(api, version))
        found += [bytes([version]) + body for body in bodies]
    return tuple(found)


def made(cls: Any, rng: Random) -> Any:
    """Any instance of a kio message class."""
    hints = {f.name: (f.type, f.metadata.get("kafka_type")) for f in dataclasses.fields(cls)}
    return cls(**{name: _value(hint, kind, rng) for name, (hint, kind) in hints.items()})


def _value(hint: Any, kind: str | None, rng: Random) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType or origin is typing.Union:
        inner = next(argument for argument in arguments if argument is not types.NoneType)
        return None if rng.random() < 0.3 else _value(inner, kind, rng)
    if origin is tuple:
        return tuple(_value(arguments[0], kind, rng) for _ in range(rng.randrange(4)))
    if dataclasses.is_dataclass(hint):
        return made(hint, rng)
    assert kind is not None
    return _scalar(kind, rng)


def _scalar(kind: str, rng: Random) -> Any:
    match kind:
        case "int8":
            return i8(rng.choice((-1, 0, 1, 2)))
        case "int16":
            return i16(rng.choice((-1, 0, 5, 300)))
        case "int32":
            return i32(rng.choice((-1, 0, 1, 9092, 2**31 - 1)))
        case "int64":
            return i64(rng.choice((-1, 0, 77, 2**40, 2**63 - 1)))
        case "bool":
            return rng.random() < 0.5
        case "string":
            return rng.choice(("", "a", "broker.example", "nä" * 20))
        case "records":
            return rng.choice(batches())[: rng.randrange(200)]
        case "uuid":
            return uuid.UUID(int=rng.getrandbits(128) | 1)
        case "error_code":
            return rng.choice((ErrorCode.none, ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition))
        case "datetime_i64":
            return TZAware.truncate(datetime.fromtimestamp(rng.randrange(2**32), UTC))
        case "timedelta_i32":
            return i32Timedelta.parse(timedelta(milliseconds=rng.randrange(2**31)))
    raise AssertionError(kind)
