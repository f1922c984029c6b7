"""kio, whose message classes are generated from Kafka's own schemas, as the oracle of the control-message codecs.

`entities(cls)` is a Hypothesis strategy for any kio message, `example(cls)` one with something in every field;
`encode_response` and `decode_response` add the header.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import types
import typing
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import TZAware, i8, i16, i32, i32Timedelta, i64

CORRELATION_ID = 0x01020304

_EXAMPLES: dict[str, Any] = {
    "int8": i8(1),
    "int16": i16(258),
    "int32": i32(16909060),
    "int64": i64(72623859790382856),
    "bool": True,
    "string": "näme",
    "records": b"records",
    "bytes": b"bytes",
    "uuid": uuid.UUID(int=2**127 + 1),
    "error_code": ErrorCode.none,
    "datetime_i64": TZAware.truncate(datetime.fromtimestamp(2**31, UTC)),
    "timedelta_i32": i32Timedelta.parse(timedelta(milliseconds=300)),
}

_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-128, 127).map(i8),
    "int16": st.integers(-(2**15), 2**15 - 1).map(i16),
    "int32": st.integers(-(2**31), 2**31 - 1).map(i32),
    "int64": st.integers(-(2**63), 2**63 - 1).map(i64),
    "bool": st.booleans(),
    "string": st.text(max_size=12),
    "records": st.binary(max_size=200),
    "bytes": st.binary(max_size=200),
    "uuid": st.uuids().filter(lambda value: value.int != 0),
    "error_code": st.sampled_from(ErrorCode),
    # kio keeps no fractions of a second.
    "datetime_i64": st.integers(0, 2**32).map(lambda s: TZAware.truncate(datetime.fromtimestamp(s, UTC))),
    "timedelta_i32": st.integers(0, 2**31 - 1).map(lambda ms: i32Timedelta.parse(timedelta(milliseconds=ms))),
}


def message(api: str, version: int, name: str) -> Any:
    """The class `name` of kio's schema, such as message("metadata", 9, "MetadataResponseBroker")."""
    kind = "request" if "Request" in name else "response"
    return getattr(importlib.import_module(f"kio.schema.{api}.v{version}.{kind}"), name)


def entities(cls: Any) -> st.SearchStrategy[Any]:
    """Any instance of a kio message class, nested arrays of up to three elements."""
    fields = {f.name: _values(f.type, f.metadata.get("kafka_type")) for f in dataclasses.fields(cls)}
    return st.builds(cls, **fields)


def _values(hint: Any, kafka_type: str | None) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType or origin is typing.Union:
        inner = next(argument for argument in arguments if argument is not types.NoneType)
        return st.none() | _values(inner, kafka_type)
    if origin is tuple:
        return st.lists(_values(arguments[0], kafka_type), max_size=3).map(tuple)
    if dataclasses.is_dataclass(hint):
        return entities(hint)
    assert kafka_type is not None
    return _SCALARS[kafka_type]


def example(cls: Any) -> Any:
    """An instance of a kio message class without nulls, one element in every array."""
    return cls(**{f.name: _example(f.type, f.metadata.get("kafka_type")) for f in dataclasses.fields(cls)})


def _example(hint: Any, kafka_type: str | None) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType or origin is typing.Union:
        return _example(next(argument for argument in arguments if argument is not types.NoneType), kafka_type)
    if origin is tuple:
        return (_example(arguments[0], kafka_type),)
    if dataclasses.is_dataclass(hint):
        return example(hint)
    assert kafka_type is not None
    return _EXAMPLES[kafka_type]


def encode_response(entity: Any, correlation_id: int = CORRELATION_ID) -> bytes:
    """A response as it follows its size prefix."""
    header = entity.__header_schema__
    buffer = io.BytesIO()
    entity_writer(header)(buffer, header(correlation_id=i32(correlation_id)))
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def decode_response(cls: Any, data: bytes, correlation_id: int = CORRELATION_ID) -> Any:
    header, header_size = entity_reader(cls.__header_schema__)(data, 0)
    assert header.correlation_id == correlation_id
    entity, size = entity_reader(cls)(data, header_size)
    assert header_size + size == len(data)
    return entity


def decode_request(cls: Any, data: bytes) -> tuple[Any, Any]:
    """(header, request)."""
    header, header_size = entity_reader(cls.__header_schema__)(data, 0)
    entity, size = entity_reader(cls)(data, header_size)
    assert header_size + size == len(data)
    return header, entity


def encode_request(entity: Any, client_id: str | None = "client", correlation_id: int = CORRELATION_ID) -> bytes:
    """A request as it follows its size prefix."""
    header = entity.__header_schema__
    buffer = io.BytesIO()
    fields = {
        "request_api_key": i16(entity.__api_key__),
        "request_api_version": i16(entity.__version__),
        "correlation_id": i32(correlation_id),
        "client_id": client_id,
    }
    known = {field.name for field in dataclasses.fields(header)}
    entity_writer(header)(buffer, header(**{name: value for name, value in fields.items() if name in known}))
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def topic_id(value: uuid.UUID | None) -> bytes:
    """kio reads the zero UUID as None."""
    return value.bytes if value else bytes(16)
