"""What a person should look at, and nothing where all is well."""

from __future__ import annotations

from typing import Any

import pytest

from forebay_policies.own_choices import TopicChoices
from forebay_proxy.console.collector import ClientView
from forebay_proxy.console.problems import problems
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.registry import Snapshot
from forebay_proxy.security.expiry import SOON_S

NOW = 1_000_000.0
OLD = ClientView(SeenClient("till-7", "10.0.0.1", None, None, requests={0 << 16 | 1: 5}), None, 1.0)
NEW = ClientView(SeenClient("app", "10.0.0.2", None, None, requests={0 << 16 | 9: 5}), None, 1.0)


def test_all_is_well() -> None:
    well = Snapshot(
        counters={("forebay_journal_rows_dropped_total", ()): 0},
        gauges={
            ("forebay_broker_up", ("1",)): 1,
            ("forebay_brokers_without_port", ()): 0,
            ("forebay_buffer_memory_waiters", ()): 0,
            ("forebay_security_last_reload_successful", ("client",)): 1,
            ("forebay_certificate_expiry_timestamp_seconds", ("client",)): NOW + SOON_S + 1,
            ("forebay_certificate_expiry_timestamp_seconds", ("upstream",)): float("inf"),
        },
    )
    assert problems(well, [NEW], None, NOW) == []


def test_who_seems_to_pick_partitions_is_named() -> None:
    found = [
        ClientView(
            SeenClient(f"till-{at}", "10.0.0.1", None, None, choices={"orders": TopicChoices(12, 50, [1])}), None, 1.0
        )
        for at in range(7)
    ]
    (problem,) = problems(Snapshot(), [*found, NEW], None, NOW)
    assert problem["kind"] == "picks_partitions"
    assert problem["text"] == "7 clients seem to pick partitions: till-0, till-1, till-2, till-3, till-4"
    (problem,) = problems(Snapshot(), found[:1], None, NOW)
    assert problem["text"] == "1 client seems to pick partitions: till-0"


@pytest.mark.parametrize(
    ("gauge", "level", "kind", "text"),
    [
        (("forebay_broker_up", ("2",)), 0, "broker_down", "1 broker cannot be reached: 2"),
        (
            ("forebay_brokers_without_port", ()),
            2,
            "no_port",
            "clients are not told of a broker, since a listener has no port for it; the log says why",
        ),
        (("forebay_buffer_memory_waiters", ()), 2, "memory", "2 clients wait for buffer.memory"),
        (
            ("forebay_config_last_reload_successful", ()),
            0,
            "settings_refused",
            "the settings were read again and refused; the log says why",
        ),
        (
            ("forebay_security_last_reload_successful", ("admin",)),
            0,
            "reload_failed",
            "new certificates or secrets cannot be used (admin); the log says why",
        ),
        (
            ("forebay_certificate_expiry_timestamp_seconds", ("client",)),
            NOW + 86_400 * 3 + 5,
            "certificate",
            "a certificate (client) expires in 3 days",
        ),
        (
            ("forebay_certificate_expiry_timestamp_seconds", ("upstream",)),
            NOW,
            "certificate",
            "a certificate (upstream) has expired",
        ),
    ],
)
def test_each_is_said(gauge: tuple[str, tuple[str, ...]], level: float, kind: str, text: str) -> None:
    (problem,) = problems(Snapshot(gauges={gauge: level}), [], None, NOW)
    assert (problem["kind"], problem["text"]) == (kind, text)


def test_the_most_urgent_comes_first() -> None:
    dropped = Snapshot(counters={("forebay_journal_rows_dropped_total", ()): 1})
    found = problems(dropped, [OLD, NEW], "draining", NOW)
    assert [problem["kind"] for problem in found] == ["not_ready", "journal_dropped", "too_old"]
    assert [problem["text"] for problem in found] == [
        "takes no clients: draining",
        "1 journal row dropped: an audit of that time is incomplete",
        "1 client too old for Kafka 4",
    ]


def test_what_is_overridden_is_said_with_its_end_and_reason() -> None:
    overridden = {"name": "linger.ms", "expires_at": 1_764_032_553.0, "reason": "a <b>test"}
    rows: list[dict[str, Any]] = [overridden, {"name": "max.connections"}]
    (problem,) = problems(Snapshot(), [], None, NOW, rows)
    text = "linger.ms is overridden until 01:02 UTC on 25 November: a <b>test"
    assert (problem["severity"], problem["kind"], problem["text"]) == ("warning", "override", text)
