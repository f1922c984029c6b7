"""What a person should look at, and nothing where all is well."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from forebay_policies.own_choices import TopicChoices
from forebay_proxy.console.collector import ClientView
from forebay_proxy.console.lately import Lately
from forebay_proxy.console.problems import DAY_S, INCOMPLETE_S, LATELY_S, problems
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.registry import Key, Snapshot
from forebay_proxy.security.expiry import SOON_S
from tests.kit.paths import ROOT

NOW = 1_000_000.0
QUIET = Lately()
DROPPED: Key = ("forebay_journal_rows_dropped_total", ())
OLD = ClientView(SeenClient("till-7", "10.0.0.1", None, None, requests={0 << 16 | 1: 5}), None, 1.0)
NEW = ClientView(SeenClient("app", "10.0.0.2", None, None, requests={0 << 16 | 9: 5}), None, 1.0)


def counted(key: Key, count: float, ago: float = 0.0) -> Lately:
    """It was counted so many seconds ago, and nothing since."""
    lately = Lately()
    for at in range(int(ago) + 1):
        lately.note({key: count}, float(at))
    return lately


def test_all_is_well() -> None:
    well = Snapshot(
        gauges={
            ("forebay_broker_up", ("1",)): 1,
            ("forebay_brokers_without_port", ()): 0,
            ("forebay_buffer_memory_waiters", ()): 0,
            ("forebay_security_last_reload_successful", ("client",)): 1,
            ("forebay_certificate_expiry_timestamp_seconds", ("client",)): NOW + SOON_S + 1,
            ("forebay_certificate_expiry_timestamp_seconds", ("upstream",)): float("inf"),
        },
    )
    assert problems(well, [NEW], None, NOW, QUIET) == []


def test_who_seems_to_pick_partitions_is_named() -> None:
    found = [
        ClientView(
            SeenClient(f"till-{at}", "10.0.0.1", None, None, choices={"orders": TopicChoices(12, 50, [1])}), None, 1.0
        )
        for at in range(7)
    ]
    (problem,) = problems(Snapshot(), [*found, NEW], None, NOW, QUIET)
    assert problem["kind"] == "picks_partitions"
    assert problem["text"] == "7 clients seem to pick partitions: till-0, till-1, till-2, till-3, till-4"
    (problem,) = problems(Snapshot(), found[:1], None, NOW, QUIET)
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
    (problem,) = problems(Snapshot(gauges={gauge: level}), [], None, NOW, QUIET)
    assert (problem["kind"], problem["text"]) == (kind, text)


def test_what_is_wrong_with_workers_is_said() -> None:
    (problem,) = problems(Snapshot(), [], None, NOW, QUIET, ailing=["worker 1 does not answer"])
    assert problem == {"severity": "warning", "kind": "workers", "text": "worker 1 does not answer"}


@pytest.mark.parametrize(
    ("labels", "kind", "one", "several"),
    [
        (
            ("upstream", "authentication"),
            "login_refused",
            "brokers refused Forebay's login 1 time in the last 5 minutes; the log says why",
            "brokers refused Forebay's login 1,200 times in the last 5 minutes; the log says why",
        ),
        (
            ("upstream", "answered"),
            "records_refused",
            "brokers refused 1 batch in the last 5 minutes",
            "brokers refused 1,200 batches in the last 5 minutes",
        ),
        (
            ("internal", "refused"),
            "records_not_sent",
            "1 batch in the last 5 minutes refused before being sent, as where a topic may not be seen",
            "1,200 batches in the last 5 minutes refused before being sent, as where a topic may not be seen",
        ),
        (
            ("internal", "expired"),
            "records_expired",
            "1 Produce request in the last 5 minutes not acknowledged in the client's time",
            "1,200 Produce requests in the last 5 minutes not acknowledged in the client's time",
        ),
        (
            ("upstream", "outcome_unknown"),
            "outcome_unknown",
            "1 batch in the last 5 minutes told as failed that may have been appended",
            "1,200 batches in the last 5 minutes told as failed that may have been appended",
        ),
    ],
)
def test_what_was_counted_lately_is_said(labels: tuple[str, str], kind: str, one: str, several: str) -> None:
    key = ("forebay_errors_total", labels)
    for count, text in ((1, one), (1200, several)):
        (problem,) = problems(Snapshot(), [], None, NOW, counted(key, count, LATELY_S - 1))
        assert problem == {"severity": "critical", "kind": kind, "text": text}
    assert problems(Snapshot(), [], None, NOW, counted(key, 1, LATELY_S)) == [], "it is over"


def test_rows_that_were_dropped_are_said_for_longer_and_not_for_ever() -> None:
    (problem,) = problems(Snapshot(), [], None, NOW, counted(DROPPED, 2, INCOMPLETE_S - 1))
    assert problem["kind"] == "journal_dropped"
    assert problems(Snapshot(), [], None, NOW, counted(DROPPED, 2, INCOMPLETE_S)) == []


def test_a_certificate_is_urgent_in_its_last_day() -> None:
    expiry = ("forebay_certificate_expiry_timestamp_seconds", ("client",))
    for left, severity in ((DAY_S, "warning"), (DAY_S - 1, "critical"), (-5, "critical")):
        (problem,) = problems(Snapshot(gauges={expiry: NOW + left}), [], None, NOW, QUIET)
        assert problem["severity"] == severity


@pytest.mark.parametrize(
    ("alert", "snapshot", "lately"),
    [
        ("ForebayBrokerDown", Snapshot(gauges={("forebay_broker_up", ("2",)): 0}), QUIET),
        ("ForebayBrokerWithoutPort", Snapshot(gauges={("forebay_brokers_without_port", ()): 1}), QUIET),
        ("ForebayMemoryExhausted", Snapshot(gauges={("forebay_buffer_memory_waiters", ()): 1}), QUIET),
        ("ForebaySettingsRefused", Snapshot(gauges={("forebay_config_last_reload_successful", ()): 0}), QUIET),
        ("ForebayReloadFailed", Snapshot(gauges={("forebay_security_last_reload_successful", ("admin",)): 0}), QUIET),
        ("ForebayLoginRefused", Snapshot(), counted(("forebay_errors_total", ("upstream", "authentication")), 1)),
        ("ForebayRecordsRefused", Snapshot(), counted(("forebay_errors_total", ("internal", "refused")), 1)),
        ("ForebayRecordsExpired", Snapshot(), counted(("forebay_errors_total", ("internal", "expired")), 1)),
        ("ForebayJournalRowsDropped", Snapshot(), counted(DROPPED, 1)),
    ],
)
def test_the_alert_for_it_is_as_severe(alert: str, snapshot: Snapshot, lately: Lately) -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/forebay.rules.yaml").read_text())["groups"][0]["rules"]
    (severity,) = [rule["labels"]["severity"] for rule in rules if rule["alert"] == alert]
    (problem,) = problems(snapshot, [], None, NOW, lately)
    assert problem["severity"] == severity


def test_the_most_urgent_comes_first() -> None:
    found = problems(Snapshot(), [OLD, NEW], "draining", NOW, counted(DROPPED, 1))
    assert [problem["kind"] for problem in found] == ["not_ready", "journal_dropped", "too_old"]
    assert [problem["text"] for problem in found] == [
        "takes no clients: draining",
        "1 journal row dropped in the last 15 minutes: an audit of that time is incomplete",
        "1 client too old for Kafka 4",
    ]


@pytest.mark.parametrize(("below", "told"), [("", ""), ("20", ", instead of 20")])
def test_what_is_overridden_is_said_with_its_end_and_reason(below: str, told: str) -> None:
    overridden = {"name": "linger.ms", "expires_at": 1_764_032_553.0, "reason": "a <b>test", "instead_of": below}
    rows: list[dict[str, Any]] = [overridden, {"name": "max.connections"}]
    (problem,) = problems(Snapshot(), [], None, NOW, QUIET, rows)
    text = f"linger.ms is overridden until 01:02 UTC on 25 November{told}: a <b>test"
    assert (problem["severity"], problem["kind"], problem["text"]) == ("warning", "override", text)
