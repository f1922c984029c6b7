"""Looks once a second, and keeps what it has seen: history, the newest rows, events.

In: a Source. Out: `rows` and `snapshot` of the last second; `topics` and `clients` of the last ten; History, Events and
Lately.
Whoever waits for the next second uses `after`.

Topics and clients are many. They are looked at after a second, two seconds later, four later and so on up to every ten,
in slices, so that the loop, which may be the one that passes records on, is not held up for more
than about a millisecond.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from forebay_codecs import version_support
from forebay_proxy.console.events import Events
from forebay_proxy.console.history import ALL, History, rounded
from forebay_proxy.console.lately import Lately
from forebay_proxy.console.measures import Rows, measure
from forebay_proxy.console.source import SLICE, Details, Source
from forebay_proxy.metrics.clients_seen import SOFTWARE, SeenClient, full
from forebay_proxy.metrics.registry import Snapshot
from forebay_proxy.metrics.topics_seen import SeenTopic

SECOND: Final = 1.0
EARLY_S: Final = 0.002
"""uvloop rounds to milliseconds: a timer may end that much before its time."""
DETAILS_S: Final = 10.0
PARTITIONS_S: Final = 60
SWEEP_S: Final = 60
BROKERS_IN_STREAM: Final = 100
"""More would not fit into the 16 KB a second that a watcher is sent."""


class TopicView:
    """A topic, and its rates over the time between the last two looks; records, bytes and untouched a second."""

    __slots__ = ("bytes_rate", "partition_rates", "records_rate", "seen", "untouched_rate")

    def __init__(self, seen: SeenTopic, before: SeenTopic | None, seconds: float) -> None:
        self.seen = seen
        old = before if before is not None else SeenTopic(seen.name)
        self.records_rate = _rate(seen.records, old.records, seconds)
        self.bytes_rate = _rate(seen.bytes, old.bytes, seconds)
        self.untouched_rate = _rate(seen.untouched_records, old.untouched_records, seconds)
        were = old.partition_records
        self.partition_rates = [
            _rate(count, were[index] if index < len(were) else 0, seconds)
            for index, count in enumerate(seen.partition_records)
        ]

    @property
    def partitions(self) -> int:
        """How many are known."""
        return max(len(self.partition_rates), len(self.seen.leaders))

    @property
    def skew(self) -> float:
        """The busiest partition's share ÷ the fair share; 1: all are alike, 0: there is nothing to share."""
        total = sum(self.partition_rates)
        return max(self.partition_rates) * self.partitions / total if total else 0.0

    @property
    def queued(self) -> int:
        """Bytes of all partitions that are queued or on their way."""
        return sum(self.seen.queued.values())


def _rate(count: int, before: int, seconds: float) -> float:
    return max(0, count - before) / seconds


class ClientView:
    """A client; `too_old`: Kafka 4 would refuse what it speaks; errors until now, and a second since the last look.

    What is `seen` may count on while it is shown.
    """

    __slots__ = ("errors", "errors_rate", "seen", "too_old")

    def __init__(self, seen: SeenClient, before: ClientView | None, seconds: float) -> None:
        self.seen = seen
        self.errors = seen.errors
        self.errors_rate = _rate(self.errors, before.errors if before is not None else self.errors, seconds)
        self.too_old = not all(version_support.takes(key >> 16, key & 0xFFFF) for key in seen.requests)


def client_key(client: SeenClient) -> str:
    """What tells a client from others, as text."""
    return msgspec.json.encode(client.identity).decode()


