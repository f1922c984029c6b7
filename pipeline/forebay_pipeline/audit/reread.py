"""What an audit that carries on from an earlier one has to read of the journal again.

In: the journal's place, an AuditScope, and the closed files there. Out: the span to read, and the files to leave out.

Rows of the last minutes are read again, because they tell of their neighbours, but no file that was over before them:
the folder of an hour has an hour's files, and an audit may be due every ten minutes. Older rows only turn up in files
that appear late, after a crash, say: while every file begun earlier was there for the last audit, nothing older is
read. If one was not, everything is, of the last day, since its neighbours are needed too. The records of a topic come
in the order of their sending, so nothing turns up late there.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pyspark.sql import SparkSession

from forebay_pipeline.audit.ledger import AROUND_US, AuditScope
from forebay_pipeline.journal.folder import began_before, over_at
from forebay_pipeline.journal.source import JournalPlace, closed_files
from forebay_pipeline.journal.span import Span


class Reading(NamedTuple):
    """What to read."""

    span: Span
    files: list[str]
    """The closed files that may have rows to be audited, for the next audit to know; none without a state."""
    but: Collection[str] = ()
    """Those that need not be read."""


def reading(spark: SparkSession, place: JournalPlace, scope: AuditScope) -> Reading:
    """Raises CannotRun if there is no journal."""
    around, before = scope.around, scope.before
    names = closed_files(spark, place, around) if scope.state is not None else []
    if before is None or before.newest_us is None:
        return Reading(around, names)
    first_us = before.newest_us - AROUND_US
    recent = Span(first_us, around.last)
    if place.in_kafka:
        return Reading(recent, names)
    around_them, known = closed_files(spark, place, recent), set(before.files)
    unknown = set(names) - known
    if not known or unknown.difference(around_them) or began_before(unknown, first_us):
        return Reading(around, names)
    return Reading(recent, names, over_at(around_them, first_us) & known)
