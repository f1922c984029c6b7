"""Lines that are not as this version writes them are read as far as they can be."""

from __future__ import annotations

import pyarrow as pa

from forebay_pipeline.journal.odd_lines import odd_rows, torn_rows
from forebay_pipeline.journal.schema import ARROW_SCHEMA, KIND, TORN, UNKNOWN
from tests.pipeline import rows as make
from tests.pipeline.rows import json_lines

LINE = json_lines([make.batch_row(topic="there")]).strip()
LATER = LINE.replace(b'"acks":1', b'"acks":1,"later":{"a":[1]}')


def rows(*lines: bytes, unknown: bool = False) -> list[dict[str, object]]:
    return [row for batch in odd_rows(lines, "here", unknown=unknown) for row in batch.to_pylist()]


def errors(*lines: bytes) -> list[object]:
    return [row["error"] for row in rows(*lines) if row[KIND] == TORN]


def test_torn_lines_are_told_and_cost_no_others() -> None:
    assert errors(LINE, LINE[:-4], LATER, b"[]") == ["here: a torn line"] * 2
    assert [row["topic"] for row in rows(LINE, LINE[:-4], LATER)] == [None, "there", "there"]


def test_names_that_are_not_utf8_and_deep_nesting_are_torn_lines() -> None:
    deep = LINE.replace(b'"acks":1', b'"acks":1,"later":' + b"[" * 5000 + b"]" * 5000)
    assert errors(LINE, b'{"\xff":1}', LINE.replace(b'"acks"', b'"\xc3":1,"acks"'), deep) == ["here: a torn line"] * 3


def test_unknown_text_that_is_not_utf8_is_kept_as_far_as_it_can_be_read() -> None:
    (row,) = rows(LINE.replace(b'"acks":1', b'"acks":1,"later":"a\xff"'), unknown=True)
    assert row[UNKNOWN] == '{"later":"a\ufffd"}'


def test_a_null_is_a_torn_line_even_if_there_is_nothing_else() -> None:
    assert errors(b"null") == ["here: a torn line"]


def test_rows_that_lack_something_are_told() -> None:
    lacking = [LINE.replace(b'"acks":1,', b""), LINE.replace(b'"acks":1', b'"acks":null'), b'{"topic":"t"}']
    assert errors(LINE, *lacking) == ["here: a line without a required field"] * 3


def test_fields_that_are_not_known_are_kept_if_they_are_wanted() -> None:
    (row,) = rows(LATER)
    assert row.keys() == set(ARROW_SCHEMA.names)
    kept, plain = rows(LATER, LINE, unknown=True)
    assert (kept[UNKNOWN], plain[UNKNOWN]) == ('{"later":{"a":[1]}}', None)


def test_so_are_lists_of_structs_that_have_some() -> None:
    line = json_lines([make.ledger_row([make.ledger_part([(None, b"x")])])]).replace(b'"crc":', b'"later":1,"crc":')
    (row,) = rows(line.strip(), unknown=True)
    assert '"later":1' in str(row[UNKNOWN])


def test_kinds_that_are_not_known_are_rows() -> None:
    (row,) = rows(b'{"kind":"moonphase","time_us":1}')
    assert (row[KIND], row["time_us"]) == ("moonphase", 1)


def test_torn_rows_have_nothing_but_their_error() -> None:
    assert torn_rows("why", 2) == pa.RecordBatch.from_pylist([{KIND: TORN, "error": "why"}] * 2, ARROW_SCHEMA)
