"""Batches: who is asked, what is told to whom, and what happens where somebody does not answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from pyspark.sql import Row as SparkRow

from forebay_pipeline.audit.ledger import ACKNOWLEDGED
from forebay_pipeline.audit.ranges import TopicNow
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.watch.tally import Tally
from forebay_pipeline.watch.verdict import Finding, Minute
from forebay_pipeline.watch.watcher import Sentences, Watcher
from tests.pipeline.watch.made_up import FIRST, MINUTE, Topics, minute, topic


class Kept:
    """What was told of each batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Minute]] = {}

    def tell(self, batch: int, minutes: Sequence[Minute]) -> None:
        self.batches[batch] = list(minutes)


def row(of: str, records: int = 0, *, process: str = "p", cluster_id: str = "", minutes: int = 0) -> SparkRow:
    tally = Tally(cluster_id)
    if of:
        tally.count(ACKNOWLEDGED, 0, 0, records, 2_000)
    text = msgspec.json.encode(tally).decode()
    return SparkRow(process=process, topic=of, topic_id="i", minute_us=FIRST + minutes * MINUTE, tally=text)


def watched(now: Mapping[str, TopicNow]) -> tuple[Watcher, Topics, Kept]:
    topics, kept = Topics(now), Kept()
    watcher = Watcher(topics, None)
    watcher.outputs.append(kept)
    return watcher, topics, kept


def test_what_is_lost_is_found_and_nothing_else_is() -> None:
    watcher, _, kept = watched({"t": topic(10), "u": topic(5)})
    watcher.told(3, [row("", cluster_id="c"), row("t", 10), row("u", 9)])
    assert [(each.topic, each.lost, each.findings) for each in kept.batches[3]] == [
        ("t", 0, []),
        ("u", 4, [Finding.LOST]),
    ]
    assert (watcher.findings, watcher.unchecked) == (1, 0)
    totals = watcher.totals()
    assert totals["judged_timestamp_seconds"][1] == (FIRST + MINUTE) // 1_000_000


def test_topics_of_another_cluster_are_told_and_not_asked_for() -> None:
    watcher, topics, kept = watched({"t": topic(10), "u": topic(9)})
    clusters = [row("", process="p", cluster_id="c"), row("", process="q", cluster_id="d")]
    watcher.told(0, [*clusters, row("t", 10, process="p"), row("t", 99, process="q"), row("u", 9, process="r")])
    assert [(each.cluster_id, each.topic, each.lost) for each in kept.batches[0]] == [
        ("", "u", 0),
        ("c", "t", 0),
        ("d", "t", None),
    ]
    assert topics.asked == [{"t", "u"}]
    assert watcher.unchecked == 1


def test_brokers_that_do_not_answer_cost_only_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    watcher, topics, kept = watched({"t": topic(10)})
    topics.silent = True
    watcher.told(0, [row("t", 10)])
    topics.silent = False
    watcher.told(1, [row("t", 10, minutes=1)])
    assert [each.lost for batch in kept.batches.values() for each in batch] == [None, 0]
    assert watcher.unchecked == 1
    assert capsys.readouterr().err == (
        "No broker answers at a:1: no answer in time. 1 minutes of topics are not checked for loss.\n"
    )


def test_a_topic_that_is_not_told_of_costs_only_its_own_check(capsys: pytest.CaptureFixture[str]) -> None:
    """A partition without a leader, say: what is lost elsewhere is found."""
    watcher, topics, kept = watched({"t": topic(10)})
    topics.untold = {name: CannotRun(f"No answer about {name}-1.") for name in ("u", "v")}
    watcher.told(0, [row("t", 15), row("u", 9), row("u", 9, minutes=1), row("v", 9)])
    assert [(each.topic, each.lost, each.findings) for each in kept.batches[0]] == [
        ("t", 5, [Finding.LOST]),
        ("u", None, []),
        ("v", None, []),
        ("u", None, []),
    ]
    assert (watcher.findings, watcher.unchecked) == (1, 3)
    assert capsys.readouterr().err == "No answer about u-1. 3 minutes of topics are not checked for loss.\n"


def test_a_process_without_a_ledger_is_told_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    def of(process: str, *gauges: tuple[int, int]) -> SparkRow:
        tally = Tally()
        for batches, ledger in gauges:
            tally.gauge("c", batches, ledger)
        text = msgspec.json.encode(tally).decode()
        return SparkRow(process=process, topic="", topic_id="", minute_us=FIRST, tally=text)

    watcher, _, _ = watched({})
    processes = [of("new", (0, 0), (9, 0)), of("blind", (9, 0), (5, 0)), of("well", (9, 0), (9, 1)), of("old", (0, 0))]
    watcher.told(0, processes)
    watcher.told(1, processes)
    assert watcher.without_ledger == {"blind"}
    assert capsys.readouterr().err == "Nothing that blind sends is watched: it needs journal.ledger=true.\n"


def test_without_rows_nobody_is_asked_and_nothing_is_told() -> None:
    watcher, topics, kept = watched({})
    watcher.told(0, [])
    watcher.told(1, [row("", cluster_id="c")])
    assert (topics.asked, kept.batches) == ([], {1: []})


def test_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    Sentences().tell(0, [minute(), minute(topic="u")])
    assert len(capsys.readouterr().out.splitlines()) == 2
