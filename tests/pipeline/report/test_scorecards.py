"""A line for each client, and what would help it."""

from __future__ import annotations

import pytest

from forebay_pipeline.advice.facts import Clients, ClientUse, Picked
from forebay_pipeline.partitions.summary import Percentiles
from forebay_pipeline.report.scorecards import remarks, scorecards
from tests.pipeline.advice.made_up import client


def test_how_a_client_sends_and_is_served() -> None:
    took = Percentiles(2100, 60_000, 250_000)
    both = [client(versions=[1, 3], hosts=40, errors=3, took_us=took, reasons={"mixed": 750}), client("")]
    known = Clients(both, 5, first_us=7, last_us=100_000_007)
    found = scorecards(known, 1)
    assert dict(zip(found.header, found.rows[0], strict=True)) == {
        "client id": "till-7",
        "what would help": "too old for Kafka 4: upgrade it, or keep it behind Forebay",
        "requests/s": "10.0",
        "records/s": "50.0",
        "records/batch": "5.0",
        "merged %": "75.0",
        "p50 ms": "2.1",
        "p99 ms": "60.0",
        "errors": "3",
        "Produce": "v1, v3",
        "addresses": "40",
    }
    assert found.left_out == 6
    assert scorecards(known, 2).rows[1][0] == "(none)"


def test_users_are_named_where_there_are_any() -> None:
    found = scorecards(Clients([client(principal="User:alice"), client()]), 9)
    assert [row[1] for row in found.rows] == ["User:alice", ""]


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (client(), []),
        (client(picked=[Picked("t", 1, 9)]), ["seems to pick partitions of t itself (1 of 9): exclude it"]),
        (client(errors=10), ["1.0 % of its batches failed"]),
        (client(reasons={"topic_excluded": 600, "keyed": 400}), ["untouched: topic excluded"]),
        (client(records=1500), ["sends single records: linger.ms of its own would save it requests"]),
        (client(records=150, batches=100), []),
        (client(took_us=Percentiles(0, 30_001, 0)), ["waits longer than others"]),
        (client(took_us=Percentiles(0, 30_000, 0)), []),
    ],
)
def test_what_would_help(one: ClientUse, told: list[str]) -> None:
    assert list(remarks(one, 10_000.0)) == told


def test_of_two_clients_none_is_slower_than_others() -> None:
    slow = [client("a", took_us=Percentiles(0, 90_000, 0)), client("b", took_us=Percentiles(0, 1000, 0))]
    assert scorecards(Clients(slow), 9).rows[0][1] == ""
    usual = [*slow, client("c", took_us=Percentiles(0, 1000, 0))]
    assert scorecards(Clients(usual), 9).rows[0][1] == "waits longer than others"
