"""The journal's schema for Arrow and Spark, derived from policies.journal_rows: nothing is written twice.

Rows of all kinds share one flat table, so that they can share files, topics and streams. A column that a kind does not
have is null in its rows.
"""

from __future__ import annotations

import types
import typing
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from forebay_policies.journal_rows import ROWS

KIND: Final = "kind"

_SCALARS: Final[dict[object, pa.DataType]] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
}


def kind_of(row: type[msgspec.Struct]) -> str:
    tag = row.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def _arrow_type(annotation: object) -> pa.DataType:
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list:
        return pa.list_(_arrow_type(arguments[0]))
    if origin in (typing.Union, types.UnionType):
        (present,) = [argument for argument in arguments if argument is not type(None)]
        return _arrow_type(present)
    if origin is typing.Literal:
        return _arrow_type(type(arguments[0]))
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return pa.struct(_fields(annotation))
    raise TypeError(f"no column can hold {annotation!r}")


def _fields(struct: type[msgspec.Struct]) -> list[pa.Field[Any]]:
    return [pa.field(field.encode_name, _arrow_type(field.type)) for field in msgspec.structs.fields(struct)]


def columns_of(row: type[msgspec.Struct]) -> list[str]:
    """The columns of one kind, `kind` first."""
    return [KIND, *(field.encode_name for field in msgspec.structs.fields(row))]


def _union() -> pa.Schema:
    columns: dict[str, pa.Field[Any]] = {KIND: pa.field(KIND, pa.string())}
    for row in ROWS:
        for field in _fields(row):
            known = columns.setdefault(field.name, field)
            if known.type != field.type:
                raise TypeError(f"{field.name} is {known.type} in one kind of row and {field.type} in another")
    return pa.schema(list(columns.values()))


ARROW_SCHEMA: Final = _union()
SPARK_SCHEMA: Final[StructType] = from_arrow_schema(ARROW_SCHEMA)
