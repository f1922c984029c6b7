"""The first thing on the report's page: what to change, as cards.

In: Facts. Out: a Card for each change that is advised, whose texts are not escaped yet, and notes: what the advice did
not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from forebay_pipeline.advice.advise import advise
from forebay_pipeline.advice.change import Change, Effect
from forebay_pipeline.advice.facts import Facts

LITTLE_CPU: Final = 0.005
"""Cores."""


class Expected(NamedTuple):
    """One number of what is expected."""

    name: str
    value: str
    note: str = ""
    better: bool | None = None
    """None: neither better nor worse."""


class Card(NamedTuple):
    """A change as people read it."""

    change: Change
    expected: Sequence[Expected]


def cards(facts: Facts) -> list[Card]:
    """What to change, the most worthwhile first."""
    return [Card(change, list(expected(change.effect))) for change in advise(facts)]


def notes(facts: Facts) -> Iterator[str]:
    """What would have told more."""
    if not facts.present.known:
        yield "The settings are taken to be Forebay's defaults: --config FILE.toml tells others."
    if not facts.clients.clients:
        yield "Nothing is known about individual clients: the journal has no ledger (journal.ledger)."
    if facts.replay is None:
        yield "Effects are estimates: --replay FILE.json brings simulated ones."


def expected(effect: Effect) -> Iterator[Expected]:
    """Average latency, requests to brokers and their CPU always, others where there is something to say."""
    ms, requests, cores = effect.ms, effect.requests, effect.cores
    if ms is None:
        yield Expected("Mean latency", "not known")
    else:
        yield Expected("Mean latency", _signed(ms, "ms"), _part(ms, effect.of_ms, "ms"), _better(ms))
    if requests is None or cores is None:
        yield Expected("Requests", "not known")
        yield Expected("Brokers' CPU", "not known")
    else:
        note = _part(requests, effect.of_requests, "/s")
        yield Expected("Requests", _signed(requests, "/s"), note, _better(requests))
        if 0 < abs(cores) < LITTLE_CPU:
            yield Expected("Brokers' CPU", "hardly any")
        else:
            yield Expected(
                "Brokers' CPU", _signed(cores, "cores"), "0.12 ms a request" if cores else "", _better(cores)
            )
    for name, part, of in (
        ("Across racks", effect.crossing, "of all bytes, at best"),
        ("Memory waits", effect.blocked, "of seconds, at best"),
    ):
        if part is not None:
            yield Expected(name, f"{100 * part:+.0f} %".replace("-", "−"), of, _better(part))


def _signed(number: float, unit: str) -> str:
    """−240 /s, +0.03 cores; 0 is `unchanged`."""
    if not number:
        return "unchanged"
    size = abs(number)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3
    return f"{'+' if number > 0 else '−'}{size:,.{digits}f} {unit}"


def _part(number: float, of: float, unit: str) -> str:
    if not number or not of:
        return ""
    return f"{100 * number / of:+.0f} % of {of:,.{0 if of >= 100 else 1}f} {unit}".replace("-", "−")


def _better(number: float) -> bool | None:
    return number < 0 if number else None
