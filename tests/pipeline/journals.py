"""Journals on disk, read back as DataFrames."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession

from forebay_pipeline.journal.source import JournalPlace, of_kind, read_rows
from forebay_policies.journal_rows import Row
from tests.pipeline.rows import write_journal


def journal_of(spark: SparkSession, folder: Path, rows: Iterable[Row]) -> DataFrame:
    """Rows of all kinds."""
    write_journal(folder, rows)
    return read_rows(spark, JournalPlace(str(folder)))


def rows_of(spark: SparkSession, folder: Path, kind: type[msgspec.Struct], rows: Iterable[Row]) -> DataFrame:
    """The rows of one kind."""
    return of_kind(journal_of(spark, folder, rows), kind)
