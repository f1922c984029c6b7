"""What is told of a minute: what is lost and what is not, whose topic it is, in words and in numbers."""

from __future__ import annotations

import pytest

from forebay_pipeline.audit.ledger import ACKNOWLEDGED
from forebay_pipeline.audit.ranges import Ends, TopicNow
from forebay_pipeline.watch.tally import Tally
from forebay_pipeline.watch.verdict import Finding, Minute, Seen, judge, sentence, together
from tests.pipeline.watch.made_up import FIRST, MINUTE, minute, topic

SEEN = Seen(FIRST, "c", "t", "i")


def claimed(*claims: tuple[int, int], partition: int = 0) -> Tally:
    """(first offset, records) of each."""
    tally = Tally("c")
    for first, records in claims:
        tally.count(ACKNOWLEDGED, partition, first, records, 2_000)
    return tally


def lost_and_expired(tally: Tally, now: TopicNow) -> tuple[int | None, int | None]:
    told = judge(SEEN, tally, {"t": now}, None)
    assert (Finding.LOST in told.findings) == bool(told.lost)
    return told.lost, told.expired


@pytest.mark.parametrize(
    ("earliest", "latest", "lost", "expired"),
    [
        (0, 500, 0, 0),
        (0, 900, 0, 0),
        (150, 450, 50, 50),
        (100, 499, 1, 0),
        (0, 100, 400, 0),
        (0, 0, 400, 0),
        (500, 500, 0, 400),
        (700, 900, 0, 400),
    ],
)
def test_what_is_beyond_the_end_is_lost_and_what_is_before_the_beginning_has_expired(
    earliest: int, latest: int, lost: int, expired: int
) -> None:
    assert lost_and_expired(claimed((100, 400)), topic(latest, earliest=earliest)) == (lost, expired)


def test_no_more_is_lost_than_there_was() -> None:
    """Ten records, with those of others between them."""
    assert lost_and_expired(claimed((0, 9), (1_000, 1)), topic(500)) == (10, 0)


def test_partitions_are_looked_at_one_by_one() -> None:
    tally = claimed((0, 10))
    tally.add(claimed((0, 10), partition=1))
    tally.add(claimed((0, 10), partition=2))
    assert lost_and_expired(tally, TopicNow({0: Ends(0, 10), 1: Ends(0, 7)})) == (13, 0)


def test_a_topic_that_was_made_again_is_told_as_such_and_not_by_brokers_without_ids() -> None:
    tally = claimed((0, 10))
    assert judge(SEEN, tally, {"t": topic(4, topic_id="j")}, None).findings == [Finding.LOST, Finding.MADE_AGAIN]
    assert judge(SEEN, tally, {"t": topic(99, topic_id="j")}, None).findings == [Finding.MADE_AGAIN]
    assert judge(SEEN, tally, {"t": topic(99, topic_id="i")}, None).findings == []
    assert judge(SEEN, tally, {"t": topic(99)}, None).findings == []
    assert judge(SEEN._replace(topic_id=""), tally, {"t": topic(99, topic_id="j")}, None).findings == []


def test_with_a_deleted_topic_all_is_gone() -> None:
    told = judge(SEEN, claimed((0, 10)), {"other": topic(99)}, None)
    assert (told.lost, told.findings) == (10, [Finding.LOST, Finding.DELETED])
    refused = Tally("c", unacknowledged=3)
    assert judge(SEEN, refused, {}, None).findings == []


def test_without_an_answer_nothing_is_said_of_loss() -> None:
    told = judge(SEEN, claimed((0, 10)), None, None)
    assert (told.lost, told.expired, told.findings) == (None, None, [])


def test_latencies_are_by_record_and_in_milliseconds() -> None:
    tally = Tally("c")
    tally.count(ACKNOWLEDGED, 0, 0, 980, 2_000)
    tally.count(ACKNOWLEDGED, 0, 980, 20, 300_000)
    told = judge(SEEN, tally, {"t": topic(1_000)}, 250)
    assert told.p50_ms == pytest.approx(2, rel=0.02)
    assert told.p99_ms == pytest.approx(300, rel=0.02)
    assert told.findings == [Finding.SLOW]
    assert judge(SEEN, tally, {"t": topic(1_000)}, 350).findings == []
    assert judge(SEEN, Tally("c", unacknowledged=1), {"t": topic(1_000)}, 0) == Minute(
        "2026-11-18T11:08:00Z", "c", "t", "i", 0, 1, 0, None, None, 0, 0, []
    )


def test_processes_of_one_cluster_add_up_and_topics_of_two_clusters_do_not() -> None:
    """Nor does a topic with the one that had its name before, nor one minute with another."""
    one = claimed((0, 10))
    told = together(
        [
            ("p", "t", "i", FIRST, one),
            ("q", "t", "i", FIRST, claimed((10, 5))),
            ("r", "t", "i", FIRST, one),
            ("s", "t", "i", FIRST, one),
            ("q", "t", "j", FIRST, one),
            ("p", "t", "i", FIRST - MINUTE, one),
            *((process, "", "", FIRST, Tally(cluster)) for process, cluster in (("p", "c"), ("q", "c"), ("r", "d"))),
        ]
    )
    assert [(seen, tally.acknowledged) for seen, tally in told.items()] == [
        (Seen(FIRST - MINUTE, "c", "t", "i"), 10),
        (Seen(FIRST, "", "t", "i"), 10),
        (Seen(FIRST, "c", "t", "i"), 15),
        (Seen(FIRST, "c", "t", "j"), 10),
        (Seen(FIRST, "d", "t", "i"), 10),
    ]


def test_sentences_for_people() -> None:
    assert sentence(minute()) == "2026-11-18T11:08:00Z t: 400 records acknowledged (p50 1.5 ms, p99 20.0 ms)"
    everything = minute(
        acknowledged=4_000, unacknowledged=1, not_followed=2, lost=3_000, expired=4, findings=list(Finding)
    )
    assert sentence(everything) == (
        "2026-11-18T11:08:00Z t: 4,000 records acknowledged (p50 1.5 ms, p99 20.0 ms), 1 answered with an error, "
        "2 not followed, 4 expired, 3,000 LOST, the topic was deleted, the topic was made again, slow"
    )
    assert sentence(minute(topic="t\n\x1b[2J")).startswith(r"2026-11-18T11:08:00Z t\n\x1b[2J: 400 records")
    unknown = minute(acknowledged=0, not_followed=7, p50_ms=None, p99_ms=None, lost=None, expired=None)
    assert sentence(unknown) == ("2026-11-18T11:08:00Z t: 0 records acknowledged, 7 not followed, loss not checked")
