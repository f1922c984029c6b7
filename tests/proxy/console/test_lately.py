"""What has grown lately: within the time that is asked for, and in bounded memory."""

from __future__ import annotations

from forebay_proxy.console.lately import KEPT_S, STEP_S, Lately
from forebay_proxy.metrics.registry import Key

REFUSED: Key = ("forebay_errors_total", ("upstream", "answered"))
DROPPED: Key = ("forebay_journal_rows_dropped_total", ())


def looked(*counts: tuple[float, float]) -> Lately:
    """At the counter of refused batches: (second, count), one look after the other."""
    lately = Lately()
    for at, count in counts:
        lately.note({REFUSED: count}, at)
    return lately


def grown(lately: Lately, seconds: float) -> float:
    return lately.grown(seconds, REFUSED[0], *REFUSED[1])


def test_nothing_is_told_of_before_the_first_look() -> None:
    assert grown(Lately(), 60) == 0


def test_what_was_counted_at_the_first_look_is_new_for_as_long_as_what_comes_later() -> None:
    assert grown(looked((1000, 3)), 60) == 3
    assert grown(looked((1000, 3), (1059, 5)), 60) == 5
    assert grown(looked((1000, 3), (1060, 5)), 60) == 2


def test_what_is_over_is_forgotten_within_a_step() -> None:
    looks = [(float(at), 7.0 if at >= 100 else 0.0) for at in range(100 + 300 + int(STEP_S) + 1)]
    assert grown(looked(*looks[:400]), 300) == 7
    assert grown(looked(*looks), 300) == 0


def test_a_count_that_falls_has_not_grown() -> None:
    assert grown(looked((0, 9), (100, 4)), 60) == 0


def test_each_counter_for_itself() -> None:
    lately = Lately()
    lately.note({REFUSED: 2, DROPPED: 5, ("forebay_records_total", ("moved",)): 9}, 0.0)
    assert (grown(lately, 60), lately.grown(60, DROPPED[0])) == (2, 5)


def test_no_more_is_kept_than_is_asked_for() -> None:
    lately = looked(*((float(at), float(at)) for at in range(3 * int(KEPT_S))))
    assert len(lately._steps) <= KEPT_S / STEP_S + 2
    assert KEPT_S <= grown(lately, KEPT_S) <= KEPT_S + STEP_S
