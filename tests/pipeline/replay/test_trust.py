"""Which numbers are predictions, which are for ranking only."""

from __future__ import annotations

import msgspec
import pytest

from forebay_pipeline.replay.intervals import Interval, Intervals
from forebay_pipeline.replay.results import Measured, Result
from forebay_pipeline.replay.trust import average_ms, checked, marked, p99_ms, trusted
from tests.pipeline.replay.reports import report, result

FOUND = [result(8.0, 20.0), result(4.0, 9.0)]


@pytest.mark.parametrize(
    ("measured", "only"),
    [
        (Measured(8.1, 4.1, 20.5, 1000), [False, True]),
        (Measured(10.7, 4.1, 20.5, 1000), [True, True]),
        (Measured(8.1, 3.1, 20.5, 1000), [True, True]),
        (Measured(8.1, 4.1, 15.9, 1000), [True, True]),
        (None, [True, True]),
    ],
    ids=["close", "average", "p50", "p99", "not measured"],
)
def test_only_what_was_measured_is_a_prediction(measured: Measured | None, only: list[bool]) -> None:
    assert [one.ranking_only for one in marked(FOUND, 0, measured)] == only


def test_how_far_a_simulation_is_from_what_was_measured() -> None:
    assert checked(FOUND[0], Measured(10.0, 0.0, 40.0, 1)) == {"average": 0.8, "p99": 0.5}
    assert checked(FOUND[0], None) == {}


def told(*results: Result, certainty: float | None = None) -> list[str]:
    return list(trusted(msgspec.structs.replace(report(1), results=list(results), certainty=certainty)))


def test_it_is_said_what_is_for_ranking_only() -> None:
    first, second = marked(FOUND, 0, Measured(8.1, 4.1, 20.5, 1000))
    assert told(first, second) == [
        "Latencies of other settings than the present ones are for ranking only: they may be off by more than 25%."
    ]
    assert told(second, second) == ["All latencies are for ranking only: they may be off by more than 25%."]
    assert told(first, first) == []


def test_how_sure_it_is() -> None:
    sure = Intervals(Interval(3.5, 4.25), Interval(1, 2), Interval(8, 1100), Interval(90, 110))
    (sentence,) = told(FOUND[0], msgspec.structs.replace(FOUND[1], intervals=sure), certainty=0.97)
    assert "average 3.50 to 4.25 ms, p99 8.00 to 1100.00 ms" in sentence
    assert "the same recommendation in 97% of the draws" in sentence
    with_intervals = msgspec.structs.replace(FOUND[1], intervals=sure)
    assert (average_ms(with_intervals), p99_ms(with_intervals)) == ("4.00 (3.50–4.25)", "9.00 (8.00–1,100.00)")
    assert (average_ms(FOUND[1]), p99_ms(FOUND[1])) == ("4.00", "9.00")
