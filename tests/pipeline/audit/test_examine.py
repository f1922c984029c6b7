"""What an audit finds, and what it does not take for a finding: all scenes, audited together once. So each planted
fault is found by itself and beside all others, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.audit import copies
from forebay_pipeline.audit.result import AuditResult, Kind
from forebay_pipeline.errors import CLEAN, FINDINGS, INCOMPLETE
from tests.pipeline.audit.scenes import ALL_THERE, SCENES, fill
from tests.pipeline.audit.world import STEP_US, World, counted
from tests.pipeline.rows import START_US

NOTHING_READ = frozenset({"success-without-a-place", "never-there"})
"""Scenes whose topic nobody claims a place in."""


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(spark, tmp_path_factory.mktemp("journal"))
    for name, scene in SCENES.items():
        world.topic = name
        scene.happens(world)
    return world


@pytest.fixture(scope="module")
def result(world: World) -> AuditResult:
    return world.audit()


@pytest.mark.parametrize("name", SCENES)
def test_what_was_planted_is_found_and_nothing_else(result: AuditResult, name: str) -> None:
    scene = SCENES[name]
    assert counted(*(line for line in result.clients if line.topic == name)) == scene.counts
    found = [
        (finding.kind, finding.partition, finding.first_offset, finding.last_offset)
        for finding in result.findings
        if finding.topic == name
    ]
    assert found == list(scene.findings)
    read = [(line.unclaimed, line.later) for line in result.topics if line.topic == name]
    assert read == ([] if name in NOTHING_READ else [(scene.unclaimed, scene.later)])


def test_all_together(world: World, result: AuditResult) -> None:
    assert result.exit_code == FINDINGS
    assert result.rows == len(world.rows)
    assert counted(result.totals) == counted(*result.clients)
    # Those with findings come first.
    findings = [line.findings for line in result.clients]
    assert findings == sorted(findings, reverse=True)
    # Whatever an audit can find is among the scenes.
    assert {kind for kind in Kind if getattr(result.totals, kind)} == set(Kind)


def test_causes(result: AuditResult) -> None:
    notes = {finding.topic: finding.note for finding in result.findings}
    assert notes["sent-again"] == "also at offset 6 of partition 0, retried by the client"
    assert notes["in-other-batches"] == "also in other batches, retried by the client"
    assert notes["copied-by-nobody"] == "also at offset 0 of partition 0, unexplained"
    assert notes["turned-round"] == "sent after the records at 12"
    assert notes["no-topic"] == "the topic no longer exists"
    assert notes["made-again"] == "the topic was deleted and created again"
    assert notes["lost"] == "later offsets exist"
    assert notes["cut-off"] == "the log ends at 16"


def test_a_finding_says_whose_it_is(result: AuditResult) -> None:
    (lost,) = (finding for finding in result.findings if finding.topic == "lost")
    assert (lost.client_id, lost.principal, lost.process) == ("keyed", "User:bob", "here-1")
    assert (lost.connection, lost.records) == (0, 2)
    (copy,) = (finding for finding in result.findings if finding.topic == "duplicated")
    assert (copy.kind, copy.client_id, copy.principal) == (Kind.DUPLICATED, "moved", "User:alice")
    # The fifth row that was written, a second after each other.
    assert (lost.number, lost.time_us) == (4, START_US + 5 * STEP_US)


def test_what_is_no_finding_is_told_in_sentences(result: AuditResult) -> None:
    assert [note.partition(" ")[0] for note in result.notes] == ["58", "5"]
    assert "topics that no longer exist" in result.notes[0]
    assert "answered with an error" in result.notes[1]
    assert result.incomplete[1].startswith("Not placed: 4 records were acknowledged, ")
    assert [sentence.partition(":")[0] for sentence in result.incomplete] == [
        "Not followed, by design",
        "Not placed",
        "Not counted",
        "Not judged",
        "Expired, as retention allows",
    ]


@pytest.mark.whole
def test_where_nothing_is_wrong(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    world = World(spark, tmp_path_factory.mktemp("clean"))
    fill(world)
    result = world.audit()
    assert (counted(result.totals), result.rows) == (ALL_THERE, 5)
    assert (result.findings, result.notes, result.exit_code) == ([], [], CLEAN)
    # Whoever is served as a user has a line of his own, also where he calls himself as others do.
    lines = [(line.topic, line.principal, line.client_id, line.present) for line in result.clients]
    assert lines == [
        ("t", "User:bob", "keyed", 20),
        ("t", "User:alice", "moved", 10),
        ("t", "", "keyed", 9),
        ("t", "", "moved", 7),
    ]
    read = [(each.partition, each.first, each.end) for each in world.read]
    assert read == [(0, 0, 9), (1, 0, 7), (2, 0, 10), (3, 0, 20)]


@pytest.mark.whole  # test_copies.py has the limit
def test_copies_that_are_not_looked_for(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two parts that begin with one record the longer one is compared, and the shorter one is there twice."""
    monkeypatch.setattr(copies, "MAX_VARIANTS", 1)
    world = World(spark, tmp_path)
    first = world.made(1)
    short = [*first, *world.made(1)]
    world.send(short)
    world.send([*first, *world.made(2)])
    world.append(short)
    world.send(world.made(1))
    result = world.audit()
    assert (counted(result.totals), result.exit_code) == ({"acknowledged": 6, "present": 6}, INCOMPLETE)
    assert [told.partition(" that ")[0] for told in result.incomplete] == ["Not compared: 1 records"]
