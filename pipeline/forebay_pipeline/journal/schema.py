"""The journal's schema for Arrow and Spark, derived from forebay_policies.journal_rows.

Rows of all kinds share one flat table, because they share files, topics and streams. Columns that a kind does not have
are null in its rows. Raises TypeError on import if two kinds disagree about a column.
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
DAY: Final = "dt"
"""In what `compact` writes: the day of `time_us` in UTC; null in rows without a time."""
TORN: Final = "_torn"
"""The kind of what could not be read."""
UNKNOWN: Final = "_unknown"
"""In the output of `compact`: a JSON object of the fields that it did not know, null if there are none."""

_SCALARS: Final[dict[object, pa.DataType]] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
}


def kind_of(row: type[msgspec.Struct]) -> str:
    """What its rows have in the column KIND: `batch` for BatchRow."""
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


def columns_of(*rows: type[msgspec.Struct]) -> list[str]:
    """The columns of these kinds of rows, KIND first, then in the order of their fields."""
    fields = (field.encode_name for row in rows for field in msgspec.structs.fields(row))
    return list(dict.fromkeys([KIND, *fields]))


def _union() -> pa.Schema:
    columns: dict[str, pa.Field[Any]] = {KIND: pa.field(KIND, pa.string())}
    for row in ROWS:
        for field in _fields(row):
            known = columns.setdefault(field.name, field)
            if known.type != field.type:
                raise TypeError(f"{field.name} is {known.type} in one kind of row and {field.type} in another")
    return pa.schema(list(columns.values()))


ARROW_SCHEMA: Final = _union()
REQUIRED: Final = {
    kind_of(row): [field.encode_name for field in msgspec.structs.fields(row) if field.required] for row in ROWS
}
"""The columns without which it is no row of its kind."""
SPARK_SCHEMA: Final[StructType] = from_arrow_schema(ARROW_SCHEMA)
