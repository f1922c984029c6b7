"""The journal as a DataFrame, wherever it is: the proxy's files, a topic, or the output of `compact`.

In: a JournalPlace and a Span. Out: rows of all kinds in the columns of schema.SPARK_SCHEMA, as a batch or a stream;
`of_kind` picks one kind and its columns. Raises CannotRun if there is no journal, or Parquet has other columns.

An unreadable line or file costs only itself, and is reported: it becomes a row of kind TORN whose `error` says where it
is. A row without a field that its kind requires is torn as well. Columns added later are null in older rows. Fields
that this version does not know are ignored, but `compact` keeps them (UNKNOWN), for readers that do.
"""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import zstandard
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.brokers import Asked, Brokers
from forebay_pipeline.journal.folder import JournalFolder
from forebay_pipeline.journal.schema import ARROW_SCHEMA, DAY, KIND, SPARK_SCHEMA, columns_of, kind_of
from forebay_pipeline.storage import Storage
from forebay_policies.journal_rows import FILE_SUFFIX, ROWS, ObservedRow, RackRow

TORN: Final = "_torn"
UNKNOWN: Final = "_unknown"
"""In the output of `compact`: a JSON object of the fields that it did not know, null if there are none."""
_DAY_US: Final = 86_400_000_000
_FILE: Final = "path string, modificationTime timestamp, length long, content binary"
_HOUR_US: Final = 3_600_000_000
_BLOCK: Final = 4 << 20
"""Bytes of lines decoded at once: some 15,000 rows."""

_REQUIRED: Final = {
    kind_of(row): [field.encode_name for field in msgspec.structs.fields(row) if field.required] for row in ROWS
}
_LATER: Final = {kind_of(ObservedRow), kind_of(RackRow)}
"""Kinds that the first versions of `compact` did not know: what those wrote need not have their columns."""
_FIRST: Final = {name for kind, required in _REQUIRED.items() if kind not in _LATER for name in required}
_NAMES: Final = SPARK_SCHEMA.names
_ADDED: Final = StructType([each for each in SPARK_SCHEMA if each.name == "parts" or each.name not in _FIRST])
"""What a later version may have been the first to have, or have added to."""
_WITH_UNKNOWN: Final = StructType([*SPARK_SCHEMA, StructField(UNKNOWN, StringType())])
_OF_STRUCTS: Final = {
    field.name: {each.name for each in field.type.value_type}
    for field in ARROW_SCHEMA
    if pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type)
}
"""Columns of lists of structs, with these structs' fields."""

