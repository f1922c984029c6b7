"""The journal as a DataFrame, wherever it is: files as the proxy writes them, a topic, or what `compact` made of them.

In: a JournalPlace and a Span. Out: rows of all kinds in the columns of schema.SPARK_SCHEMA, batch or stream;
`of_kind` picks one kind and its columns. Wrong: CannotRun, where there is no journal or its columns are others'.

What cannot be read costs that line, or that file, and is not kept quiet: it becomes a row of kind TORN (`error` says
where) that `torn` counts and of_kind leaves out. A row that lacks what its kind must have is torn, too; columns that
are not known are ignored, and those that came later are null in older rows.
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
from forebay_pipeline.journal import brokers
from forebay_pipeline.journal.schema import ARROW_SCHEMA, KIND, SPARK_SCHEMA, columns_of, kind_of
from forebay_policies.journal_rows import FILE_SUFFIX, ROWS

TORN: Final = "_torn"
_FILE: Final = "path string, modificationTime timestamp, length long, content binary"
_HOUR_US: Final = 3_600_000_000
_BLOCK: Final = 4 << 20
"""Bytes of lines that are decoded at once: some 15,000 rows."""

_REQUIRED: Final = {
    kind_of(row): [field.encode_name for field in msgspec.structs.fields(row) if field.required] for row in ROWS
}


class Span(NamedTuple):
    """[first, last) in microseconds since 1970; None: without an end."""

    first: int | None = None
    last: int | None = None

    @property
    def holds(self) -> Column:
        """Whether a row is of the span."""
        within = F.lit(True)
        if self.first is not None:
            within &= F.col("time_us") >= self.first
        if self.last is not None:
            within &= F.col("time_us") < self.last
        return within

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows of the span, and what could not be read: that has no time."""
        return rows.where(self.holds | (F.col(KIND) == TORN))


ALL_TIME: Final = Span()


class JournalPlace(NamedTuple):
    """A folder (the proxy's `journal.dir`, or the output of `compact`), or a topic."""

    folder: str | None = None
    topic: str | None = None
    bootstrap_servers: str | None = None

    @property
    def in_kafka(self) -> bool:
        return self.topic is not None

    def __str__(self) -> str:
        return self.folder or f"topic {self.topic} at {self.bootstrap_servers}"


def read_rows(spark: SparkSession, place: JournalPlace, span: Span = ALL_TIME) -> DataFrame:
    """All rows of the span, once; of files that cannot be read those of its hours."""
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
    spark: SparkSession, place: JournalPlace, files_a_trigger: int = 64, skip_expired: bool = False
) -> DataFrame:
    """The same as a stream of what is new. `skip_expired`: what a topic lost before it was read is no reason to end."""
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
    """The rows of one kind, with its columns only."""
    return rows.where(F.col(KIND) == kind_of(row)).select(columns_of(row))


def torn(rows: DataFrame) -> DataFrame:
    """What could not be read: a row with `error` for each line or file."""
    return rows.where(F.col(KIND) == TORN).select("error")


def _checked(folder: str | None) -> Path:
    path = Path(folder or "")
    if not path.is_dir():
        raise CannotRun(f"There is no journal in {folder}: no such folder.")
    if not any(path.glob("dt=*")) and not any(path.glob(f"{KIND}=*")):
        raise CannotRun(f"There is no journal in {folder}: it has no closed files yet (dt=…/hour=…).")
    return path


def _may_hold(hour: Path, span: Span) -> bool:
    """Whether files that were begun in that hour may have rows of the span: a row is written when its batch or request
    is over, and then waits for the disk."""
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
        raise CannotRun(f"The columns {', '.join(missing)} are missing in {folder}: it was not made by `compact`.")
    # Said, not inferred: older files lack what came later.
    return spark.read.schema(SPARK_SCHEMA).parquet(folder).select(SPARK_SCHEMA.names)


def _kafka(place: JournalPlace) -> dict[str, str]:
    assert place.topic is not None
    assert place.bootstrap_servers is not None
    if place.topic not in brokers.topics(brokers.admin(place.bootstrap_servers), place.bootstrap_servers):
        raise CannotRun(f"There is no topic {place.topic} at {place.bootstrap_servers}.")
    return {
        "kafka.bootstrap.servers": place.bootstrap_servers,
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
    """Whole lines; the last one may be torn."""
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
    """JSON lines as rows; those that are not whole as torn ones."""
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
        yield _torn([f"{where}: a line without what its kind must have"] * lacking)
        table = table.filter(whole)
    yield from table.to_batches()


def _whole(table: pa.Table) -> Any:
    """Which rows have a kind, and what that kind must have. Kinds that came later than this program pass."""
    kinds = table[KIND]
    whole = pc.is_valid(kinds)
    for kind, required in _REQUIRED.items():
        of_it = pc.fill_null(pc.equal(kinds, kind), False)
        if pc.any(of_it).as_py():
            for column in required:
                whole = pc.and_(whole, pc.or_(pc.invert(of_it), pc.is_valid(table[column])))
    return whole


def _torn(errors: Iterable[str]) -> pa.RecordBatch:
    rows = [{KIND: TORN, "error": error} for error in errors]
    return pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA)
