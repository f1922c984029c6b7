"""The detector over a span."""

from __future__ import annotations

import pytest

from forebay_pipeline.partitions.measures import Questions
from forebay_pipeline.partitions.runaway_detector import Thresholds
from forebay_policies.journal_rows import BatchRow
from tests.pipeline.partitions.journal import SECOND, Journal
from tests.pipeline.rows import START_US, batch_row


def minutes(partition_0: tuple[int, int, int], count: int, first: int = 0) -> list[BatchRow]:
    """`count` windows of ten seconds, in which partition 0 gets so many batches of so many bytes with such a wait."""
    batches, size, wait_us = partition_0
    of_0 = {"partition": 0, "bytes": size, "upstream_us": wait_us}
    return [
        batch_row(time_us=START_US + ((first + window) * 10 + number % 10) * SECOND, **given)
        for window in range(count)
        for given, times in ((of_0, batches), ({"partition": 1}, 10), ({"partition": 2}, 10))
        for number in range(times)
    ]


@pytest.mark.whole
def test_runaways_of_a_span(journal: Journal) -> None:
    even, away = (10, 1000, 1500), (10, 6000, 39_500)
    rows = [*minutes(even, 4), *minutes(away, 5, 4), *minutes(even, 4, 9), *minutes(away, 3, 13)]
    first, second = journal.summary(*rows).runaways
    assert (first.topic, first.partition) == ("t", 0)
    assert (first.since_us, first.until_us) == (START_US + 40 * SECOND, START_US + 90 * SECOND)
    assert (first.share, first.times_fair) == (0.75, 2.25)
    assert (first.wait_us, first.others_wait_us) == (40_000, 2_000)
    assert (second.since_us, second.until_us) == (START_US + 130 * SECOND, None)
    limits = Questions(thresholds=Thresholds(share=2.3))
    assert journal.summary(*rows, questions=limits).runaways == []


@pytest.mark.whole
@pytest.mark.parametrize(("windows", "quiet_s", "until_s"), [(4, 600, 30), (4, 601, None), (3, 600, 20)])
def test_a_runaway_is_over_once_its_topic_is_quiet(
    journal: Journal, windows: int, quiet_s: int, until_s: int | None
) -> None:
    """Another one goes on for ten minutes, and tells that time has passed. It takes three windows to run away."""
    later = batch_row(topic="other", time_us=START_US + 630 * SECOND)
    limits = Questions(thresholds=Thresholds(quiet_us=quiet_s * SECOND))
    (one,) = journal.summary(*minutes((10, 6000, 39_500), windows), later, questions=limits).runaways
    assert (one.since_us, one.until_us) == (START_US, START_US + until_s * SECOND if until_s is not None else None)


def test_runaways_of_many_topics_are_not_mixed_up(journal: Journal) -> None:
    away, popular = minutes((10, 6000, 39_500), 4), minutes((30, 6000, 1500), 4)
    renamed = [
        batch_row(
            topic=f"{name}{number}",
            **{key: getattr(row, key) for key in ("time_us", "partition", "bytes", "upstream_us")},
        )
        for name, rows in (("away", away), ("popular", popular))
        for number in range(3)
        for row in rows
    ]
    assert [one.topic for one in journal.summary(*renamed).runaways] == ["away0", "away1", "away2"]
