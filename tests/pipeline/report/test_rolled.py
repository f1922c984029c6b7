"""A report of rollups says what a report of the rows would: counts exactly, percentiles within 2 %."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.advice import counts
from forebay_pipeline.advice.facts import BrokerUse, ClientUse, length_s
from forebay_pipeline.advice.gather import COLUMNS, KEPT
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.journal.span import ALL_TIME, Span
from forebay_pipeline.partitions.measures import kept_rows
from forebay_pipeline.partitions.summary import Percentiles, WorkerUse
from forebay_pipeline.report.command import known
from forebay_pipeline.report.rolled import known_of_days
from forebay_pipeline.report.sections import Asked, Known
from forebay_pipeline.report.series import Series, TimePoint, gauge_points, time_points, topic_shares
from forebay_pipeline.rollups.command import rollup
from forebay_pipeline.rollups.days import span_of
from tests.pipeline.rollups import made_up
from tests.pipeline.rollups.made_up import DAY, FIRST, HOUR, SPAN
from tests.pipeline.rows import batch_row, write_journal

WITHIN = 0.02
ABOUT = {"hosts", "requests"}
"""Of ClientUse: counted by sketches."""


def of_rows(spark: SparkSession, place: JournalPlace, span: Span) -> Known:
    """With points an hour apart."""
    with kept_rows(spark, place, span, KEPT, of_these=COLUMNS) as rows:
        found = known(rows, place, span, Asked())
        topics = [one.topic for one in found.series.shares]
        series = Series(
            HOUR,
            time_points(rows.batches, HOUR),
            gauge_points(rows.gauges, HOUR),
            topic_shares(rows.batches, topics, HOUR),
        )
        return found._replace(series=series)


def lingering(spark: SparkSession, place: JournalPlace) -> dict[int, float]:
    """Of each day by itself, added up."""
    total: dict[int, float] = {}
    for day in made_up.NAMES:
        with kept_rows(spark, place, span_of(day), of_these=COLUMNS) as rows:
            (first_us, last_us) = rows.batches.selectExpr("min(time_us)", "max(time_us)").collect()[0]
            (row,) = counts.lingering(rows.batches, length_s(first_us, last_us)).collect()
            for each, batches in counts.lingered_as(row).items():
                total[each] = total.get(each, 0.0) + batches
    return total


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Where two differ by more than they may."""
    if isinstance(one, Percentiles):
        pairs = ((getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)
        if not all(math.isclose(a, b, rel_tol=WITHIN, abs_tol=1) for a, b in pairs):
            yield f"{path}: {one} {other}"
    elif isinstance(one, msgspec.Struct) or hasattr(one, "_fields"):
        names = one.__struct_fields__ if isinstance(one, msgspec.Struct) else one._fields
        for name in names:
            a, b = getattr(one, name), getattr(other, name)
            if (isinstance(one, TimePoint) and name in ("bytes_p50", "bytes_p99")) or (
                isinstance(one, BrokerUse) and name == "upstream_us"
            ):
                if not math.isclose(a, b, rel_tol=WITHIN, abs_tol=1):
                    yield f"{path}.{name}: {a} {b}"
            elif (
                isinstance(one, WorkerUse) and name == "seconds_waited"
            ):  # of the first second of a day little is known
                if not 0 <= a - b <= one.starts:
                    yield f"{path}.{name}: {a} {b}"
            elif isinstance(one, ClientUse) and name in ABOUT:
                if not math.isclose(a, b, rel_tol=0.05, abs_tol=1):
                    yield f"{path}.{name}: {a} {b}"
            else:
                yield from differences(a, b, f"{path}.{name}")
    elif isinstance(one, Mapping):
        if one.keys() != other.keys():
            yield f"{path}: {sorted(map(str, one))} {sorted(map(str, other))}"
        else:
            for key in one:
                yield from differences(one[key], other[key], f"{path}[{key}]")
    elif isinstance(one, Sequence) and not isinstance(one, str):
        if len(one) != len(other):
            yield f"{path}: {one} {other}"
        else:
            for number, (a, b) in enumerate(zip(one, other, strict=True)):
                yield from differences(a, b, f"{path}[{number}]")
    elif isinstance(one, float):
        if not math.isclose(one, other, rel_tol=1e-9):
            yield f"{path}: {one} {other}"
    elif one != other:
        yield f"{path}: {one} {other}"


@pytest.mark.whole  # rollups/test_rolled.py and test_days.py have what is added up
@pytest.mark.parametrize("seed", range(1, 6))
def test_the_same_as_from_the_rows(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    journal, folder = tmp_path / "journal", tmp_path / "rollups"
    made_up.write(journal, made_up.rows(seed))
    place = JournalPlace(str(journal))
    rolled = [day for day, _ in rollup(spark, place, ALL_TIME, str(folder), made_up.LATER)]
    assert rolled == made_up.NAMES
    expected, found = of_rows(spark, place, SPAN), known_of_days(spark, str(folder), SPAN, Asked())
    assert len(expected.summary.runaways) == 2
    assert [one.client_id for one in expected.facts.clients.clients if one.picked] == ["shards"]
    summary = msgspec.structs.replace(expected.summary, journal=found.summary.journal)
    batches = expected.facts.batches._replace(lingering=lingering(spark, place))
    facts = expected.facts._replace(summary=summary, batches=batches)
    assert list(differences(expected._replace(facts=facts), found)) == []


@pytest.mark.whole  # rollups/test_days.py has the days, test_command.py the sentence
def test_what_is_missing_is_said(spark: SparkSession, tmp_path: Path) -> None:
    """Of ten days there are two, of which one is asked for with nine others."""
    for at_us in (FIRST, FIRST + 9 * DAY, FIRST + 10 * DAY + HOUR):
        write_journal(tmp_path / "journal", [batch_row(time_us=at_us)])
    folder = str(tmp_path / "rollups")
    assert len(list(rollup(spark, JournalPlace(str(tmp_path / "journal")), ALL_TIME, folder, FIRST + 20 * DAY))) == 2
    assert known_of_days(spark, folder, Span(FIRST, FIRST + DAY), Asked()).missing == []
    days = "2026-11-19, 2026-11-20, 2026-11-21, 2026-11-22, 2026-11-23, …"
    found = known_of_days(spark, folder, Span(FIRST, None), Asked())
    assert found.missing == [f"Of 8 of 10 days there are no rollups: {days}."]
    assert (found.summary.total.batches, found.missing_us) == (2, 8 * DAY)
    assert found.summary.seconds == found.facts.seconds == 86_400
    assert sorted(found.series.missing) == [FIRST + number * HOUR for number in range(24, 9 * 24, 2)]
    sentence = "There are no rollups from 2026-11-28T00:00:00Z on in"
    with pytest.raises(CannotRun, match=f"^{sentence} {folder}.$"):
        known_of_days(spark, folder, Span(FIRST + 10 * DAY, None), Asked())
