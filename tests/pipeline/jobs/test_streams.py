"""When a query is triggered, and how signals stop it: beside a query that is none."""

from __future__ import annotations

import signal
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

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
    """Active for so many looks, with each of which it does `batches`, the last four of which it remembers; a signal
    arrives with the first."""

    def __init__(
        self,
        looks: int,
        number: signal.Signals | None = None,
        error: Exception | None = None,
        batches: range = range(0),
    ) -> None:
        self._looks = looks
        self._number = number
        self._error = error
        self._batches = batches
        self.recentProgress: list[dict[str, int]] = []
        self.done: list[str] = []

    @property
    def lastProgress(self) -> dict[str, int] | None:  # noqa: N802
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def isActive(self) -> bool:  # noqa: N802
        self._looks -= 1
        self._do(self._batches)
        if self._number is not None:
            signal.raise_signal(self._number)
        return self._looks > 0

    def _do(self, batches: range) -> None:
        following = self.recentProgress[-1]["batchId"] + 1 if self.recentProgress else 7
        done = [{"batchId": following + number} for number in batches]
        self.recentProgress = [*self.recentProgress, *done][-4:]

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
def test_a_signal_stops_the_query_and_not_the_process(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    query = Query(1_000_000, number)
    await_end(cast(StreamingQuery, query), ignored)
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
    """They go on from those of an earlier run; the last one is done after the last look."""
    monkeypatch.setattr(streams, "_LOOK_S", 0.0)
    told: list[int] = []
    await_end(cast(StreamingQuery, Query(5, batches=range(a_look))), lambda progress: told.append(progress["batchId"]))
    assert told == [*range(7, 7 + 5 * a_look + 1)]
