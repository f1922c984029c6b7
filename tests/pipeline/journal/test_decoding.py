"""Bytes of a journal as rows: what of them is wanted, and that no line changes what is made of others."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

import msgspec
import pyarrow as pa
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_pipeline.journal.decoding import Lines, RowFilter, decode
from forebay_pipeline.journal.odd_lines import odd_rows
from forebay_pipeline.journal.schema import ARROW_SCHEMA, DAY, KIND, TORN, UNKNOWN, columns_of, kind_of
from forebay_policies.journal_rows import ROWS, BatchRow, GaugeRow, RackRow
from tests.pipeline import rows as make
from tests.pipeline.journal.made_up_lines import CUT, DAMAGED, WHOLE
from tests.pipeline.rows import json_lines


def rows(batches: Iterable[pa.RecordBatch]) -> Counter[str]:
    """Rows as JSON, however they were cut into batches; without fields that are null."""
    return Counter(
        msgspec.json.encode({name: value for name, value in row.items() if value is not None}, order="sorted").decode()
        for batch in batches
        for row in batch.to_pylist()
    )


@settings(deadline=None)
@given(st.lists(WHOLE | DAMAGED, max_size=6), st.booleans())
def test_each_line_makes_what_arrow_makes_of_it_alone(lines: list[bytes], unknown: bool) -> None:
    wanted = RowFilter(unknown=unknown)
    found = list(Lines(wanted).rows(b"\n".join(lines), "here"))
    assert all(batch.schema == wanted.schema for batch in found)
    alone = (odd_rows([line], "here", unknown=unknown) for line in lines if line)
    assert rows(found) == sum(map(rows, alone), Counter())


@settings(deadline=None)
@given(st.lists(WHOLE | CUT, max_size=6), st.sets(st.sampled_from(ROWS), min_size=1))
def test_of_wanted_kinds_the_same_is_made_and_torn_lines_of_all_are_told(
    lines: list[bytes], kinds: set[type[msgspec.Struct]]
) -> None:
    wanted = RowFilter(tuple(map(kind_of, kinds)))
    block = b"\n".join(lines)
    found = list(Lines(wanted).rows(block, "here"))
    assert all(batch.schema == wanted.schema for batch in found)
    everything = pa.Table.from_batches(Lines(RowFilter()).rows(block, "here"), ARROW_SCHEMA)
    of_kinds = [row for row in everything.to_pylist() if row[KIND] in (TORN, *wanted.kinds)]
    assert rows(found) == rows([pa.RecordBatch.from_pylist(of_kinds, ARROW_SCHEMA)])


def test_rows_have_the_columns_of_the_wanted_kinds_and_errors() -> None:
    names = RowFilter((kind_of(RackRow), kind_of(GaugeRow))).schema.names
    assert set(names) == {*columns_of(GaugeRow), *columns_of(RackRow), "error"}
    assert names == [name for name in ARROW_SCHEMA.names if name in names]
    assert RowFilter().schema == ARROW_SCHEMA
    assert RowFilter(unknown=True).schema.names == [*ARROW_SCHEMA.names, UNKNOWN]


def test_of_their_columns_only_the_wanted_ones_the_kind_the_time_and_errors() -> None:
    assert RowFilter(columns=("topic", "nothing")).schema.names == [KIND, "time_us", "topic", "error"]
    wanted = RowFilter((kind_of(GaugeRow), kind_of(BatchRow)), ("pool_waiters", "topic"))
    lines = json_lines([make.batch_row(topic="a"), make.gauge_row(pool_waiters=2), make.rack_row(topic="b")])
    found = pa.Table.from_batches(Lines(wanted).rows(lines + b'{"kind":"batch"}', "here"), wanted.schema)
    rows = found.select([KIND, "topic", "pool_waiters"]).sort_by(KIND).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(TORN, None, None), ("batch", "a", None), ("gauge", None, 2)]


def test_a_kind_that_is_not_known_is_a_row_unless_others_are_wanted() -> None:
    line = b'{"kind":"moonphase","time_us":1}'
    (batch,) = Lines(RowFilter()).rows(line, "here")
    assert batch.to_pylist()[0][KIND] == "moonphase"
    assert not rows(Lines(RowFilter((kind_of(BatchRow),))).rows(line, "here"))


def test_files_are_told_by_their_paths() -> None:
    lines = json_lines([make.batch_row(), make.gauge_row()])
    files = pa.RecordBatch.from_pydict(
        {
            "path": ["whole", "torn", "foreign"],
            "content": [zstandard.compress(lines), zstandard.compress(lines[:-9]), b"x"],
        }
    )
    found = pa.Table.from_batches(decode(RowFilter((kind_of(GaugeRow),)), [files])).to_pylist()
    assert [row[KIND] for row in found] == ["gauge", TORN, TORN]
    assert found[1]["error"] == "torn: a torn line"
    assert found[2]["error"].startswith("foreign: ")


def test_wherever_a_file_is_cut_it_is_told_and_its_lines_are_kept() -> None:
    first, second = (json_lines([make.batch_row(topic=topic)] * 3) for topic in "ab")
    frame = zstandard.compress(first)
    whole = frame + zstandard.compress(second)
    for end in range(len(whole)):
        files = pa.RecordBatch.from_pydict({"path": ["f"], "content": pa.array([whole[:end]], pa.binary())})
        found = pa.Table.from_batches(decode(RowFilter(), [files])).to_pylist()
        told = [] if end == len(frame) else ["f: the file is cut off"]
        assert [row["error"] for row in found if row[KIND] == TORN] == told
        assert [row["topic"] for row in found if row[KIND] == "batch"] == ["a"] * (3 if end >= len(frame) else 0)


def test_a_file_of_many_blocks_and_frames() -> None:
    lines = json_lines([make.batch_row(partition=number, load=number * 7919) for number in range(12_000)])
    cuts = [0, 1_000_000, 1_000_001, 3_000_000, len(lines)]
    frames = b"".join(zstandard.compress(lines[begin:end]) for begin, end in itertools.pairwise(cuts))
    files = pa.RecordBatch.from_pydict({"path": ["f"], "content": [frames * 2]})
    found = pa.Table.from_batches(decode(RowFilter((kind_of(BatchRow),)), [files]))
    assert found["partition"].to_pylist() == [*range(12_000)] * 2


def test_records_are_lines_and_tombstones_are_nothing() -> None:
    records = pa.RecordBatch.from_pydict(
        {"value": [json_lines([make.batch_row()]).strip(), None, b"", json_lines([make.batch_row()] * 2).strip()]}
    )
    (batch,) = decode(RowFilter(), [records])
    assert batch.num_rows == 3


def test_rows_for_folders_come_topic_by_topic_with_their_day() -> None:
    topics = ["b", "a", "c", "a", "b"]
    batches = [make.batch_row(topic=topic, partition=number) for number, topic in enumerate(topics)]
    lines = (
        json_lines([batches[0], make.gauge_row(), *batches[1:]]) + b'{"kind":"later","time_us":0,"topic":"a/b"}\ntorn'
    )
    found = [row for batch in Lines(RowFilter(folders=True)).rows(lines, "here") for row in batch.to_pylist()]
    in_order = [("b", 0), ("b", 4), ("a", 1), ("a", 3), ("c", 2)]
    assert [(row["topic"], row["partition"]) for row in found if row[KIND] == "batch"] == in_order
    days = {(row[KIND], row["topic"], row[DAY]) for row in found if row[KIND] != "batch"}
    assert days == {("gauge", None, "2026-11-18"), ("later", "a?b?", "1970-01-01"), (TORN, None, None)}
