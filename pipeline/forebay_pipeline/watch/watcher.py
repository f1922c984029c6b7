"""What is done with each batch of tallies: add them up, ask the brokers, judge, tell.

In: rows of minutes.TALLIES. Out: Minutes, to each of the outputs, those whose failure ends the job before the webhook.
Brokers that do not answer do not end it: the minutes of topics that nobody tells of are told as not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import click
import msgspec
from pyspark.sql import Row

from forebay_pipeline.audit.topics import TopicEnds
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.watch.minutes import MINUTE_US
from forebay_pipeline.watch.tally import Tally
from forebay_pipeline.watch.verdict import Minute, Seen, judge, sentence, together

_TALLY: Final = msgspec.json.Decoder(Tally)


class Output(Protocol):
    """Where minutes are told. `batch` is the same when a batch is done again."""

    def tell(self, batch: int, minutes: Sequence[Minute]) -> None:
        """Tell the minutes of a batch, which may be told again. May raise CannotRun."""


class Sentences:
    """Tells people, on the terminal."""

    def tell(self, batch: int, minutes: Sequence[Minute]) -> None:
        """A sentence for each."""
        for minute in minutes:
            click.echo(sentence(minute))


class Watcher:
    """Judges batches and tells their minutes to `outputs`; `slow_ms` is the limit of the 99th percentile, if any."""

    def __init__(self, topics: TopicEnds, slow_ms: float | None) -> None:
        self._topics = topics
        self._slow_ms = slow_ms
        self.outputs: list[Output] = []
        self.findings = 0
        """Minutes of topics with findings."""
        self.unchecked = 0
        """Minutes of topics not checked for loss."""
        self.without_ledger: set[str] = set()
        """Processes that send batches and keep no ledger."""
        self.last_us = 0
        """When the last minute began that was judged, in microseconds since 1970."""

    def told(self, number: int, rows: Iterable[Row]) -> None:
        """Judge rows of TALLIES, and tell the minutes. Raises CannotRun as outputs do."""
        rows = list(rows)
        if not rows:
            return
        self.last_us = max(self.last_us, *(row.minute_us for row in rows))
        tallies = [(row.process, row.topic, row.topic_id, row.minute_us, _TALLY.decode(row.tally)) for row in rows]
        minutes = self._judged(together(tallies))
        for output in self.outputs:
            output.tell(number, minutes)
        self.findings += sum(bool(minute.findings) for minute in minutes)
        self.unchecked += sum(minute.lost is None for minute in minutes)
        self._tell_unwatched({process for process, *_, tally in tallies if tally.keeps_no_ledger})

    def _tell_unwatched(self, processes: set[str]) -> None:
        for process in sorted(processes - self.without_ledger):
            click.echo(f"Nothing that {process} sends is watched: it needs journal.ledger=true.", err=True)
        self.without_ledger |= processes

    def _judged(self, tallies: Mapping[Seen, Tally]) -> list[Minute]:
        if not tallies:
            return []
        try:
            cluster_id = self._topics.cluster_id()
            here = {seen for seen in tallies if seen.cluster_id in ("", cluster_id)}
            now, untold = self._topics.told({seen.topic for seen in here}, policies=False)
        except CannotRun as error:
            _tell_unchecked(error, len(tallies))
            here, now, untold = set(), {}, {}
        if untold:
            _tell_unchecked(next(iter(untold.values())), sum(seen.topic in untold for seen in here))
        return [
            judge(seen, tally, now if seen in here and seen.topic not in untold else None, self._slow_ms)
            for seen, tally in tallies.items()
        ]

    def totals(self) -> dict[str, tuple[str, int]]:
        """Of the job itself, for exposition.TextFile."""
        return {
            "judged_timestamp_seconds": (
                "End of the last minute that was judged, since 1970.",
                (self.last_us + MINUTE_US) // 1_000_000,
            ),
        }


def _tell_unchecked(error: CannotRun, minutes: int) -> None:
    click.echo(f"{error} {minutes:,} minutes of topics are not checked for loss.", err=True)
