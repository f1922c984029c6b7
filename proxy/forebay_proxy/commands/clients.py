"""What `forebay clients` shows: who is or was connected, and who is too old for Kafka 4.

In: the rows of a running Forebay's /clients. Out: text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from forebay_proxy.commands.admin_endpoint import AdminEndpoint, AdminError
from forebay_proxy.commands.text_output import json_text, table_text
from forebay_proxy.logs import visible

PATH: Final = "/clients"

Row = dict[str, Any]
"""One client, as clients_seen.rows has it."""


class Known(NamedTuple):
    """The clients of a Forebay; `full`: more may be connected, since it keeps no more."""

    rows: list[Row]
    full: bool


def fetch(endpoint: AdminEndpoint) -> Known:
    """The clients of that Forebay. Raises AdminError."""
    try:
        told = endpoint.get(PATH)
        return Known(told["clients"], told.get("full", False))  # an older Forebay does not tell
    except (KeyError, TypeError) as error:
        raise AdminError(f"{endpoint.name} tells of no clients: is it Forebay?") from error


def as_json(rows: list[Row]) -> str:
    """The rows as they came: an array of objects."""
    return json_text(rows)


def as_table(known: Known, width: int | None) -> str:
    """One row per client, in the order given, and a count of those too old for Kafka 4.

    Long values are folded into `width` columns; None: each row is one line, whatever its length.
    """
    rows = known.rows
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    logged_in = any(row.get("principals") for row in rows)  # an older Forebay tells of none
    users = ("principal",) if logged_in else ()
    for column in ("client id", *users, "software", "address", "open", "records/s", "last seen", "speaks", "Kafka 4"):
        numbers = column in ("open", "records/s")
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        cells = (
            row["client_id"] or "?",
            *([", ".join(row.get("principals", ()))] if logged_in else ()),
            _software(row),
            row["address"],
            f"{row['connections']:,}",
            f"{row['records_per_second']:,}",
            datetime.fromtimestamp(row["last_seen"], UTC).strftime("%Y-%m-%d %H:%M:%SZ"),
            ", ".join(f"{api} {_range(counts)}" for api, counts in row["requests"].items()),
            _verdict(row),
        )
        table.add_row(*(Text(visible(cell)) for cell in cells))
    lost = sum(not row["survives_kafka_4"] for row in rows)
    counts = f"{len(rows)} clients, {lost} of them too old for Kafka 4."
    if known.full:
        counts += " More may be connected: no more are kept."
    return "\n".join([table_text(table, width), counts, *_picking(rows), *_idempotent(rows)])


def _picking(rows: list[Row]) -> Iterator[str]:
    """Who seems to pick partitions itself: its records without a key must not move."""
    for row in rows:
        for found in row.get("picks_partitions", ()):  # an older Forebay tells of none
            yield (
                f"{visible(row['client_id'] or '?')} ({row['address']}) seems to pick partitions of "
                f"{visible(found['topic'])} itself: "
                f"it uses {found['used']} of {found['partitions']}."
            )


def _idempotent(rows: list[Row]) -> Iterator[str]:
    """What idempotent clients keep from being moved, by software, the most first."""
    records: Counter[str] = Counter()
    for row in rows:
        records[visible(_software(row))] += row.get("idempotent_null_key_records", 0)  # an older Forebay tells of none
    if found := [f"{software} {count:,}" for software, count in records.most_common() if count]:
        yield f"Records without a key left untouched since their client is idempotent, about: {', '.join(found)}."


def _software(row: Row) -> str:
    return " ".join(filter(None, (row["software_name"], row["software_version"]))) or "?"


def _range(counts: dict[str, int]) -> str:
    versions = sorted(map(int, counts))
    first, last = versions[0], versions[-1]
    return f"v{first}" if first == last else f"v{first}–{last}"


def _verdict(row: Row) -> str:
    if row["survives_kafka_4"]:
        return "yes"
    through = "only through Forebay" if row["bridged"] else "no"
    return f"{through}: {', '.join(row['too_old_for_kafka_4'])}"
