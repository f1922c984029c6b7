"""A journal whose rows a test gives."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from forebay_pipeline.journal.source import JournalPlace, of_kind
from forebay_pipeline.journal.span import ALL_TIME, Span
from forebay_pipeline.partitions.measures import SUMMARIZED, Questions, kept_rows, summarize
from forebay_pipeline.partitions.summary import Summary
from forebay_policies.journal_rows import BatchRow, Row
from tests.pipeline.journals import journal_of
from tests.pipeline.rows import write_journal

SECOND = 1_000_000
QUESTIONS = Questions()


class Journal:
    """One in `folder`; calling it writes rows, and reads them back."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        # What other tests' commands leave behind is what a machine with more cores needs.
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        self.folder = folder
        self._spark = spark
        self._place = JournalPlace(str(folder))

    def __call__(self, *rows: Row) -> DataFrame:
        return journal_of(self._spark, self.folder, rows)

    def batches(self, *rows: Row) -> DataFrame:
        return of_kind(self(*rows), BatchRow)

    def summary(self, *rows: Row, span: Span = ALL_TIME, questions: Questions = QUESTIONS) -> Summary:
        write_journal(self.folder, rows)
        with kept_rows(self._spark, self._place, span, of_these=SUMMARIZED) as found:
            return summarize(found, self._place, span, questions)