class Collector:
    """`clock` in seconds, only differences count; `time_of_day` in seconds since 1970. Begins with `run`."""

    def __init__(
        self,
        source: Source,
        history_bytes: int,
        clock: Callable[[], float],
        time_of_day: Callable[[], float],
    ) -> None:
        self.history = History(history_bytes)
        self.events = Events()
        self.lately = Lately()
        self.second = 0
        """Of the newest row, since 1970."""
        self.snapshot = Snapshot()
        self.rows = Rows([], {}, {})
        self.topics: dict[str, TopicView] = {}
        self.clients: dict[str, ClientView] = {}
        self.clients_full = False
        """More may be connected than are known."""
        self._source = source
        self._clock = clock
        self._time_of_day = time_of_day
        self._looked_at: float | None = None
        self._details_looked_at = clock()
        self._details_due = self._details_looked_at + SECOND
        self._next = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.look()
            if self._clock() >= self._details_due:
                await self.look_closely()
            now = self._time_of_day()
            await asyncio.sleep(SECOND - now % SECOND + EARLY_S)

    async def after(self, second: int) -> None:
        """Returns once another second has been looked at: an earlier one, where the clock was set back."""
        while self.second == second:
            await self._next.wait()

    def look(self) -> None:
        """At all but topics and clients; in a second that has its row already, at nothing."""
        now = self._clock()
        second = int(self._time_of_day())
        if self.second - 2 < second <= self.second:  # further back, the clock was set
            return
        taken = self._source.now()
        before, began = self.snapshot, self._looked_at
        self.snapshot, self._looked_at = taken, now
        self.lately.note(taken.counters, now)
        if began is None:
            return
        self.rows = measure(before, taken, max(now - began, 1e-3))
        self.events.compare(before, taken, second)
        history = self.history
        history.put("totals", ALL, second, self.rows.totals)
        for node, row in self.rows.brokers.items():
            history.put("broker", node, second, row)
        for worker, row in self.rows.workers.items():
            history.put("worker", worker, second, row)
        self.second = second
        if second % SWEEP_S == 0:
            history.sweep(second)
        woken, self._next = self._next, asyncio.Event()
        woken.set()

    async def look_closely(self) -> None:
        """At topics and clients, in slices."""
        details = await self._source.details()
        now = self._clock()
        seconds = max(now - self._details_looked_at, 1e-3)
        self._details_looked_at = now
        self._details_due = now + min(DETAILS_S, seconds * 2) - SECOND / 2
        second = int(self._time_of_day())
        await self._topics(details, seconds, second)
        await self._clients(details, seconds, second)

    async def _topics(self, details: Details, seconds: float, second: int) -> None:
        found: dict[str, TopicView] = {}
        for number, seen in enumerate(details.topics):
            before = self.topics.get(seen.name)
            found[seen.name] = view = TopicView(seen, before.seen if before is not None else None, seconds)
            self.history.put("topic", seen.name, second, (view.records_rate, view.bytes_rate))
            if second % PARTITIONS_S < DETAILS_S and view.partition_rates:
                self.history.put("partitions", seen.name, second, view.partition_rates)
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        self.topics = found

    async def _clients(self, details: Details, seconds: float, second: int) -> None:
        found: dict[str, ClientView] = {}
        for number, seen in enumerate(details.clients):
            if seen.software == SOFTWARE:
                continue
            key = client_key(seen)
            found[key] = view = ClientView(seen, self.clients.get(key), seconds)
            self.history.put("client", key, second, (seen.rate, view.errors_rate))
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        self.clients = found
        self.clients_full = full(details.clients)

    def message(self, second: int) -> bytes:
        """That second's rows as JSON; of a broker or worker that had none, nothing."""
        return msgspec.json.encode(
            {
                "second": second,
                "totals": _numbers(self.history.row("totals", ALL, second)),
                "brokers": self._rows("broker", second)[:BROKERS_IN_STREAM],
                "workers": self._rows("worker", second),
            }
        )

    def _rows(self, kind: str, second: int) -> list[list[str | float | None]]:
        found: list[list[str | float | None]] = []
        for key in self.history.keys(kind):
            numbers = _numbers(self.history.row(kind, key, second))
            if any(number is not None for number in numbers):
                found.append([key, *numbers])
        return found


def _numbers(row: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else rounded(value) for value in row]
