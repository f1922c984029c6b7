"""Arithmetic over what is claimed, what is there and what was audited before."""

from __future__ import annotations

import pytest

from forebay_pipeline.audit.ranges import (
    Claimed,
    Ends,
    Range,
    TopicNow,
    begun_anew,
    expired_meanwhile,
    grown,
    ranges,
    without_expired,
    written_again,
)


def one(claimed: tuple[int, int], ends: tuple[int, int] | None, audited: int | None = None) -> Range:
    topics = {"t": TopicNow({0: Ends(*ends)})} if ends is not None else {}
    (found,) = ranges([Claimed("t", 0, *claimed)], topics, {"t": {0: audited}} if audited is not None else {})
    return found


@pytest.mark.parametrize(
    ("claimed", "ends", "audited", "read", "settled"),
    [
        pytest.param((100, 500), (0, 900), None, (100, 500), 100, id="all-there"),
        pytest.param((100, 500), (90, 450), 80, (90, 450), 80, id="the-docstring"),
        pytest.param((60, 500), (0, 500), 80, (60, 500), 80, id="claims-that-come-late"),
        pytest.param((100, 500), (200, 500), None, (200, 500), 100, id="expired-in-part"),
        pytest.param((100, 500), (600, 700), None, (600, 600), 100, id="expired"),
        pytest.param((100, 500), (0, 50), None, (100, 100), 100, id="cut-before"),
        pytest.param((100, 500), None, None, (100, 100), 100, id="gone"),
    ],
)
def test_what_is_read(
    claimed: tuple[int, int],
    ends: tuple[int, int] | None,
    audited: int | None,
    read: tuple[int, int],
    settled: int,
) -> None:
    found = one(claimed, ends, audited)
    assert ((found.first, found.end), found.settled, found.gone) == (read, settled, ends is None)


def test_places_tell_partitions_apart() -> None:
    claimed = [Claimed("b", 0, 0, 1), Claimed("a", 1, 0, 1), Claimed("a", 0, 0, 1)]
    topics = {"a": TopicNow({0: Ends(0, 5), 1: Ends(0, 7)}, compacted=True), "b": TopicNow({})}
    found = ranges(claimed, topics, {})
    assert [(each.place, each.topic, each.partition, each.latest, each.compacted) for each in found] == [
        (0, "a", 0, 5, True),
        (1, "a", 1, 7, True),
        # There, but for this partition: all of it is missing.
        (2, "b", 0, 0, False),
    ]


def test_a_topic_that_ends_before_what_was_audited() -> None:
    audited = {"cut": {0: 10, 1: 10}, "grown": {0: 10}, "gone": {0: 10}, "smaller": {0: 10, 1: 10}}
    topics = {
        "cut": TopicNow({0: Ends(0, 10), 1: Ends(0, 9)}),
        "grown": TopicNow({0: Ends(5, 11)}),
        "smaller": TopicNow({0: Ends(0, 10)}),
    }
    found = begun_anew(audited, {}, topics)
    assert set(found) == {"cut", "smaller"}
    assert found["cut"].startswith("cut was audited up to offset 10 of partition 1, which now ends at 9: ")


def test_a_topic_with_another_id_than_when_it_was_audited() -> None:
    """Where both are known: an older state has none, nor have older brokers."""
    audited = {name: {0: 10} for name in ("again", "same", "older-state", "older-brokers")}
    ids = {"again": "then", "same": "now", "older-brokers": "then"}
    now = TopicNow({0: Ends(0, 20)}, topic_id="now")
    topics = {**dict.fromkeys(audited, now), "older-brokers": now._replace(topic_id="")}
    assert begun_anew(audited, ids, topics) == {
        "again": "again was deleted and created again, so it is audited from the start."
    }


def test_offsets_that_late_rows_claim_anew() -> None:
    claimed = [
        Claimed("t", 2, 7, 12, late=7),
        Claimed("t", 1, 8, 12, late=9),
        # What just follows, what rows claim that had been under way, and a partition that is new
        Claimed("following", 0, 10, 12, late=10),
        Claimed("early", 0, 3, 12, late=None),
        Claimed("new", 0, 0, 12, late=0),
    ]
    found = written_again({"t": {1: 10, 2: 10}, "following": {0: 10}, "early": {0: 10}, "new": {1: 10}}, claimed)
    assert set(found) == {"t"}
    assert found["t"].startswith("t was audited up to offset 10 of partition 1, and offset 9 of it was acknowledged ")


def test_retention_while_it_is_read() -> None:
    read = [one((0, 5), (0, 5))]
    assert not expired_meanwhile(read, {"t": TopicNow({0: Ends(0, 9)})})
    assert expired_meanwhile(read, {"t": TopicNow({0: Ends(1, 9)})})
    assert not expired_meanwhile(read, {})


def test_what_was_appended_to_compacted_topics_meanwhile() -> None:
    plain = one((0, 5), (0, 9))
    compacted = plain._replace(compacted=True, keys_end=9)
    read = [plain, compacted._replace(topic="c"), compacted._replace(topic="same"), compacted._replace(topic="gone")]
    topics = {"t": TopicNow({0: Ends(0, 12)}), "c": TopicNow({0: Ends(0, 12)}), "same": TopicNow({0: Ends(0, 9)})}
    (found,) = grown(read, topics)
    assert (found.topic, found.first, found.end, found.last_end) == ("c", 9, 9, 12)


def test_what_is_left_of_the_ranges() -> None:
    """Where retention went on, and nothing else: later records were not read. A topic may be gone."""
    read = [one((100, 500), (0, 450)), one((100, 500), (0, 450))._replace(topic="u")]
    later = {"t": TopicNow({0: Ends(200, 900)})}
    assert without_expired(read, later) == [read[0]._replace(earliest=200, first=200), read[1]]
    (beyond,) = without_expired(read[:1], {"t": TopicNow({0: Ends(600, 900)})})
    assert (beyond.earliest, beyond.first, beyond.end) == (600, 600, 600)
    assert without_expired(read, {"t": TopicNow({0: Ends(0, 10)})}) == read
