"""Clients to be left alone, clients that could be merged, clients too old for Kafka 4."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from forebay_pipeline.advice import client_rules
from forebay_pipeline.advice.change import Change
from forebay_pipeline.advice.facts import Clients, Facts, Picked, TopicReason
from forebay_pipeline.advice.present import Present
from forebay_pipeline.replay.results import Measured, Unmerged
from forebay_policies.own_choices import CHOOSE_PARTITIONS_THEMSELVES
from tests.pipeline.advice.made_up import BATCHES, as_forebay_reads, client, facts
from tests.pipeline.replay.reports import report

MERGED = TopicReason("orders", "null_key", 800_000, 0)
PICKS = [Picked("orders", 2, 12)]


def untouched(reason: str, batches: int = 200_000, topic: str = "logs", client_id: str = "agent") -> Clients:
    return Clients(
        [client(), client(client_id, reasons={reason: batches})],
        reasons=[MERGED, TopicReason(topic, reason, batches, 0)],
    )


def test_who_picks_partitions_is_left_alone(tmp_path: Path) -> None:
    """1,000 of its batches are merged, four in one: without that 0.75 more requests a second."""
    known = Clients([client("a*b", picked=PICKS), client(), client("", picked=PICKS)])
    change = client_rules.pick_partitions(facts(clients=known))
    assert change is not None
    assert change.protects
    assert change.effect.requests == pytest.approx(0.75)
    assert "1 client (a*b): a*b sent its records without a key to 2 of 12 partitions of orders only" in change.evidence
    assert as_forebay_reads(tmp_path, change).client_ids_exclude == (*CHOOSE_PARTITIONS_THEMSELVES, "a[*]b")


def test_only_what_is_pasted_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """And that there is more is said."""
    monkeypatch.setattr(client_rules, "MOST_PATTERNS", 2)
    known = Clients([client(name, picked=PICKS) for name in ("a", "b", "c", "d")])
    change = client_rules.pick_partitions(facts(clients=known))
    assert change is not None
    assert change.settings == {"client.ids.exclude": (*CHOOSE_PARTITIONS_THEMSELVES, "a", "b")}
    assert change.effect.requests == pytest.approx(1.5)
    assert change.evidence.startswith("2 clients (a, b): ")
    assert change.evidence.endswith(" And 2 more clients: ask for advice again once these are set.")
    monkeypatch.setattr(client_rules, "MOST_PATTERNS", 1)
    change = client_rules.observed(facts(clients=OBSERVED))
    assert change is not None
    assert (change.title, change.settings) == ("Let 1 observed topic move", {"topics.move": ("logs",)})
    assert change.effect.requests == pytest.approx(-4.5)
    assert "5,000 client batches were only observed; merged they would have been 500: logs. And 1 more topic: " in (
        change.evidence
    )


def test_batches_of_topics_that_are_not_told_count_and_have_no_name() -> None:
    further = [TopicReason("", "observed", 9000, 10), TopicReason("", "topic_excluded", 9000, 0)]
    known = OBSERVED._replace(reasons=[*OBSERVED.reasons, *further])
    change = client_rules.observed(facts(clients=known))
    assert change is not None
    assert change.settings == {"topics.move": ("logs", "clicks")}
    assert change.effect.of_requests == pytest.approx(100 + 18.8)
    present = Present({"topics.exclude": ["*"]})
    assert client_rules.excluded_topics(facts(clients=known, present=present)) is None


def test_patterns_of_ones_own_are_kept(tmp_path: Path) -> None:
    known = Clients([client("a", picked=PICKS)])
    for written in ("billing-*, x", ["billing-*", "x"]):
        change = client_rules.pick_partitions(facts(clients=known, present=Present({"client.ids.exclude": written})))
        assert change is not None
        assert as_forebay_reads(tmp_path, change).client_ids_exclude == ("billing-*", "x", "a")
    assert client_rules.pick_partitions(facts(clients=Clients([client()]))) is None


def test_clients_too_old_for_kafka_4_are_named() -> None:
    known = Clients([client(f"till-{number}", versions=[number % 3, 7]) for number in range(7)])
    change = client_rules.too_old(facts(clients=known))
    assert change is not None
    assert change.evidence.startswith("7 clients (till-0, till-1, till-2, till-3, till-4 …) speak Produce v0, v1, v2,")
    assert change.effect.others == ("35,000 records of this time would have been refused without Forebay.",)
    assert (change.settings, change.effect.worth) == ({}, 0)
    assert client_rules.too_old(facts(clients=Clients([client(versions=[3])]))) is None


def test_what_is_untouched_because_of_idempotence_has_a_price() -> None:
    """200 batches a second, of which three in four would be saved, of the 100 requests of merged ones and these 200."""
    change = client_rules.idempotent(facts(clients=untouched("idempotent")))
    assert change is not None
    assert change.effect.requests == pytest.approx(-150)
    assert change.effect.of_requests == pytest.approx(300)
    assert "200,000 of 1,000,000 client batches" in change.evidence
    assert "1 client (agent)" in change.evidence
    assert change.settings == {}


def test_what_patterns_leave_out_is_to_be_observed_first(tmp_path: Path) -> None:
    present = Present({"topics.exclude": ["log*", "secret"], "topics.observe": "new"})
    change = client_rules.excluded_topics(facts(clients=untouched("topic_excluded"), present=present))
    assert change is not None
    settings = as_forebay_reads(tmp_path, change)
    assert (settings.topics_exclude, settings.topics_observe) == (("secret",), ("new", "log*"))
    assert change.effect.requests == pytest.approx(-150)
    present = Present({"client.ids.exclude": ["connector-producer-*", "ag*"]})
    change = client_rules.excluded_clients(facts(clients=untouched("client_excluded"), present=present))
    assert change is not None
    settings = as_forebay_reads(tmp_path, change)
    assert (settings.client_ids_exclude, settings.client_ids_observe) == (("connector-producer-*",), ("ag*",))


def test_patterns_that_nobody_knows_or_that_are_the_default_stay() -> None:
    assert client_rules.excluded_topics(facts(clients=untouched("topic_excluded"))) is None
    assert client_rules.excluded_topics(facts(clients=untouched("topic_excluded"), present=Present({}))) is None
    connect = untouched("client_excluded", client_id="connector-producer-x-0")
    assert client_rules.excluded_clients(facts(clients=connect, present=Present({}))) is None


OBSERVED = Clients(
    [client("agent", reasons={"observed": 9000}, picked=[Picked("shards", 1, 9)])],
    reasons=[
        TopicReason("logs", "observed", 5000, 500),
        TopicReason("clicks", "observed", 3000, 1000),
        TopicReason("shards", "observed", 900, 90),
        TopicReason("large", "observed", 900, 900),
    ],
)


def test_what_was_only_observed_may_move(tmp_path: Path) -> None:
    """Topics in which nobody picks partitions, and of which few batches would be left."""
    present = Present({"moves": "observe", "topics.move": "orders"})
    change = client_rules.observed(facts(clients=OBSERVED, present=present))
    assert change is not None
    assert as_forebay_reads(tmp_path, change).topics_move == ("orders", "logs", "clicks")
    assert change.effect.requests == pytest.approx(-6.5)
    assert change.effect.of_requests == pytest.approx(100 + 9.8)
    assert change.effect.ms is None
    assert (
        "8,000 client batches were only observed; merged they would have been 1,500: logs, clicks." in change.evidence
    )
    guessed = client_rules.observed(facts(clients=OBSERVED))
    assert guessed is not None
    assert "for granted" in guessed.how


def test_what_is_to_be_observed_whatever_else_is_said_would_not_move() -> None:
    """topics.observe is over topics.move."""
    present = Present({"moves": "observe", "topics.observe": ["log*"]})
    change = client_rules.observed(facts(clients=OBSERVED, present=present))
    assert change is not None
    assert change.settings == {"topics.move": ("clicks",)}


def test_rates_of_clients_are_of_the_time_in_which_they_sent() -> None:
    """A day, of which 12,000 requests went to brokers in the last two minutes."""
    day_us = 86_400_000_000
    few = BATCHES._replace(requests=12_000)
    clients = OBSERVED._replace(reasons=[TopicReason("logs", "observed", 20_000, 5000)], last_us=day_us)
    change = client_rules.observed(facts(clients=clients, batches=few, first_us=day_us - 120_000_000, last_us=day_us))
    assert change is not None
    assert change.effect.requests == pytest.approx(-15_000 / 86_400)
    assert change.effect.of_requests == pytest.approx(100 + 20_000 / 86_400)


def test_a_replay_tells_what_moving_does_to_latency() -> None:
    before = Unmerged(9.0, 1.0, 20.0, 100.0, 1.0, 1000, 1000)
    found = msgspec.structs.replace(report(0), measured=None, unmerged=before)
    change = client_rules.observed(facts(clients=OBSERVED, replay=found))
    assert change is not None
    assert change.effect.ms == pytest.approx(-1.0)
    assert change.effect.of_ms == 9.0


@pytest.mark.parametrize(("measured", "observed"), [(report(0).measured, 1000), (None, 999)], ids=["ledger", "batches"])
def test_a_replay_of_what_was_merged_and_what_was_not_does_not(measured: Measured | None, observed: int) -> None:
    """Its average is of both."""
    before = Unmerged(9.0, 1.0, 20.0, 100.0, 1.0, observed, observed)
    found = msgspec.structs.replace(report(0), measured=measured, unmerged=before)
    change = client_rules.observed(facts(clients=OBSERVED, replay=found))
    assert change is not None
    assert change.effect.ms is None


def test_without_enough_evidence_nothing_is_said_of_what_was_observed() -> None:
    assert client_rules.observed(facts(clients=OBSERVED, present=Present({"moves": "on"}))) is None
    few = OBSERVED._replace(reasons=OBSERVED.reasons[2:])
    assert client_rules.observed(facts(clients=few)) is None


def test_what_is_too_large_may_be_decompressed(tmp_path: Path) -> None:
    change = client_rules.too_large(facts(clients=untouched("too_large", 20_000)))
    assert change is not None
    assert as_forebay_reads(tmp_path, change).max_decompressed_bytes == 2 * 67_108_864
    most = Present({"max.decompressed.bytes": 2**31 - 1})
    assert client_rules.too_large(facts(clients=untouched("too_large"), present=most)) is None


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"clients": untouched("idempotent", 50_000)},
        {"clients": untouched("idempotent"), "batches": BATCHES._replace(batches=900)},
        {"clients": untouched("idempotent"), "batches": BATCHES._replace(runs=200_000)},
    ],
    ids=["unknown", "few", "nobody knows what merging does", "merging does nothing"],
)
def test_without_enough_evidence_nothing_is_said_of_clients(given: dict[str, object]) -> None:
    rules: tuple[Callable[[Facts], Change | None], ...] = (
        client_rules.idempotent,
        client_rules.excluded_topics,
        client_rules.excluded_clients,
        client_rules.too_large,
    )
    assert [rule(facts(**given)) for rule in rules] == [None] * 4
