"""An AuditResult as text: a line for each topic, user and client, the findings, and a verdict at the end."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Final

from forebay_pipeline.audit.result import AuditResult, Counts, Finding, Kind, has_users
from forebay_pipeline.jobs.text_table import text_table

_SHOWN: Final = 10
"""Findings of each kind; the JSON has more."""

_ALWAYS: Final = ("acknowledged", "present", "missing", "duplicated", "altered", "out_of_order")
"""Columns that are always shown; others only if one of their cells is not 0."""


def as_text(result: AuditResult, width: int | None) -> str:
    """The whole result. `width` is the terminal's; with None every row of a table is one line."""
    return "\n\n".join(_blocks(result, width))


def _blocks(result: AuditResult, width: int | None) -> Iterator[str]:
    if result.rows:
        yield f"Audited: {result.rows:,} ledger rows, {_time(result.first_us)} to {_time(result.last_us)}."
    if result.clients:
        yield _clients(result, width)
    if any(topic.unclaimed or topic.later for topic in result.topics):
        rows = [(topic.topic, f"{topic.unclaimed:,}", f"{topic.later:,}") for topic in result.topics]
        yield _table(("topic", "unclaimed", "later"), rows, width)
    for kind in Kind:
        if getattr(result.totals, kind):
            found = [finding for finding in result.findings if finding.kind == kind]
            yield _findings(kind, found, width, users=has_users(result))
    yield "\n".join([*result.notes, *result.incomplete, _verdict(result)])


def _clients(result: AuditResult, width: int | None) -> str:
    counts = [name for name in Counts.__struct_fields__ if name in _ALWAYS or getattr(result.totals, name)]
    users = has_users(result)
    header = ["topic", *(["user"] if users else []), "client", *(name.replace("_", " ") for name in counts)]
    rows = [
        (
            line.topic,
            *([line.principal] if users else []),
            line.client_id or "?",
            *(f"{getattr(line, name):,}" for name in counts),
        )
        for line in result.clients
    ]
    if len(rows) > 1:
        rows.append(("all", *([""] if users else []), "", *(f"{getattr(result.totals, name):,}" for name in counts)))
    more = f"\n… and {result.clients_left_out:,} more" if result.clients_left_out else ""
    return _table(header, rows, width) + more


def _findings(kind: Kind, findings: Sequence[Finding], width: int | None, *, users: bool) -> str:
    who = ("user", "client") if users else ("client",)
    header = ("topic", "partition", "offsets", "records", *who, "connection", "request", "answered", "what")
    rows = [
        (
            each.topic,
            str(each.partition),
            f"{each.first_offset}–{each.last_offset}",
            f"{each.records:,}",
            *([each.principal] if users else []),
            each.client_id or "?",
            str(each.connection),
            str(each.number),
            _time(each.time_us),
            each.note,
        )
        for each in findings[:_SHOWN]
    ]
    more = "\n… and more" if len(findings) > _SHOWN else ""
    return f"{kind.replace('_', ' ').capitalize()}\n{_table(header, rows, width)}{more}"


def _verdict(result: AuditResult) -> str:
    totals = result.totals
    if totals.findings:
        found = ", ".join(
            f"{getattr(totals, kind):,} {kind.replace('_', ' ')}" for kind in Kind if getattr(totals, kind)
        )
        more = " The audit is incomplete, too." if result.incomplete else ""
        return f"FINDINGS, in records: {found}.{more}"
    there = f"{totals.present:,} of {totals.acknowledged:,} acknowledged records are there, once and unchanged"
    if result.incomplete:
        return f"INCOMPLETE: {there}, but not all was audited."
    return f"Clean: {there}."


def _time(microseconds: int | None) -> str:
    moment = datetime.datetime.fromtimestamp((microseconds or 0) / 1_000_000, datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.%fZ")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> str:
    numeric = [all(cell.replace(",", "").isdigit() for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(text_table(header, numeric, rows, width))
