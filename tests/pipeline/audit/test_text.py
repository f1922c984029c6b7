"""What people read of an audit."""

from __future__ import annotations

import msgspec

from forebay_pipeline.audit.result import AuditResult, ClientLine, Counts, Finding, Kind, TopicLine
from forebay_pipeline.audit.text import as_text
from tests.pipeline.rows import START_US

CLEAN_RESULT = AuditResult(
    first_us=START_US,
    last_us=START_US + 1,
    rows=1234,
    totals=Counts(acknowledged=5000, present=5000),
    clients=[ClientLine(topic="orders", client_id="", acknowledged=5000, present=5000)],
    clients_left_out=0,
    topics=[TopicLine("orders", 0, 0)],
    findings=[],
    rows_dropped=0,
    lines_torn=0,
    notes=[],
)


def test_the_text_where_all_is_well() -> None:
    assert as_text(CLEAN_RESULT, None).splitlines() == [
        "Audited: 1,234 ledger rows, 2026-11-18 11:06:40.000000Z to 2026-11-18 11:06:40.000001Z.",
        "",
        " topic    client   acknowledged   present   missing   altered   duplicated   out of order",
        " ────────────────────────────────────────────────────────────────────────────────────────",
        " orders   ?               5,000     5,000         0         0            0              0",
        "",
        "Clean: 5,000 of 5,000 acknowledged records are there, once and unchanged.",
    ]


def test_the_text_of_findings() -> None:
    note = "later offsets exist"
    finding = Finding(
        kind=Kind.MISSING,
        topic="orders",
        partition=3,
        first_offset=7,
        last_offset=8,
        records=2,
        client_id="billing",
        process="here-1",
        connection=5,
        number=9,
        time_us=START_US,
        note=note,
    )
    lines = [
        ClientLine(topic="orders", client_id=name, acknowledged=10, present=8, missing=2, expired=0)
        for name in ("billing", "shop")
    ]
    result = msgspec.structs.replace(
        CLEAN_RESULT,
        totals=Counts(acknowledged=20, present=16, missing=4, not_followed=3),
        clients=lines,
        clients_left_out=7,
        topics=[TopicLine("orders", 11, 12)],
        findings=[finding] * 11,
        notes=["A note."],
    )
    text = as_text(result, None)
    assert "all              " in text
    assert "not followed" in text
    assert "expired" not in text
    assert "… and 7 more" in text
    assert text.count(note) == 10
    assert "… and more" in text
    assert text.endswith("A note.\nFINDINGS, in records: 4 missing.")
    row = next(line for line in text.splitlines() if "7–8" in line)
    assert row.split()[:7] == ["orders", "3", "7–8", "2", "billing", "5", "9"]


def test_where_clients_are_served_as_users_the_text_names_them() -> None:
    lines = [
        ClientLine(topic="orders", client_id="till", principal=user, acknowledged=10, present=10)
        for user in ("User:alice", "")
    ]
    result = msgspec.structs.replace(CLEAN_RESULT, clients=lines)
    rows = [line.split() for line in as_text(result, None).splitlines()]
    assert ["topic", "user", "client"] in [row[:3] for row in rows]
    assert ["orders", "User:alice", "till", "10", "10", "0", "0", "0", "0"] in rows
    assert ["orders", "till", "10", "10", "0", "0", "0", "0"] in rows
    assert "user" not in as_text(CLEAN_RESULT, None)
