"""When a query is triggered, and how signals stop it: beside a query that is none."""

from __future__ import annotations

import signal
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

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
    """Active for so many looks; a signal arrives with the first."""

    def __init__(self, looks: int, number: signal.Signals | None = None, error: Exception | None = None) -> None:
        self._looks = looks
        self._number = number
        self._error = error
        self.done: list[str] = []

    @property
    def isActive(self) -> bool:  # noqa: N802
        self._looks -= 1
        if self._number is not None:
            signal.raise_signal(self._number)
        return self._looks > 0

    def stop(self) -> None:
        self.done.append("stopped")

    def awaitTermination(self) -> None:  # noqa: N802
        self.done.append("awaited")
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_query_and_not_the_process(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    query = Query(1_000_000, number)
    await_end(cast(StreamingQuery, query))
    assert query.done == ["stopped"]
    assert signal.getsignal(number) == before


def test_the_end_of_a_query_is_awaited_for_its_error() -> None:
    before = signal.getsignal(signal.SIGINT)
    query = Query(1, error=RuntimeError("it failed"))
    with pytest.raises(RuntimeError, match="it failed"):
        await_end(cast(StreamingQuery, query))
    assert query.done == ["awaited"]
    assert signal.getsignal(signal.SIGINT) == before
