"""What stands on the cards of the first screen, without the page."""

from __future__ import annotations

import pytest

from forebay_pipeline.advice.change import Effect
from forebay_pipeline.advice.present import Present
from forebay_pipeline.report.advised import Expected, cards, expected, notes
from tests.pipeline.advice.made_up import CLIENTS, client, facts, worker
from tests.pipeline.replay.reports import report


def test_a_card_for_each_change() -> None:
    known = facts(
        workers=[worker(seconds_waited=40, pool_waits=96)], clients=CLIENTS._replace(clients=[client(versions=[1])])
    )
    found = cards(known)
    assert [card.change.name for card in found] == ["memory", "too-old"]
    assert found[0].expected == [
        Expected("Mean latency", "not known"),
        Expected("Requests", "unchanged"),
        Expected("Brokers' CPU", "unchanged"),
        Expected("Memory waits", "−4 %", "of seconds, at best", better=True),
    ]
    assert cards(facts()) == []


@pytest.mark.parametrize(
    ("effect", "shown"),
    [
        (Effect(ms=-5.25, of_ms=10.5), Expected("Mean latency", "−5.25 ms", "−50 % of 10.5 ms", better=True)),
        (Effect(ms=0.012), Expected("Mean latency", "+0.012 ms", better=False)),
        (
            Effect(requests=-2400, of_requests=4000),
            Expected("Requests", "−2,400 /s", "−60 % of 4,000 /s", better=True),
        ),
        (Effect(requests=-2400), Expected("Brokers' CPU", "−0.29 cores", "0.12 ms a request", better=True)),
        (Effect(requests=32), Expected("Brokers' CPU", "hardly any")),
        (Effect(requests=32), Expected("Requests", "+32.0 /s", better=False)),
        (Effect(crossing=-0.6), Expected("Across racks", "−60 %", "of all bytes, at best", better=True)),
    ],
)
def test_numbers_have_a_sign_and_a_unit(effect: Effect, shown: Expected) -> None:
    assert shown in list(expected(effect))


def test_what_would_have_told_more_is_said() -> None:
    assert len(list(notes(facts()))) == 3
    known = facts(present=Present({}), replay=report(0), clients=CLIENTS._replace(clients=[client()]))
    assert list(notes(known)) == []
