"""What Spark read of a journal, files or records of a topic, as rows: decompressed, cut into lines, decoded.

An unreadable line or file costs only itself, and is reported: it becomes a row of kind TORN whose `error` says where it
is. A row without a field that its kind requires is torn as well. Columns added later are null in older rows. Fields
that this version does not know are ignored, or kept (UNKNOWN).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from forebay_pipeline.journal.odd_lines import odd_rows, torn_rows
from forebay_pipeline.journal.parquet_folders import in_folders
from forebay_pipeline.journal.plain_lines import are_whole, by_kind, completed, plain_rows
from forebay_pipeline.journal.schema import ARROW_SCHEMA, DAY, KIND, TORN, UNKNOWN, columns_of, kind_of
from forebay_policies.journal_rows import ROWS

_BLOCK: Final = 4 << 20
"""Bytes of lines decoded at once: some 15,000 rows."""
_PIECE: Final = 64 << 10
"""Compressed bytes taken at once."""
_ALWAYS: Final = (KIND, "error", "time_us")


class RowFilter(NamedTuple):
    """What is wanted of the lines: rows of these kinds, all if there are none; of their columns these, all if there are
    none; and with `unknown` the column UNKNOWN.

    Torn rows are always wanted, and the columns _ALWAYS. Lines of kinds that are not are only checked for being whole.
    With `folders` each block comes as parquet_folders.py has it.
    """

    kinds: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    unknown: bool = False
    folders: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, in the order of ARROW_SCHEMA; UNKNOWN and DAY."""
        names = set(ARROW_SCHEMA.names)
        if self.kinds:
            names &= {*_ALWAYS, *columns_of(*(row for row in ROWS if kind_of(row) in self.kinds))}
        if self.columns:
            names &= {*_ALWAYS, *self.columns}
        fields = [field for field in ARROW_SCHEMA if field.name in names]
        if self.unknown:
            fields.append(pa.field(UNKNOWN, pa.string()))
        if self.folders:
            fields.append(pa.field(DAY, pa.string()))
        return pa.schema(fields)


def decode(wanted: RowFilter, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows in `wanted.schema`, from the columns `path` and `content` of files, or `value` of records."""
    lines = Lines(wanted)
    for batch in batches:
        yield from (_of_files if "content" in batch.schema.names else _of_records)(lines, batch)


class Lines:
    """Makes rows of lines."""

    def __init__(self, wanted: RowFilter) -> None:
        self._wanted = wanted
        self._schema = wanted.schema

    def rows(self, lines: bytes, where: str) -> Iterator[pa.RecordBatch]:
        """The rows of whole lines; `where` goes into the `error` of torn ones."""
        kinds, odd = by_kind(lines)
        for kind, of_kind in kinds.items():
            if self._wanted.kinds and kind not in self._wanted.kinds:
                if not are_whole(of_kind):
                    odd += of_kind
            elif (table := plain_rows(kind, of_kind)) is not None:
                yield from completed(self._placed(table), self._schema).to_batches()
            else:
                odd += of_kind
        if odd:
            yield from chain.from_iterable(map(self._fitting, odd_rows(odd, where, unknown=self._wanted.unknown)))

    def torn(self, error: str) -> pa.RecordBatch:
        """One torn row."""
        (batch,) = self._fitting(torn_rows(error))
        return batch

    def _fitting(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Of rows in ARROW_SCHEMA those that are wanted, and the columns."""
        if self._wanted.kinds:
            batch = batch.filter(pc.is_in(batch[KIND], pa.array([TORN, *self._wanted.kinds])))
        if self._wanted.unknown and UNKNOWN not in batch.schema.names:
            batch = batch.append_column(UNKNOWN, pa.nulls(batch.num_rows, pa.string()))
        table = self._placed(pa.Table.from_batches([batch]))
        return list(table.select(self._schema.names).to_batches())

    def _placed(self, rows: pa.Table) -> pa.Table:
        return in_folders(rows) if self._wanted.folders else rows


def _of_files(lines: Lines, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for path, content in zip(batch["path"].to_pylist(), batch["content"], strict=True):
        try:
            for block in _blocks(content.as_buffer()):
                yield from lines.rows(block, path)
        except zstandard.ZstdError as error:
            yield lines.torn(f"{path}: {error}")


def _blocks(compressed: pa.Buffer) -> Iterator[bytes]:
    """Blocks of whole lines; the last line may be torn. Behind them ZstdError if the file ends within a frame."""
    lines = b""
    frame = zstandard.ZstdDecompressor().decompressobj()
    for start in range(0, compressed.size, _PIECE):
        piece = compressed[start : start + _PIECE].to_pybytes()
        while piece:
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            lines += frame.decompress(piece)
            piece = frame.unused_data
        if len(lines) >= _BLOCK:
            whole, newline, lines = lines.rpartition(b"\n")
            if newline:
                yield whole + newline
    if lines:
        yield lines
    if not frame.eof:
        raise zstandard.ZstdError("the file is cut off")


def _of_records(lines: Lines, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    values = [value for value in batch["value"].to_pylist() if value]
    if values:
        yield from lines.rows(b"\n".join(values), "a record of the journal's topic")
