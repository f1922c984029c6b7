"""What the commands that change a running Forebay ask and print: `forebay reload` and its neighbours.

In: what people write, what its API answers. Out: text without a trailing newline.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from forebay_proxy.commands.text_output import table_text
from forebay_proxy.config.overriding import Override, overlaid_values
from forebay_proxy.config.sources import Loaded
from forebay_proxy.config.values import SETTINGS
from forebay_proxy.security.renewals import SECRETS

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FOR: Final = re.compile(r"(\d{1,9})(ms|s|m|h|d)")


def reloaded(told: dict[str, Any]) -> str:
    """What `forebay reload` has changed."""
    changes: dict[str, str] = told["changes"]
    generation = told["generation"]
    in_force = f"In force in all workers, as generation {generation}."
    lines = [f"{name}: {change}" for name, change in changes.items()]
    lines.append(in_force if changes else f"No setting has changed: generation {generation} stays in force.")
    if told["renewed"]:
        lines.append(f"Certificates and secrets renewed of {', '.join(told['renewed'])}.")
    for of, why in told["not_renewed"].items():
        known = f"Not renewed, so those in use stay: {of}: {why}"
        lines.append(f"Not known of {of}: {why}; the log will say" if of == SECRETS else known)
    return "\n".join(lines)


def milliseconds(written: str) -> int:
    """30m → 1800000. Raises ValueError."""
    found = _FOR.fullmatch(written.strip())
    if found is None:
        raise ValueError("must be a number with ms, s, m, h or d, such as 30m")
    return int(found[1]) * _UNITS[found[2]]


def override(assignments: Sequence[str], reason: str, for_ms: int | None) -> dict[str, Any]:
    """What POST /overrides takes. Raises ValueError."""
    settings = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise ValueError(f"{assignment}: must be NAME=VALUE or NAME+=VALUE")
        name = "".join(name.split())
        if name in settings:
            raise ValueError(f"{assignment}: {name} must be named once")
        settings[name] = value.strip()
    asked: dict[str, Any] = {"settings": settings, "reason": reason}
    return asked if for_ms is None else {**asked, "for_ms": for_ms}


def overrides(told: dict[str, Any], width: int | None) -> str:
    """One row for each that is in force."""
    if not told["rows"]:
        return "Nothing is overridden."
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    replaces = any(row["instead_of"] for row in told["rows"])
    for column in ("setting", "value", *(["instead of"] if replaces else []), "until", "reason"):
        table.add_column(column, overflow="fold")
    for row in told["rows"]:
        name = f"{row['name']} +=" if row["adds"] else row["name"]
        below = [row["instead_of"]] if replaces else []
        table.add_row(*map(Text, (name, row["value"], *below, until(row["expires_at"]), row["reason"])))
    return table_text(table, width)


def drained(node_id: int, told: dict[str, Any]) -> str:
    """What waits for a broker, and is under way."""
    if told["drained"]:
        return f"Nothing waits for broker {node_id}, and nothing is under way."
    waits, away = told["queued_bytes"], told["in_flight_requests"]
    silent = "".join(f" Worker {number} does not answer." for number in told["silent_workers"])
    return f"Broker {node_id}: {waits:,} bytes wait or are under way, {away:,} requests are unanswered.{silent}"


def until(expires_at: float) -> str:
    """A time of day, for people."""
    return datetime.fromtimestamp(expires_at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def overlaid(loaded: Loaded, told: dict[str, Any]) -> Loaded:
    """What is overridden, above what this command's sources say."""
    rows = [{**row, "value": SETTINGS[row["name"]].parse(row["value"])} for row in told["rows"]]
    overrides = msgspec.convert(rows, list[Override])
    origins: dict[str, str] = {}
    for each in overrides:
        before = f"{origins[each.name]}; " if each.name in origins else ""
        origins[each.name] = f"{before}override until {until(each.expires_at)}: {each.reason}"
    values = overlaid_values(loaded.values, overrides)
    return replace(loaded, values={**loaded.values, **values}, origins={**loaded.origins, **origins})
