"""The sentences that an audit has for what it could not see."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from forebay_pipeline.audit.incomplete import incomplete
from forebay_pipeline.audit.losses import Gap, Losses
from forebay_pipeline.audit.result import Counts

NOTHING = Losses(
    dropped=0,
    totals={},
    torn={},
    gaps=[],
    beginnings=[],
    vanished=[],
    ends=[],
    unnumbered=0,
    ledger_rows=0,
    repeated=3,
    without_ledger=[],
    cluster_id="A",
    others={"there": "B"},
    only_others=False,
    elsewhere={"there": 1},
    followed={},
)


def sentences(totals: Counts, losses: Losses = NOTHING, **seen: Any) -> list[str]:
    return list(incomplete(totals, losses, **{"deleted": 0, "unknown": [], **seen}))


def test_where_all_was_there_and_followed_there_is_none() -> None:
    assert sentences(Counts(acknowledged=5, present=4, missing=1, unacknowledged=7, compacted=3)) == []


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        ({"dropped": 1234}, "Dropped: 1,234 journal rows"),
        ({"torn": {"a": 2, "b": 1}}, "Unreadable: 3 lines"),
        (
            {"gaps": [Gap("p", "ledger", [(2, 2), (4, 1005)])]},
            "Not there: 1,003 journal rows, by their numbers: p, ledger",
        ),
        ({"beginnings": ["p"]}, "Not there: the first rows"),
        ({"vanished": ["p-7-0-a"]}, "Not there: all files of processes that others knew when they began: p-7-0-a."),
        ({"ends": list("abcdefg")}, "Not there: the last rows of processes that are gone: a; b; c; d; e and 2 more."),
        ({"unnumbered": 3}, "Not numbered: 3 ledger rows"),
        (
            {"without_ledger": ["p", "q"]},
            "No ledger: processes that had records acknowledged and wrote no ledger row: p; q. None",
        ),
        (
            {"only_others": True},
            "Nothing of cluster A, which was asked: all processes in the journal are in front of others: B.",
        ),
    ],
)
def test_what_the_journal_lost(lost: dict[str, object], sentence: str) -> None:
    (told,) = sentences(Counts(), NOTHING._replace(**lost))  # type: ignore[arg-type]
    assert told.startswith(sentence)


def test_what_was_deleted_meanwhile() -> None:
    (told,) = sentences(Counts(), deleted=1234)
    assert told.startswith("Deleted while it was audited: 1,234 ledger rows.")


def test_what_topics_have_lost_since() -> None:
    assert sentences(Counts(), anew=["t is not what it was."]) == ["Gone since it was audited: t is not what it was."]


def test_topics_that_nothing_is_known_of() -> None:
    (told,) = sentences(Counts(), unknown=["click", "order"])
    assert told.startswith("Nothing of topics that were asked for: click; order. No ledger row ")


def test_what_does_not_say_how_many_records_it_is_of() -> None:
    (told,) = sentences(Counts(), uncounted=1234)
    assert told.startswith("Not counted: 1,234 batches that passed through untouched")


def test_what_was_acknowledged_without_a_place() -> None:
    (told,) = sentences(Counts(not_followed=9), unplaced=9)
    assert told.startswith("Not placed: 9 records were acknowledged, but the broker did not say where they are")
    assert len(sentences(Counts(not_followed=10), unplaced=9)) == 2


def test_what_more_parts_begin_with_than_are_compared() -> None:
    (told,) = sentences(Counts(), uncompared=1234)
    assert told.startswith("Not compared: 1,234 records that nobody claims, with which more than 100 different parts ")


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        ("not_followed", "Not followed, by design: 9 records"),
        ("not_judged", "Not judged: 9 acknowledged records"),
        ("expired", "Expired, as retention allows: 9 acknowledged records"),
    ],
)
def test_what_was_not_looked_at(count: str, sentence: str) -> None:
    (told,) = sentences(msgspec.structs.replace(Counts(), **{count: 9}))
    assert told.startswith(sentence)
