"""The journal as a DataFrame, wherever it is: the proxy's files, a topic, or the output of `compact`.

In: a JournalPlace and a Span. Out: rows of all kinds in the columns of schema.SPARK_SCHEMA, as a batch or a stream;
`of_kind` picks one kind and its columns. Raises CannotRun if there is no journal, or Parquet has other columns.

An unreadable line or file costs only itself, and is reported: it becomes a row of kind TORN whose `error` says where it
is. A row without a field that its kind requires is torn as well. Unknown columns are ignored; columns added later are
null in older rows.
"""

from __future__ import annotations

import datetime
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import zstandard
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.brokers import Asked, Brokers
from forebay_pipeline.journal.schema import ARROW_SCHEMA, KIND, SPARK_SCHEMA, columns_of, kind_of
from forebay_policies.journal_rows import FILE_SUFFIX, ROWS

TORN: Final = "_torn"
_FILE: Final = "path string, modificationTime timestamp, length long, content binary"
_HOUR_US: Final = 3_600_000_000
_BLOCK: Final = 4 << 20
"""Bytes of lines decoded at once: some 15,000 rows."""

_REQUIRED: Final = {
    kind_of(row): [field.encode_name for field in msgspec.structs.fields(row) if field.required] for row in ROWS
}


class Span(NamedTuple):
    """[first, last) in microseconds since 1970; None leaves that end open."""

    first: int | None = None
    last: int | None = None

    @property
    def holds(self) -> Column:
        """Whether a row's `time_us` is within the span."""
        within = F.expr("true")
        if self.first is not None:
            within &= F.col("time_us") >= self.first
        if self.last is not None:
            within &= F.col("time_us") < self.last
        return within

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows of the span, and all torn ones: those have no time."""
        return rows.where(self.holds | (F.col(KIND) == TORN))


ALL_TIME: Final = Span()


class JournalPlace(NamedTuple):
    """Where a journal is: either `folder` (the proxy's journal.dir, or the output of `compact`), or `topic`.

    `brokers`: those of the topic; with a folder, those that the audit asks.
    """

    folder: str | None = None
    topic: str | None = None
    brokers: Brokers | None = None

    @property
    def in_kafka(self) -> bool:
        """Whether reading it takes the Kafka connector."""
        return self.topic is not None

    def __str__(self) -> str:
        return self.folder or f"topic {self.topic} at {self.brokers}"


def read_rows(spark: SparkSession, place: JournalPlace, span: Span = ALL_TIME) -> DataFrame:
    """Every row of the span exactly once, and torn rows of the files around it, in SPARK_SCHEMA.

    Raises CannotRun if there is no journal at `place`.
    """
    if place.in_kafka:
        records = spark.read.format("kafka").options(**_kafka(place)).load()
        return span.of(_decoded(records.select("value")))
    folder = _checked(place.folder)
    if (folder / "_spark_metadata").is_dir() or any(folder.glob(f"{KIND}=*")):
        return span.of(_parquet(spark, str(folder)))
    hours = [str(hour) for hour in sorted(folder.glob("dt=*/hour=*")) if _may_hold(hour, span)]
    if not hours:
        return spark.createDataFrame([], SPARK_SCHEMA)
    files = spark.read.format("binaryFile").load(hours)
    return span.of(_decoded(files.where(F.col("path").endswith(FILE_SUFFIX)).select("path", "content")))


def stream_rows(
    spark: SparkSession, place: JournalPlace, files_a_trigger: int = 64, *, skip_expired: bool = False
) -> DataFrame:
    """New rows as a stream, in SPARK_SCHEMA; not of what `compact` wrote.

    At most `files_a_trigger` files are read at once. Rows that a topic lost before they were read fail the query unless
    `skip_expired`. Raises CannotRun if there is no journal at `place`.
    """
    if place.in_kafka:
        options = {**_kafka(place), "maxOffsetsPerTrigger": "1000000", "failOnDataLoss": str(not skip_expired)}
        return _decoded(spark.readStream.format("kafka").options(**options).load().select("value"))
    folder = _checked(place.folder)
    files = (
        spark.readStream.format("binaryFile")
        .schema(_FILE)
        .option("maxFilesPerTrigger", files_a_trigger)
        .load(f"{folder}/dt=*/hour=*")
    )
    return _decoded(files.where(F.col("path").endswith(FILE_SUFFIX)).select("path", "content"))


def of_kind(rows: DataFrame, row: type[msgspec.Struct]) -> DataFrame:
    """The rows of one kind, with only its columns (schema.columns_of)."""
    return rows.where(F.col(KIND) == kind_of(row)).select(columns_of(row))


def torn(rows: DataFrame) -> DataFrame:
    """One row for each unreadable line or file, with one column: `error`."""
    return rows.where(F.col(KIND) == TORN).select("error")


def _checked(folder: str | None) -> Path:
    path = Path(folder or "")
    if not path.is_dir():
        raise CannotRun(f"There is no journal in {folder}: no such folder.")
    if not any(path.glob("dt=*")) and not any(path.glob(f"{KIND}=*")):
        raise CannotRun(f"There is no journal in {folder}: it has no closed files yet (dt=…/hour=…).")
    return path


def _may_hold(hour: Path, span: Span) -> bool:
    """Whether files begun in that hour may have rows of the span.

    With an hour's margin on one side, two on the other: a file spans some minutes, and a row may wait for the disk.
    """
    try:
        began = datetime.datetime.fromisoformat(f"{hour.parent.name[3:]}T{hour.name[5:]}:00+00:00")
    except ValueError:
        return False
    us = int(began.timestamp()) * 1_000_000
    return (span.last is None or us < span.last + _HOUR_US) and (span.first is None or us >= span.first - 2 * _HOUR_US)


def _parquet(spark: SparkSession, folder: str) -> DataFrame:
    try:
        found = spark.read.parquet(folder)
    except AnalysisException as error:
        raise CannotRun(f"There is no journal in {folder}: {error.getMessage()}") from error
    missing = sorted({name for required in _REQUIRED.values() for name in required}.difference(found.columns))
    if missing:
        raise CannotRun(f"{folder} was not written by `compact`: it lacks the columns {', '.join(missing)}.")
    # Not inferred: older files lack columns that were added later.
    return spark.read.schema(SPARK_SCHEMA).parquet(folder).select(SPARK_SCHEMA.names)


def _kafka(place: JournalPlace) -> dict[str, str]:
    assert place.topic is not None
    assert place.brokers is not None
    if place.topic not in Asked(place.brokers).topics():
        raise CannotRun(f"There is no topic {place.topic} at {place.brokers}.")
    return {
        **place.brokers.for_spark(),
        "subscribe": place.topic,
        "startingOffsets": "earliest",
        "kafka.default.api.timeout.ms": "20000",
        "kafka.request.timeout.ms": "15000",
    }


def _decoded(source: DataFrame) -> DataFrame:
    decode = _decode_files if "content" in source.columns else _decode_values
    return source.mapInArrow(decode, SPARK_SCHEMA)


def _decode_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path, content in zip(batch["path"].to_pylist(), batch["content"], strict=True):
            try:
                for block in _blocks(content.as_buffer()):
                    yield from decode_lines(block, path)
            except zstandard.ZstdError as error:
                yield _torn([f"{path}: {error}"])


def _blocks(compressed: pa.Buffer) -> Iterator[bytes]:
    """Blocks of whole lines; the last line may be torn."""
    rest = b""
    reader = zstandard.ZstdDecompressor().stream_reader(compressed, read_across_frames=True)
    while piece := reader.read(_BLOCK):
        whole, newline, rest_of_piece = piece.rpartition(b"\n")
        if newline:
            yield rest + whole + newline
            rest = rest_of_piece
        else:
            rest += piece
    if rest:
        yield rest


def _decode_values(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        values = [value for value in batch["value"].to_pylist() if value]
        if values:
            yield from decode_lines(b"\n".join(values), "a record of the journal's topic")


def decode_lines(lines: bytes, where: str) -> Iterator[pa.RecordBatch]:
    """JSON lines as rows in ARROW_SCHEMA, unreadable ones as torn rows; `where` goes into their `error`."""
    try:
        yield from _parsed(lines, where)
    except pa.ArrowInvalid:
        good, bad = [], 0
        for line in lines.splitlines():
            if _is_row(line):
                good.append(line)
            else:
                bad += bool(line)
        yield _torn([f"{where}: a torn line"] * bad)
        if good:
            yield from _parsed(b"\n".join(good), where)


def _is_row(line: bytes) -> bool:
    try:
        _json.decode(line)
        pyarrow.json.read_json(io.BytesIO(line), parse_options=_PARSE)
    except (msgspec.DecodeError, pa.ArrowInvalid):
        return False
    return True


_json: Final = msgspec.json.Decoder(dict[str, Any])
_PARSE: Final = pyarrow.json.ParseOptions(explicit_schema=ARROW_SCHEMA, unexpected_field_behavior="ignore")


def _parsed(lines: bytes, where: str) -> Iterator[pa.RecordBatch]:
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    table = pyarrow.json.read_json(io.BytesIO(lines), read_options=options, parse_options=_PARSE)
    whole = _whole(table)
    lacking = pc.sum(pc.invert(whole)).as_py() or 0
    if lacking:
        yield _torn([f"{where}: a line without a required field"] * lacking)
        table = table.filter(whole)
    yield from table.to_batches()


def _whole(table: pa.Table) -> Any:
    """A mask of the rows that have a kind and all its required fields. Kinds that this version does not know pass."""
    kinds = table[KIND]
    whole = pc.is_valid(kinds)
    for kind, required in _REQUIRED.items():
        of_it = pc.fill_null(pc.equal(kinds, kind), fill_value=False)
        if pc.any(of_it).as_py():
            for column in required:
                whole = pc.and_(whole, pc.or_(pc.invert(of_it), pc.is_valid(table[column])))
    return whole


def _torn(errors: Iterable[str]) -> pa.RecordBatch:
    rows = [{KIND: TORN, "error": error} for error in errors]
    return pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA)
