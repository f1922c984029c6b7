"""Lines that are not as this version writes them, by Arrow's JSON reader: as far as they can be read.

In: lines of any kind. Out: rows in ARROW_SCHEMA; a torn row, whose `error` says where it is, for each line that is no
JSON object, has other types, or lacks a field that its kind requires. Kinds that are not known are rows, too. Fields
that are not known are ignored, or kept as JSON in UNKNOWN.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from forebay_pipeline.journal.plain_lines import UNREADABLE
from forebay_pipeline.journal.schema import ARROW_SCHEMA, KIND, REQUIRED, TORN, UNKNOWN

_NAMES: Final = frozenset(ARROW_SCHEMA.names)
_OF_STRUCTS: Final = {
    field.name: {each.name for each in field.type.value_type}
    for field in ARROW_SCHEMA
    if pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type)
}
"""Columns of lists of structs, with these structs' fields."""

_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_structs: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_PARSE: Final = pyarrow.json.ParseOptions(explicit_schema=ARROW_SCHEMA, unexpected_field_behavior="ignore")
_PARSE_UNKNOWN: Final = pyarrow.json.ParseOptions(
    explicit_schema=ARROW_SCHEMA.append(pa.field(UNKNOWN, pa.string())), unexpected_field_behavior="ignore"
)


def odd_rows(lines: Sequence[bytes], where: str, *, unknown: bool) -> Iterator[pa.RecordBatch]:
    """The rows of `lines`; `where` goes into the `error` of torn ones. With `unknown`, all but these have UNKNOWN."""
    # Arrow's reader takes a null for a row, and ends the process if there is nothing else.
    rows = list(filter(_is_object, lines))
    if unknown:
        rows = list(map(_with_its_unknown, rows))
    parse = _PARSE_UNKNOWN if unknown else _PARSE
    try:
        found = list(_parsed(rows, where, parse))
    except pa.ArrowInvalid:
        rows = list(filter(_is_row, rows))
        found = list(_parsed(rows, where, parse))
    if torn := len(lines) - len(rows):
        yield torn_rows(f"{where}: a torn line", torn)
    yield from found


def torn_rows(error: str, count: int = 1) -> pa.RecordBatch:
    """So many torn rows, in ARROW_SCHEMA."""
    return pa.RecordBatch.from_pylist([{KIND: TORN, "error": error}] * count, schema=ARROW_SCHEMA)


def _with_its_unknown(line: bytes) -> bytes:
    """A line that is a JSON object, with its unknown fields in one more."""
    fields = _fields.decode(line)
    unknown = {name: value for name, value in fields.items() if name not in _NAMES or _has_unknown(name, value)}
    if not unknown:
        return line
    return msgspec.json.encode({**fields, UNKNOWN: msgspec.json.encode(unknown).decode(errors="replace")})


def _has_unknown(name: str, value: msgspec.Raw) -> bool:
    """Whether one of the structs in the list `value` has a field that the schema does not know."""
    if name not in _OF_STRUCTS:
        return False
    try:
        structs = _structs.decode(value)
    except UNREADABLE:
        return False
    return any(not each.keys() <= _OF_STRUCTS[name] for each in structs)


def _is_object(line: bytes) -> bool:
    try:
        _fields.decode(line)
    except UNREADABLE:
        return False
    return True


def _is_row(line: bytes) -> bool:
    try:
        pyarrow.json.read_json(io.BytesIO(line), parse_options=_PARSE)
    except pa.ArrowInvalid:
        return False
    return True


def _parsed(lines: Iterable[bytes], where: str, parse: pyarrow.json.ParseOptions) -> Iterator[pa.RecordBatch]:
    block = b"\n".join(lines)
    if not block:
        return
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    table = pyarrow.json.read_json(io.BytesIO(block), read_options=options, parse_options=parse)
    whole = _whole(table)
    lacking = pc.sum(pc.invert(whole)).as_py() or 0
    if lacking:
        yield torn_rows(f"{where}: a line without a required field", lacking)
        table = table.filter(whole)
    yield from table.to_batches()


def _whole(table: pa.Table) -> Any:
    """A mask of the rows that have a kind and all its required fields. Kinds that this version does not know pass."""
    kinds = table[KIND]
    whole = pc.is_valid(kinds)
    for kind, required in REQUIRED.items():
        of_it = pc.fill_null(pc.equal(kinds, kind), fill_value=False)
        if pc.any(of_it).as_py():
            for column in required:
                whole = pc.and_(whole, pc.or_(pc.invert(of_it), pc.is_valid(table[column])))
    return whole
