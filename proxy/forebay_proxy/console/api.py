"""The API behind the page, for other programs, too: JSON over GET, nothing of which changes anything.

    /api/v1/overview   what the page's first sentence says, the newest numbers, problems
    /api/v1/brokers, /topics, /clients     tables: sort, q, page, size (tables.py)
    /api/v1/history    one thing's numbers over time: of (COLUMNS), key, seconds, points
    /api/v1/events     what changed lately
    /api/v1/config     settings, their values and where those come from; of secrets, whether there is one
    /api/v1/explain    what decides whether records of client_id for topic are touched, and whether that client seems to
                       pick their partitions itself
    /api/v1/stream     each second's numbers, as server-sent events (stream.py)

In: requests that Entry lets in. Out: 200; 400 {"error"} for what cannot be asked; 405 for anything but GET. What
changes things is in changes.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from aiohttp import web

from forebay_proxy import __version__
from forebay_proxy.config.overriding import Override
from forebay_proxy.console import page, tables
from forebay_proxy.console.collector import Collector
from forebay_proxy.console.entry import PREFIX, Entry, Handler, answer, refused
from forebay_proxy.console.history import ALL, BROKER, CLIENT, HOUR_S, TOPIC, TOTALS, WORKER
from forebay_proxy.console.paging import WrongQuery, number, part, wanted
from forebay_proxy.console.problems import problems
from forebay_proxy.console.stream import Watchers
from forebay_proxy.metrics.catalog import TIMES_S
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.registry import percentile

MOST_POINTS: Final = 1200
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "totals": TOTALS,
    "broker": BROKER,
    "worker": WORKER,
    "topic": TOPIC,
    "client": CLIENT,
    "partitions": (),
}

Answer = Callable[[Mapping[str, str]], dict[str, Any]]


class Told(NamedTuple):
    """What the command line knows and this room does not. `config`: one object a setting, without secrets; `explain`:
    (client id or None, topic) → what decides. `over`: the same with overrides."""

    config: list[dict[str, Any]]
    explain: Callable[[str | None, str], dict[str, Any]]
    over: Callable[[Iterable[Override]], Told] | None = None

    def overridden(self, overrides: Iterable[Override]) -> Told:
        """With these in force."""
        return self if self.over is None else self.over(overrides)


NOTHING_TOLD: Final = Told([], lambda client_id, topic: {})


class Api:
    """`unready`: why no client can be served; `time_of_day` in seconds since 1970."""

    def __init__(
        self,
        seen: Collector,
        told: Told,
        entry: Entry,
        unready: Callable[[], str | None],
        workers: int,
        time_of_day: Callable[[], float],
        ailing: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`ailing`: what is wrong with workers."""
        self._seen = seen
        self._told = told
        self._entry = entry
        self._unready = unready
        self._workers = workers
        self._ailing = ailing
        self._time_of_day = time_of_day
        self._watchers = Watchers(seen, lambda: self._overview({}))
        self._files = page.read()

    @property
    def open_paths(self) -> frozenset[str]:
        """What anybody may read, like probes: the page's own files, which show nothing."""
        return frozenset(f"/{path}" for path in self._files)

    @property
    def watching(self) -> int:
        """Streams that are open."""
        return self._watchers.watching

    def mount(self, app: web.Application) -> None:
        """Serve all of it, and the page."""
        seen = self._seen
        answers: dict[str, Answer] = {
            "overview": self._overview,
            "brokers": lambda query: tables.brokers(seen, query),
            "topics": lambda query: tables.topics(seen, query),
            "clients": lambda query: tables.clients(seen, query),
            "events": self._events,
            "config": self._config,
            "explain": self._explain,
        }
        for name, found in answers.items():
            app.router.add_get(PREFIX + name, self._entry.reading(self._json(found)), allow_head=False)
        app.router.add_get(f"{PREFIX}history", self._entry.reading(self._history), allow_head=False)
        app.router.add_get(f"{PREFIX}stream", self._entry.reading(self._watchers.serve), allow_head=False)
        for path in self._files:
            app.router.add_get(f"/{path}", self._entry.reading(self._file(path)), allow_head=False)

    def _json(self, found: Answer) -> Handler:
        async def respond(request: web.Request) -> web.StreamResponse:
            try:
                return answer(found(request.query))
            except WrongQuery as error:
                return refused(str(error), 400)

        return respond

    def _file(self, path: str) -> Handler:
        async def respond(request: web.Request) -> web.StreamResponse:
            return page.answer(request, self._files[path])

        return respond

    # Answers

    def _overview(self, query: Mapping[str, str]) -> dict[str, Any]:
        _only(query)
        seen = self._seen
        clients = seen.clients.values()
        up = [row[BROKER.index("up")] for row in seen.rows.brokers.values()]
        unready = self._unready()
        added = seen.snapshot.histograms.get(("forebay_added_latency_seconds", ("merged",)))

        def within(share: float) -> float | None:
            if added is None or not any(added.recent):
                return None
            return percentile(added.recent, TIMES_S, added.recent_max, share)

        return {
            "version": __version__,
            "second": seen.second,
            "workers": self._workers,
            "ready": unready is None,
            "brokers": {"known": len(up), "up": sum(1 for each in up if each)},
            "clients": {
                "connected": sum(1 for view in clients if view.seen.connections),
                "known": len(seen.clients),
                "full": seen.clients_full,
                "too_old": sum(view.too_old for view in clients),
            },
            "topics": len(seen.topics),
            "added": {"p50": within(0.5), "p99": within(0.99)},
            "memory": seen.snapshot.gauges.get(("forebay_buffer_memory_total_bytes", ()), 0.0),
            "columns": {name: list(columns) for name, columns in COLUMNS.items() if columns},
            "problems": problems(
                seen.snapshot,
                clients,
                unready,
                self._time_of_day(),
                seen.lately,
                self._told.config,
                self._ailing(),
            ),
            "history": {"bytes": seen.history.size, "missing": seen.history.missing},
        }

    async def _history(self, request: web.Request) -> web.StreamResponse:
        """A column at a time: others have the loop in between."""
        query = request.query
        try:
            _only(query, "of", "key", "seconds", "points")
            kind = query.get("of", "totals")
            if kind not in COLUMNS:
                raise WrongQuery(f"of must be one of {', '.join(COLUMNS)}")
            seconds = number(query, "seconds", HOUR_S, 1, HOUR_S)
            points = number(query, "points", 600, 1, MOST_POINTS)
        except WrongQuery as error:
            return refused(str(error), 400)
        key = ALL if kind == "totals" else query.get("key", "")
        times, columns = self._seen.history.columns(kind, key, seconds, self._seen.second, points)
        values = []
        for column in columns:
            values.append(column)
            await asyncio.sleep(0)
        return answer({"of": kind, "key": key, "columns": list(COLUMNS[kind]), "times": times, "values": values})

    def _events(self, query: Mapping[str, str]) -> dict[str, Any]:
        asked = wanted(query, ("at",), "-at")
        found = self._seen.events.newest_first()
        shown, total = part(found, asked, {"at": lambda event: event.at}, lambda event: event.text)
        return {"rows": shown, "total": total, "page": asked.page, "size": asked.size}

    def tell(self, told: Told) -> None:
        """Settings have changed."""
        self._told = told

    def _config(self, query: Mapping[str, str]) -> dict[str, Any]:
        asked = wanted(query, ("name", "origin"), "name")
        keys: dict[str, Callable[[dict[str, Any]], Any]] = {
            "name": lambda row: row["name"],
            "origin": lambda row: row["origin"],
        }
        shown, total = part(self._told.config, asked, keys, keys["name"])
        return {"rows": shown, "total": total, "page": asked.page, "size": asked.size}

    def _explain(self, query: Mapping[str, str]) -> dict[str, Any]:
        _only(query, "client_id", "topic")
        if not query.get("topic"):
            raise WrongQuery("topic must be given")
        told = self._told.explain(query.get("client_id"), query["topic"])
        seen = [
            _picks(view.seen, query["topic"])
            for view in self._seen.clients.values()
            if (view.seen.client_id or "") == query.get("client_id")
        ]
        if found := list(filter(None, seen)):
            return {**told, "text": "\n".join([told["text"], *found])}
        return told


def _picks(client: SeenClient, topic: str) -> str:
    """A sentence where the client seems to pick the topic's partitions itself; else empty."""
    known = client.choices.get(topic)
    if known is None or not known.picked:
        return ""
    return (
        f"Seen from {client.address}: its records without a key keep to {len(known.places)} of {known.partitions} "
        f"partitions, so it looks as if it picks them itself."
    )


def _only(query: Mapping[str, str], *known: str) -> None:
    if unknown := sorted(set(query).difference(known)):
        raise WrongQuery(f"unknown parameter {unknown[0]}")
