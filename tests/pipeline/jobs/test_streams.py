"""When a query is triggered, and how signals stop it: beside a query that is none."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from forebay_pipeline.errors import Stopped
from forebay_pipeline.jobs import streams
from forebay_pipeline.jobs.streams import await_end, triggered


class Writer:
    """Gives back how it is to be triggered."""

    def trigger(self, **how: object) -> dict[str, object]:
        return how


def test_once_or_again_and_again() -> None:
    writer = cast(DataStreamWriter, Writer())
    assert triggered(writer, None) == cast(Any, {"availableNow": True})
    assert triggered(writer, 60) == cast(Any, {"processingTime": "60 seconds"})


class Query:
    """Active for so many looks, with each of which it finds nothing, and then does `batches`, and remembers six
    triggers; a signal arrives with the first. `clock`: the seconds at which it begins; after 59 it is set back."""

    def __init__(
        self,
        looks: int,
        number: signal.Signals | None = None,
        error: Exception | None = None,
        batches: range = range(0),
        clock: int = 0,
    ) -> None:
        self._looks = looks
        self._number = number
        self._error = error
        self._batches = batches
        self._triggers = 0
        self._clock = clock
        self.recentProgress: list[dict[str, Any]] = []
        self.done: list[str] = []

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def isActive(self) -> bool:  # noqa: N802
        self._looks -= 1
        self._do(self._batches)
        if self._number is not None:
            signal.raise_signal(self._number)
        return self._looks > 0

    def _do(self, batches: range) -> None:
        self._trigger(0)
        for _ in batches:
            self._trigger(1)
        self.recentProgress = self.recentProgress[-6:]

    def _trigger(self, rows: int) -> None:
        last = self.lastProgress or {"batchId": 7, "rows": 0}
        self._triggers += 1
        at = f"2026-11-18T11:08:{(self._triggers + self._clock) % 60:02}.000Z"
        self.recentProgress.append({"timestamp": at, "batchId": last["batchId"] + last["rows"], "rows": rows})

    def stop(self) -> None:
        self.done.append("stopped")

    def awaitTermination(self) -> None:  # noqa: N802
        self._do(range(1))
        self.done.append("awaited")
        if self._error is not None:
            raise self._error


def ignored(progress: object) -> None:
    pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("endless", [True, False])
def test_a_signal_stops_the_query_and_not_the_process(number: signal.Signals, *, endless: bool) -> None:
    """That one that is not endless has not come to its end is told."""
    before = signal.getsignal(number)
    query = Query(1_000_000, number)
    with nullcontext() if endless else pytest.raises(Stopped) as stopped:
        await_end(cast(StreamingQuery, query), ignored, endless=endless)
    assert stopped is None or stopped.value.number == number
    assert query.done == ["stopped"]
    assert signal.getsignal(number) == before


def test_the_end_of_a_query_is_awaited_for_its_error() -> None:
    before = signal.getsignal(signal.SIGINT)
    query = Query(1, error=RuntimeError("it failed"))
    with pytest.raises(RuntimeError, match="it failed"):
        await_end(cast(StreamingQuery, query), ignored)
    assert query.done == ["awaited"]
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize("a_look", [0, 1, 2, 3])
def test_each_batch_is_told_once_though_a_query_remembers_only_the_last_ones(
    monkeypatch: pytest.MonkeyPatch, a_look: int
) -> None:
    """They go on from those of an earlier run; the last one is done after the last look. A trigger that finds nothing
    is told with the number of the next one."""
    monkeypatch.setattr(streams, "_LOOK_S", 0.0)
    told: list[dict[str, Any]] = []
    await_end(cast(StreamingQuery, Query(5, batches=range(a_look))), told.append)
    assert [progress["batchId"] for progress in told if progress["rows"]] == [*range(7, 7 + 5 * a_look + 1)]
    assert len({progress["timestamp"] for progress in told}) == len(told) == 6 + 5 * a_look + 1


def test_a_clock_that_is_set_back_hides_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_LOOK_S", 0.0)
    told: list[dict[str, Any]] = []
    await_end(cast(StreamingQuery, Query(5, batches=range(2), clock=52)), told.append)
    assert [progress["batchId"] for progress in told if progress["rows"]] == [*range(7, 7 + 11)]
