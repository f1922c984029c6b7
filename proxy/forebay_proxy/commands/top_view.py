"""What `forebay top` shows: how Forebay fares in one sentence, what needs attention, and its brokers, topics, clients.

In: a running Forebay's API (console.api). Out: rows of text by table, for the terminal's application and, with
`--once`, for anything that reads text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from rich import box
from rich.table import Table
from rich.text import Text

from forebay_proxy.commands.admin_endpoint import AdminEndpoint, AdminError
from forebay_proxy.commands.numbers import count, many, percent, size, time
from forebay_proxy.commands.text_output import table_text
from forebay_proxy.logs import visible

API: Final = "/api/v1/"
ROWS: Final = 200
"""Of a table: the most that the API gives at once."""
SHORT: Final = 10
"""Rows of each table in text."""

Row = Mapping[str, Any]


class Column(NamedTuple):
    """`key`: what the API sorts by; empty: it does not."""

    title: str
    key: str
    cell: Callable[[Row], str]
    number: bool = True


class Kind(NamedTuple):
    """A table of the API. `sort`: as it is asked for at first; `name`: what tells one row from another."""

    columns: Sequence[Column]
    sort: str
    name: Callable[[Row], str]


def _name(row: Row) -> str:
    return str(row["client_id"] or "?")


def _software(row: Row) -> str:
    return " ".join(filter(None, (row["software_name"], row["software_version"]))) or "?"


def _kafka_4(row: Row) -> str:
    if row["survives_kafka_4"]:
        return "yes"
    return "bridged" if row["bridged"] else "no"


KINDS: Final[dict[str, Kind]] = {
    "brokers": Kind(
        (
            Column("node", "node", lambda row: str(row["node"])),
            Column("up", "up", lambda row: "yes" if row["up"] else "no", number=False),
            Column("records/s", "records", lambda row: count(row["records"])),
            Column("bytes/s", "bytes", lambda row: size(row["bytes"])),
            Column("share", "share", lambda row: percent(row["share"])),
            Column("queued", "queued_bytes", lambda row: size(row["queued_bytes"])),
            Column("requests", "in_flight", lambda row: count(row["in_flight"])),
            Column("p50", "", lambda row: time(row.get("window_p50"))),
            Column("p99", "", lambda row: time(row.get("window_p99"))),
        ),
        "node",
        lambda row: str(row["node"]),
    ),
    "topics": Kind(
        (
            Column("topic", "topic", lambda row: row["topic"], number=False),
            Column("records/s", "records", lambda row: count(row["records"])),
            Column("bytes/s", "bytes", lambda row: size(row["bytes"])),
            Column("untouched/s", "untouched", lambda row: count(row["untouched"])),
            Column("partitions", "partitions", lambda row: count(row["partitions"])),
            Column("queued", "queued_bytes", lambda row: size(row["queued_bytes"])),
            Column("skew", "skew", lambda row: count(row["skew"])),
        ),
        "-records",
        lambda row: str(row["topic"]),
    ),
    "clients": Kind(
        (
            Column("client id", "client_id", _name, number=False),
            Column("software", "", _software, number=False),
            Column("address", "address", lambda row: row["address"], number=False),
            Column("open", "connections", lambda row: count(row["connections"])),
            Column("records/s", "records", lambda row: count(row["records_per_second"])),
            Column("untouched", "untouched", lambda row: percent(row["untouched"])),
            Column("errors", "errors", lambda row: count(row["errors"])),
            Column("Kafka 4", "too_old", _kafka_4, number=False),
        ),
        "-records",
        lambda row: str(row["id"]),
    ),
}


class Look(NamedTuple):
    """`totals`: the newest second's, by name; empty: there is none yet. `found`: how many rows a kind has in all."""

    overview: Row
    totals: Mapping[str, float | None]
    rows: Mapping[str, Sequence[Row]]
    found: Mapping[str, int]


def look(endpoint: AdminEndpoint, sorts: Mapping[str, str], words: str = "", rows: int = ROWS) -> Look:
    """Ask for all of it; `sorts`: kind → what its rows are sorted by (-records: the greatest first). Kinds that have
    none are left out. `words`: what names must hold. Raises AdminError.
    """
    overview = _asked(endpoint, "overview", {})
    history = _asked(endpoint, "history", {"of": "totals", "seconds": 2, "points": 2})
    totals = {}
    if history["times"]:
        totals = {name: column[-1] for name, column in zip(history["columns"], history["values"], strict=True)}
    tables = {
        kind: _asked(endpoint, kind, {"sort": sort, "size": rows, **({"q": words} if words else {})})
        for kind, sort in sorts.items()
    }
    return Look(
        overview,
        totals,
        {kind: table["rows"] for kind, table in tables.items()},
        {kind: table["total"] for kind, table in tables.items()},
    )


def _asked(endpoint: AdminEndpoint, what: str, query: Mapping[str, object]) -> Row:
    answer = endpoint.get(f"{API}{what}?{urlencode(query)}")
    if not isinstance(answer, dict):
        raise AdminError(f"{endpoint.name} answers otherwise than Forebay does")
    return answer


def sentence(now: Look) -> str:
    """As on the page: "3 of 3 brokers, 312 clients, 41.0 k records/s in, …"."""
    told = now.overview
    brokers, clients, added = told["brokers"], told["clients"], told["added"]
    parts = [f"{brokers['up']} of {many(brokers['known'], 'broker')}", many(clients["connected"], "client")]
    if clients.get("full"):  # an older Forebay does not tell
        parts[-1] += " or more"
    if now.totals:
        parts += [
            f"{count(now.totals['records_in'])} records/s in",
            f"{count(now.totals['batches_out'])} batches/s out",
        ]
    if added["p50"] is not None:
        parts.append(f"adds {time(added['p50'])} / {time(added['p99'])} p50 / p99")
    old = f"; {many(clients['too_old'], 'client')} too old for Kafka 4" if clients["too_old"] else ""
    return f"{', '.join(parts)}{old}."


def attention(now: Look) -> list[tuple[str, str]]:
    """(severity, text) of what a person should look at, most urgent first."""
    return [(problem["severity"], problem["text"]) for problem in now.overview["problems"]]


def cells(kind: str, row: Row) -> list[str]:
    """A row's texts, in the order of the kind's columns."""
    return [visible(column.cell(row)) for column in KINDS[kind].columns]


def as_text(now: Look, width: int | None) -> str:
    """All of it at once, as `--once` prints it; None: each row is one line, whatever its length."""
    parts = [sentence(now)]
    parts += [f"{severity}: {visible(text)}" for severity, text in attention(now)] or ["Nothing needs attention."]
    for kind, rows in now.rows.items():
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in KINDS[kind].columns:
            table.add_column(column.title, justify="right" if column.number else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, cells(kind, row)))
        more = now.found[kind] - len(rows)
        parts += ["", table_text(table, width) if rows else f"No {kind}."]
        if more:
            parts.append(f"… and {more:,} more {kind}")
    return "\n".join(parts)
