"""The journal as a DataFrame, wherever it is: the proxy's files, a topic, or the output of `compact`.

In: a JournalPlace and a Span. Out: rows of all kinds in the columns of schema.SPARK_SCHEMA, or of some kinds in theirs,
as a batch or a stream; `of_kind` picks one kind and its columns. Raises CannotRun if there is no journal, or Parquet
has other columns. What cannot be read becomes torn rows (decoding.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Final, NamedTuple, Protocol

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.brokers import BrokerClient, Brokers
from forebay_pipeline.journal.columns import day_of
from forebay_pipeline.journal.decoding import RowFilter, decode
from forebay_pipeline.journal.folder import JournalFolder
from forebay_pipeline.journal.output_owner import check_place
from forebay_pipeline.journal.readable import check_files, on_hosts
from forebay_pipeline.journal.schema import DAY, KIND, REQUIRED, SPARK_SCHEMA, TORN, UNKNOWN, columns_of, kind_of
from forebay_pipeline.journal.span import ALL_TIME, HOUR_US, Span
from forebay_pipeline.journal.tables import NAMES, OTHER, PARQUET, Format, expect, tables_in
from forebay_pipeline.storage import Storage
from forebay_policies.journal_rows import FILE_SUFFIX, BatchRow, GaugeRow, ObservedRow, RackRow

_FILE: Final = "path string, modificationTime timestamp_ltz, length long, content binary"
"""As Spark has it, whatever its spark.sql.timestampType says that `timestamp` is."""

_LATER: Final = {kind_of(ObservedRow), kind_of(RackRow)}
"""Kinds that the first versions of `compact` did not know: what those wrote need not have their columns."""
_FIRST: Final = {name for kind, required in REQUIRED.items() if kind not in _LATER for name in required}
_OF_TOPICS: Final = [kind for kind, required in REQUIRED.items() if "topic" in required]
_NAMES: Final = SPARK_SCHEMA.names
_ADDED: Final = StructType([each for each in SPARK_SCHEMA if each.name == "parts" or each.name not in {*_FIRST, KIND}])
"""What a later version may have been the first to have, or have added to."""
_WITH_UNKNOWN: Final = StructType([*SPARK_SCHEMA, StructField(UNKNOWN, StringType())])

OFFSETS_A_TRIGGER: Final = 1_000_000

Kinds = Sequence[type[msgspec.Struct]]
"""Kinds of rows (journal_rows); none: all of them."""


class ReadRows(Protocol):
    """Reads a span of a journal as it was at one moment, some rows or others, as often as it is called."""

    def __call__(self, kinds: Kinds = (), columns: Sequence[str] = ()) -> DataFrame:
        """As read_rows does."""


class JournalPlace(NamedTuple):
    """Where a journal is: either `folder` (the proxy's journal.dir, or the output of `compact`), or `topic`.

    `brokers`: those of the topic; with a folder, those that the audit asks. `format`: in which `compact` wrote the
    folder, if it did.
    """

    folder: str | None = None
    topic: str | None = None
    brokers: Brokers | None = None
    format: Format = PARQUET

    @property
    def in_kafka(self) -> bool:
        """Whether reading it takes the Kafka connector."""
        return self.topic is not None

    def __str__(self) -> str:
        return self.folder or f"topic {self.topic} at {self.brokers}"


def read_rows(
    spark: SparkSession,
    place: JournalPlace,
    span: Span = ALL_TIME,
    kinds: Kinds = (),
    columns: Sequence[str] = (),
) -> DataFrame:
    """Every row of the span exactly once, and torn rows of the files around it, in SPARK_SCHEMA.

    What comes after this call is not read, however often the rows are. With `kinds`, only rows of these and torn ones,
    in the columns of these and `error`; with `columns`, of those only these, the kind, `error` and the time: others
    then cost little. Raises CannotRun if there is no journal at `place`, or it has files that may not be read.
    """
    return reader(spark, place, span)(kinds, columns)


def reader(spark: SparkSession, place: JournalPlace, span: Span = ALL_TIME, but: Collection[str] = ()) -> ReadRows:
    """Reads what there is now. The proxy's files whose names are in `but` are not read. Raises as read_rows does."""
    read = _opened(spark, place, span, but)

    def rows(kinds: Kinds = (), columns: Sequence[str] = ()) -> DataFrame:
        return read(RowFilter(_names(kinds), tuple(columns)))

    return rows


def _opened(
    spark: SparkSession, place: JournalPlace, span: Span, but: Collection[str]
) -> Callable[[RowFilter], DataFrame]:
    if place.in_kafka:
        options = {**_kafka(place), **_what_there_is(place, span)}
        records = spark.read.format("kafka").options(**options).load().select("value")
        return lambda wanted: span.of(_decoded(records, wanted))
    if place.format != PARQUET:
        tables = _tables(spark, str(place), place.format)
        return lambda wanted: _selected(_of_tables(spark, tables, span, wanted), wanted)
    folder, storage = _folder(spark, place), Storage(spark)
    if folder.format is not None:
        on_hosts(spark, storage, str(place))  # raises
        expect(str(place), folder.format, PARQUET)
        rows = _parquet(spark, str(place), span)
        return lambda wanted: _selected(rows, wanted)
    hours = list(folder.hours(span))
    if not hours:
        return lambda wanted: spark.createDataFrame([], from_arrow_schema(wanted.schema))
    source = spark.read.format("binaryFile").options(**_of_files(spark, storage, place, hours))
    files = _closed(source.load(hours))
    if but:
        files = files.where(~F.col("_metadata.file_name").isin(*but))
    contents = files.select("path", "content")
    return lambda wanted: span.of(_decoded(contents, wanted))


def closed_files(spark: SparkSession, place: JournalPlace, span: Span) -> list[str]:
    """The names of the closed files that may have rows of the span; none of a topic, nor of what `compact` wrote.

    Raises CannotRun if there is no journal at `place`.
    """
    hours = [] if place.in_kafka or place.format != PARQUET else list(_folder(spark, place).hours(span))
    if not hours:
        return []
    # By Spark, which lists many folders at once, and leaves hidden files out.
    paths = _closed(spark.read.format("binaryFile").load(hours)).select("path").collect()
    return [row.path.rpartition("/")[2] for row in paths]


def days(spark: SparkSession, place: JournalPlace) -> list[str]:
    """The days in UTC, as 2026-11-21, of which it may have rows, in order.

    By what folders and tables say; of a topic's batches and gauges the times are read. Raises CannotRun if there is no
    journal at `place`.
    """
    if place.in_kafka:
        rows = read_rows(spark, place, kinds=[BatchRow, GaugeRow])
        found = [rows.where(F.col(KIND) != TORN).select(day_of("time_us").alias(DAY))]
    elif place.format != PARQUET:
        tables = _tables(spark, str(place), place.format)
        found = [rows.select(DAY).where(F.col(DAY).isNotNull()) for name, rows in tables.items() if name != OTHER]
    else:
        folder = _folder(spark, place)
        if folder.format is not None:
            expect(str(place), folder.format, PARQUET)
        return folder.days()
    names = (row[0] for rows in found for row in rows.select(F.col(DAY).cast("string")).distinct().collect())
    return sorted(set(names))


def is_compacted(spark: SparkSession, place: JournalPlace) -> bool:
    """Whether `compact` wrote it. Raises CannotRun if there is no journal at `place`."""
    return not place.in_kafka and _folder(spark, place).format is not None


def stream_rows(
    spark: SparkSession,
    place: JournalPlace,
    files_a_trigger: int = 64,
    *,
    kinds: Kinds = (),
    columns: Sequence[str] = (),
    skip_expired: bool = False,
    unknown: bool = False,
    folders: bool = False,
    offsets_a_trigger: int = OFFSETS_A_TRIGGER,
) -> DataFrame:
    """New rows as a stream, in SPARK_SCHEMA, and with `unknown` in UNKNOWN as well; not of what `compact` wrote.

    `kinds` and `columns` are as in read_rows, `folders` as in decoding.RowFilter. At most `files_a_trigger` files, or
    `offsets_a_trigger` records of a topic, are read at once. Rows that a topic lost before they were read fail the
    query unless `skip_expired`. Raises CannotRun if there is no journal at `place`, or it has files now that may not be
    read.
    """
    wanted = RowFilter(_names(kinds), tuple(columns), unknown, folders)
    if place.in_kafka:
        options = {
            **_kafka(place),
            "subscribe": place.topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(offsets_a_trigger),
            "failOnDataLoss": str(not skip_expired),
        }
        return _decoded(spark.readStream.format("kafka").options(**options).load().select("value"), wanted)
    folder, storage = _folder(spark, place), Storage(spark)
    files = (
        spark.readStream.format("binaryFile")
        .schema(_FILE)
        .options(**_of_files(spark, storage, place, folder.hours(ALL_TIME)))
        .option("maxFilesPerTrigger", files_a_trigger)
        # Names are unique: a journal that is read from another path goes on where it was, instead of anew.
        .option("fileNameOnly", "true")
        # Files may turn up late: Spark leaves out, without a word, what is so much older than the newest; 7 days else.
        .option("maxFileAge", "365d")
        .load(f"{place}/dt=*/hour=*")
    )
    return _decoded(_closed(files).select("path", "content"), wanted)


def _of_files(spark: SparkSession, storage: Storage, place: JournalPlace, hours: Iterable[str]) -> dict[str, str]:
    """Options for reading the proxy's files in the folders `hours`. Raises CannotRun if one may not be read."""
    if on_hosts(spark, storage, str(place)):
        return {"ignoreMissingFiles": "false"}
    check_files(storage, hours)
    return {}


def _names(kinds: Kinds) -> tuple[str, ...]:
    return tuple(map(kind_of, kinds))


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
    if not check_place(Storage(spark), folder):
        _check_columns(spark, folder)
    # Not inferred: older files lack columns that were added later, and the oldest may have been deleted.
    rows = _known(span.of_days(spark.read.schema(_WITH_UNKNOWN).parquet(folder)))
    # As the name of a folder an empty topic is none.
    named = F.when(F.col(KIND).isin(_OF_TOPICS), F.coalesce("topic", F.lit(""))).otherwise(F.col("topic"))
    return rows.withColumn("topic", named)


def _check_columns(spark: SparkSession, folder: str) -> None:
    """Raises CannotRun if it has not those that `compact` writes."""
    try:
        found = spark.read.parquet(folder)
    except AnalysisException as error:
        raise CannotRun(f"There is no journal in {folder}: {error.getMessage()}") from error
    missing = sorted(_FIRST.difference(found.columns))
    if missing:
        raise CannotRun(f"{folder} was not written by `compact`: it lacks the columns {', '.join(missing)}.")


def _selected(rows: DataFrame, wanted: RowFilter) -> DataFrame:
    """The wanted ones of rows in SPARK_SCHEMA, in `wanted.schema`."""
    if wanted.kinds:
        rows = rows.where(F.col(KIND).isin(TORN, *wanted.kinds))
    return rows.select(wanted.schema.names)


def _of_tables(spark: SparkSession, tables: Mapping[str, DataFrame], span: Span, wanted: RowFilter) -> DataFrame:
    """In SPARK_SCHEMA; tables of kinds that are not wanted are not read."""
    if wanted.kinds:
        tables = {name: rows for name, rows in tables.items() if name in (OTHER, *wanted.kinds)}
    # The kind is said of a whole table, so that those of other kinds need not be read.
    each = (rows if name == OTHER else rows.withColumn(KIND, F.lit(name)) for name, rows in tables.items())
    all_of_them = [_known(_with_all_columns(span.of_days(rows))) for rows in each]
    return reduce(DataFrame.unionByName, all_of_them or [spark.createDataFrame([], SPARK_SCHEMA)])


def _tables(spark: SparkSession, folder: str, table_format: Format) -> dict[str, DataFrame]:
    tables = tables_in(spark, folder, table_format)
    found = {name: rows for name in NAMES if (rows := tables.read(name)) is not None}
    if not found:
        raise CannotRun(f"There is no journal in {folder}: it has no tables of {table_format}.")
    return found


def _with_all_columns(rows: DataFrame) -> DataFrame:
    """In _WITH_UNKNOWN, whatever columns, and fields in them, a table had when it was made."""
    types = {field.name: field.dataType.simpleString() for field in rows.schema}

    def column(field: StructField) -> Column:
        wanted = field.dataType.simpleString()
        if types.get(field.name, wanted) != wanted:
            return F.from_json(F.to_json(field.name), wanted)
        return F.col(field.name) if field.name in types else F.lit(None).cast(field.dataType)

    return rows.select(*(column(field).alias(field.name) for field in _WITH_UNKNOWN))


def _known(rows: DataFrame) -> DataFrame:
    """In SPARK_SCHEMA: what was unknown to whoever compacted the rows may be known by now."""
    known = F.from_json(UNKNOWN, _ADDED)
    return rows.select(
        *(F.coalesce(known[name], F.col(name)).alias(name) if name in _ADDED.names else name for name in _NAMES)
    )


def _kafka(place: JournalPlace) -> dict[str, str]:
    assert place.topic is not None
    assert place.brokers is not None
    BrokerClient(place.brokers).partitions(place.topic)  # Spark would wait for one that is not there
    return {
        **place.brokers.for_spark(),
        "kafka.default.api.timeout.ms": "20000",
        "kafka.request.timeout.ms": "15000",
    }


def _what_there_is(place: JournalPlace, span: Span) -> dict[str, str]:
    """Of a topic now: whoever reads it twice reads nothing then that has come since, and skips what has expired.

    A topic's records have the time at which they were sent, which is after the rows' own; they are read with an hour's
    margin, for clocks that were set back.
    """
    assert place.topic is not None
    assert place.brokers is not None
    client = BrokerClient(place.brokers)
    ends = client.ends(place.topic)
    since_ms = None if span.first is None else max(0, span.first - HOUR_US) // 1000
    begins = client.begins(place.topic, since_ms)
    first = {number: min(begins.get(number, end), end) for number, end in ends.items()}
    return {
        "assign": msgspec.json.encode({place.topic: sorted(ends)}).decode(),
        "startingOffsets": msgspec.json.encode({place.topic: first}).decode(),
        "endingOffsets": msgspec.json.encode({place.topic: ends}).decode(),
        "failOnDataLoss": "false",
    }


def _decoded(source: DataFrame, wanted: RowFilter) -> DataFrame:
    return source.mapInArrow(partial(decode, wanted), from_arrow_schema(wanted.schema))
