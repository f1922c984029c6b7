"""Lines that are just as this version writes them are read by kind; others are not taken for such."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from forebay_pipeline.journal.plain_lines import are_whole, by_kind, completed, plain_rows
from forebay_pipeline.journal.schema import ARROW_SCHEMA, columns_of
from forebay_policies.journal_rows import LedgerRow
from tests.pipeline import rows as make
from tests.pipeline.rows import json_lines

LEDGER = make.ledger_row([make.ledger_part([(b"k", None)], keys=[7], tombstones=[0]), make.ledger_part([(None, b"x")])])
LINE = json_lines([LEDGER]).strip()


def test_lines_are_told_apart_by_how_they_begin() -> None:
    batches = [json_lines([make.batch_row(seq=seq)]).strip() for seq in (1, 2)]
    others = [b'{"kind":"moonphase","time_us":1}', b'{"time_us":1,"kind":"batch"}', b"[]", b'{"kind":"batch']
    kinds, odd = by_kind(b"\n".join([batches[0], LINE, *others, b"", batches[1], b""]))
    assert kinds == {"batch": batches, "ledger": [LINE]}
    assert sorted(odd) == sorted(others)


def test_rows_have_the_columns_of_their_kind() -> None:
    rows = [LEDGER, make.ledger_row([], topic="ü")]
    table = plain_rows("ledger", json_lines(rows).splitlines())
    assert table is not None
    assert table.schema.names == columns_of(LedgerRow)
    assert table == pa.Table.from_pylist([msgspec.to_builtins(row) for row in rows], table.schema)


def test_what_may_be_left_out_is_null_whatever_its_default() -> None:
    table = plain_rows("ledger", [LINE.replace(b',"principal":""', b"")])
    assert table is not None
    assert table["principal"].to_pylist() == [None]


@pytest.mark.parametrize(
    "line",
    [
        LINE[:-2],
        LINE.replace(b'"acks":1,', b""),
        LINE.replace(b'"acks":1', b'"acks":null'),
        LINE.replace(b'"acks":1', b'"acks":"1"'),
        LINE.replace(b'"acks":1', b'"acks":9223372036854775808'),
        LINE.replace(b'"acks":1', b'"acks":1,"later":1'),
        LINE.replace(b'"acks":1', b'"acks":1,"leader":1'),
        LINE.replace(b'"crc":', b'"later":1,"crc":'),
    ],
    ids=["torn", "lacks", "null", "type", "large", "later", "another kind's", "later in a part"],
)
def test_one_that_is_not_plain_is_not_taken(line: bytes) -> None:
    assert plain_rows("ledger", [LINE, line]) is None


def test_torn_lines_are_not_whole() -> None:
    assert are_whole([LINE, LINE.replace(b'"acks":1', b'"acks":"one","later":1')])
    assert not are_whole([LINE, LINE[:-2]])
    assert not are_whole([LINE, b'{"\xff":1}'])
    assert not are_whole([LINE, b'{"later":' + b"[" * 5000 + b"]" * 5000 + b"}"])


def test_a_table_is_completed_with_nulls() -> None:
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in ("leader", "topic", "loads")])
    found = completed(pa.table({"topic": ["a", "b"], "acks": [1, 1]}), schema)
    assert found.schema == schema
    assert found.to_pydict() == {"leader": [None, None], "topic": ["a", "b"], "loads": [None, None]}