DecodeLines = Callable[[bytes, str], Iterator[pa.RecordBatch]]
"""decode_lines, or lines_with_unknown."""


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

    @property
    def days(self) -> Column:
        """Whether DAY is one that the span touches."""
        within = F.expr("true")
        if self.first is not None:
            within &= F.col(DAY) >= _day(self.first)
        if self.last is not None:
            within &= F.col(DAY) <= _day(self.last - 1)
        return within

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows of the span, and all torn ones: those have no time."""
        return rows.where(self.holds | (F.col(KIND) == TORN))

    def of_days(self, rows: DataFrame) -> DataFrame:
        """The same of rows that have DAY, apart, so that either half is pruned by what its files and folders tell."""
        if self == ALL_TIME:
            return rows
        is_torn = F.col(KIND) == TORN
        return rows.where(~is_torn & self.days & self.holds).unionByName(rows.where(is_torn))


def day_of(time_us: str) -> Column:
    """The date in UTC, whatever time zone the session has, of a column of microseconds since 1970."""
    return F.expr(f"date_add(DATE'1970-01-01', int({time_us} div {_DAY_US}))")


def _day(time_us: int) -> str:
    return f"{datetime.datetime.fromtimestamp(time_us // 1_000_000, datetime.UTC):%Y-%m-%d}"


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


def read_rows(spark: SparkSession, place: JournalPlace, span: Span = ALL_TIME, but: Collection[str] = ()) -> DataFrame:
    """Every row of the span exactly once, and torn rows of the files around it, in SPARK_SCHEMA.

    The proxy's files whose names are in `but` are not read. Raises CannotRun if there is no journal at `place`.
    """
    if place.in_kafka:
        records = spark.read.format("kafka").options(**_kafka(place), **_beginning(span)).load()
        return span.of(_decoded(records.select("value")))
    folder = _folder(spark, place)
    if folder.compacted:
        return _parquet(spark, str(place), span)
    hours = folder.hours(span)
    if not hours:
        return spark.createDataFrame([], SPARK_SCHEMA)
    files = _closed(spark.read.format("binaryFile").load(hours))
    if but:
        files = files.where(~F.col("_metadata.file_name").isin(*but))
    return span.of(_decoded(files.select("path", "content")))


def closed_files(spark: SparkSession, place: JournalPlace, span: Span) -> list[str]:
    """The names of the closed files that may have rows of the span; none of a topic, nor of what `compact` wrote.

    Raises CannotRun if there is no journal at `place`.
    """
    hours = [] if place.in_kafka else _folder(spark, place).hours(span)
    if not hours:
        return []
    # By Spark, which lists many folders at once, and leaves hidden files out.
    paths = _closed(spark.read.format("binaryFile").load(hours)).select("path").collect()
    return [row.path.rpartition("/")[2] for row in paths]


def is_compacted(spark: SparkSession, place: JournalPlace) -> bool:
    """Whether `compact` wrote it. Raises CannotRun if there is no journal at `place`."""
    return not place.in_kafka and _folder(spark, place).compacted


def stream_rows(
    spark: SparkSession,
    place: JournalPlace,
    files_a_trigger: int = 64,
    *,
    skip_expired: bool = False,
    unknown: bool = False,
) -> DataFrame:
    """New rows as a stream, in SPARK_SCHEMA, and with `unknown` in UNKNOWN as well; not of what `compact` wrote.

    At most `files_a_trigger` files are read at once. Rows that a topic lost before they were read fail the query unless
    `skip_expired`. Raises CannotRun if there is no journal at `place`.
    """
    decode = _with_unknown if unknown else _decoded
    if place.in_kafka:
        options = {
            **_kafka(place),
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "1000000",
            "failOnDataLoss": str(not skip_expired),
        }
        return decode(spark.readStream.format("kafka").options(**options).load().select("value"))
    _folder(spark, place)
    files = (
        spark.readStream.format("binaryFile")
        .schema(_FILE)
        .option("maxFilesPerTrigger", files_a_trigger)
        .load(f"{place}/dt=*/hour=*")
    )
    return decode(_closed(files).select("path", "content"))


def of_kind(rows: DataFrame, row: type[msgspec.Struct]) -> DataFrame:
    """The rows of one kind, with only its columns (schema.columns_of)."""
    return rows.where(F.col(KIND) == kind_of(row)).select(columns_of(row))


def torn(rows: DataFrame) -> DataFrame:
    """One row for each unreadable line or file, with one column: `error`."""
    return rows.where(F.col(KIND) == TORN).select("error")


def _folder(spark: SparkSession, place: JournalPlace) -> JournalFolder:
    assert place.folder is not None
    return JournalFolder(Storage(spark), place.folder)


def _closed(files: DataFrame) -> DataFrame:
    return files.where(F.col("path").endswith(FILE_SUFFIX))


def _parquet(spark: SparkSession, folder: str, span: Span) -> DataFrame:
    try:
        found = spark.read.parquet(folder)
    except AnalysisException as error:
        raise CannotRun(f"There is no journal in {folder}: {error.getMessage()}") from error
    missing = sorted(_FIRST.difference(found.columns))
    if missing:
        raise CannotRun(f"{folder} was not written by `compact`: it lacks the columns {', '.join(missing)}.")
    # Not inferred: older files lack columns that were added later.
    rows = span.of_days(spark.read.schema(_WITH_UNKNOWN).parquet(folder))
    # What was unknown to whoever compacted it may be known by now.
    known = F.from_json(UNKNOWN, _ADDED)
    return rows.select(
        *(F.coalesce(known[name], F.col(name)).alias(name) if name in _ADDED.names else name for name in _NAMES)
    )


def _kafka(place: JournalPlace) -> dict[str, str]:
    assert place.topic is not None
    assert place.brokers is not None
    if place.topic not in Asked(place.brokers).topics():
        raise CannotRun(f"There is no topic {place.topic} at {place.brokers}.")
    return {
        **place.brokers.for_spark(),
        "subscribe": place.topic,
        "kafka.default.api.timeout.ms": "20000",
        "kafka.request.timeout.ms": "15000",
    }


def _beginning(span: Span) -> dict[str, str]:
    """Where to begin to read a topic: its records have the time at which they were sent, which is after the rows' own.

    With an hour's margin, for clocks that were set back.
    """
    if span.first is None:
        return {"startingOffsets": "earliest"}
    return {
        "startingTimestamp": str(max(0, span.first - _HOUR_US) // 1000),
        "startingOffsetsByTimestampStrategy": "latest",
    }


def _decoded(source: DataFrame) -> DataFrame:
    return source.mapInArrow(partial(_decode, decode_lines), SPARK_SCHEMA)


def _with_unknown(source: DataFrame) -> DataFrame:
    return source.mapInArrow(_decode_with_unknown, _WITH_UNKNOWN)


def _decode_with_unknown(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in _decode(lines_with_unknown, batches):
        if UNKNOWN in batch.schema.names:
            yield batch
        else:
            yield batch.append_column(UNKNOWN, pa.nulls(batch.num_rows, pa.string()))


def _decode(lines: DecodeLines, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from (_decode_files if "content" in batch.schema.names else _decode_values)(lines, batch)


def _decode_files(lines: DecodeLines, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for path, content in zip(batch["path"].to_pylist(), batch["content"], strict=True):
        try:
            for block in _blocks(content.as_buffer()):
                yield from lines(block, path)
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


def _decode_values(lines: DecodeLines, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    values = [value for value in batch["value"].to_pylist() if value]
    if values:
        yield from lines(b"\n".join(values), "a record of the journal's topic")


def lines_with_unknown(lines: bytes, where: str) -> Iterator[pa.RecordBatch]:
    """As `decode_lines`, and in UNKNOWN the fields that ARROW_SCHEMA does not have; without it if there are none."""
    try:
        yield from list(_parsed(lines, where, _STRICT))
    except pa.ArrowInvalid:
        yield from decode_lines(b"\n".join(map(_with_its_unknown, lines.splitlines())), where, _PARSE_UNKNOWN)


def _with_its_unknown(line: bytes) -> bytes:
    """The line with its unknown fields in one more; a torn line as it is."""
    try:
        fields = _fields.decode(line)
    except msgspec.DecodeError:
        return line
    unknown = {name: value for name, value in fields.items() if name not in _NAMES or _has_unknown(name, value)}
    if not unknown:
        return line
    return msgspec.json.encode({**fields, UNKNOWN: msgspec.json.encode(unknown).decode()})


def _has_unknown(name: str, value: msgspec.Raw) -> bool:
    """Whether one of the structs in the list `value` has a field that the schema does not know."""
    if name not in _OF_STRUCTS:
        return False
    try:
        structs = _structs.decode(value)
    except msgspec.DecodeError:
        return False
    return any(not each.keys() <= _OF_STRUCTS[name] for each in structs)


def decode_lines(lines: bytes, where: str, parse: pyarrow.json.ParseOptions | None = None) -> Iterator[pa.RecordBatch]:
    """JSON lines as rows in ARROW_SCHEMA, unreadable ones as torn rows; `where` goes into their `error`."""
    parse = parse or _PARSE
    try:
        yield from _parsed(lines, where, parse)
    except pa.ArrowInvalid:
        good, bad = [], 0
        for line in lines.splitlines():
            if _is_row(line):
                good.append(line)
            else:
                bad += bool(line)
        yield _torn([f"{where}: a torn line"] * bad)
        if good:
            yield from _parsed(b"\n".join(good), where, parse)


def _is_row(line: bytes) -> bool:
    try:
        _json.decode(line)
        pyarrow.json.read_json(io.BytesIO(line), parse_options=_PARSE)
    except (msgspec.DecodeError, pa.ArrowInvalid):
        return False
    return True


_json: Final = msgspec.json.Decoder(dict[str, Any])
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_structs: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_PARSE: Final = pyarrow.json.ParseOptions(explicit_schema=ARROW_SCHEMA, unexpected_field_behavior="ignore")
_STRICT: Final = pyarrow.json.ParseOptions(explicit_schema=ARROW_SCHEMA, unexpected_field_behavior="error")
_PARSE_UNKNOWN: Final = pyarrow.json.ParseOptions(
    explicit_schema=ARROW_SCHEMA.append(pa.field(UNKNOWN, pa.string())), unexpected_field_behavior="ignore"
)


def _parsed(lines: bytes, where: str, parse: pyarrow.json.ParseOptions) -> Iterator[pa.RecordBatch]:
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    table = pyarrow.json.read_json(io.BytesIO(lines), read_options=options, parse_options=parse)
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
