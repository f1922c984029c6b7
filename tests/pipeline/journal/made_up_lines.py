"""Lines of a journal for Hypothesis: of all kinds, with any values, and damaged in many ways."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import strategies as st

from forebay_pipeline.journal.schema import ARROW_SCHEMA, KIND
from tests.pipeline import rows as make

_PLAUSIBLE = [
    msgspec.to_builtins(row)
    for row in (
        make.batch_row(),
        make.choice_row(loaded_partitions=[1, 2], loads=[20, 30]),
        make.metadata_row(),
        make.gauge_row(),
        make.ledger_row([make.ledger_part([(b"k", None)], keys=[7], tombstones=[0]), make.ledger_part([(None, b"x")])]),
        make.observed_row(),
        make.rack_row(),
    )
]
_OTHERS = [
    b"",
    b"null",
    b"[1,2]",
    b'"text"',
    b"{}",
    b"\x00\xff",
    b'{"kind":"moonphase","time_us":1,"tides":[1]}',
    b'{"kind":null,"time_us":1}',
    b'{"topic":"t"}',
    b'{"\xff":1}',
    b'{"kind":"ledger","\xc3":1}',
    b'{"kind":"moonphase","tides":"\xff"}',
    b'{"kind":"moonphase","tides":' + b"[" * 5000 + b"]" * 5000 + b"}",
]


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_list(kind):
        return st.lists(_values(kind.value_type), max_size=3)
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({}, optional={field.name: _values(field.type) for field in kind})
    if pa.types.is_boolean(kind):
        return st.booleans()
    return st.text(max_size=5) if pa.types.is_string(kind) else st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def _rows(draw: st.DrawFn) -> dict[str, Any]:
    """A row of any kind in which some values are anything that its columns can hold."""
    row = dict(draw(st.sampled_from(_PLAUSIBLE)))
    for name in draw(st.lists(st.sampled_from(sorted(row.keys() - {KIND})), max_size=3)):
        row[name] = draw(_values(ARROW_SCHEMA.field(name).type))
    return row


@st.composite
def _altered(draw: st.DrawFn, row: dict[str, Any]) -> dict[str, Any]:
    """The same row in another order, without a field, or with one that is null, new, of another kind or type."""
    name = draw(st.sampled_from(sorted(row)))
    other = draw(st.sampled_from(["later", *ARROW_SCHEMA.names]))
    value = draw(st.sampled_from([None, 1 << 63, 1.5, "text", {"a": [1]}, [None], [{"later": 1}]]))
    return draw(
        st.sampled_from(
            [
                dict(draw(st.permutations(list(row.items())))),
                {each: row[each] for each in row if each != name},
                {**row, name: value},
                {**row, other: value},
                {**row, KIND: "moonphase"},
            ]
        )
    )


@st.composite
def _written(draw: st.DrawFn, row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode() if draw(st.booleans()) else msgspec.json.encode(row)


@st.composite
def _cut(draw: st.DrawFn, line: bytes) -> bytes:
    return line[: draw(st.integers(0, len(line) - 1))]


WHOLE = _rows().flatmap(_written)
"""Lines as the proxy writes them, but for escapes and spaces."""
CUT = WHOLE.flatmap(_cut)
"""Lines whose end is missing."""
DAMAGED = CUT | _rows().flatmap(_altered).flatmap(_written) | st.sampled_from(_OTHERS)
