"""Audits of a part of the journal, one after the other, or of a journal that lost something itself."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from forebay_pipeline.audit import run
from forebay_pipeline.audit.ledger import AROUND_US, AuditScope
from forebay_pipeline.audit.losses import OF_ALL_KINDS, Losses, losses
from forebay_pipeline.audit.ranges import Ends, Range, TopicNow
from forebay_pipeline.audit.result import AuditResult, Finding, Kind
from forebay_pipeline.audit.state import AuditState, ProcessMark
from forebay_pipeline.errors import CLEAN, INCOMPLETE, CannotRun
from forebay_pipeline.journal.span import Span
from forebay_policies.journal_rows import LedgerRow
from tests.pipeline.audit.scenes import SCENES
from tests.pipeline.audit.world import STEP_US, Log, World, counted
from tests.pipeline.rows import START_US, gauge_row, ledger_part, write_lines

WHOLE = pytest.mark.whole
"""An audit takes ten seconds of CPU, however little there is to be audited."""


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


@WHOLE
def test_a_span_and_what_its_neighbours_claim(world: World) -> None:
    """Offsets are not in the order of answers: 10 … 14 were answered long before, 0 … 4 lost their records earlier."""
    world.send(world.made(5))
    first = world.send(world.made(5))
    world.send(world.made(5), time_us=first.time_us - AROUND_US)
    last = world.send(world.made(5))
    world.send(world.made(5))
    world.topic = "other"
    world.send(world.made(5), time_us=first.time_us)
    world.logs["t"][0].records.clear()
    world.logs["t"][0].records.update({offset: (None, b"value %d" % offset) for offset in range(5, 20)})
    result = world.audit(AuditScope(Span(first.time_us, last.time_us + 1), topics=("t",)))
    assert counted(result.totals) == {"acknowledged": 10, "present": 10}
    assert (result.rows, result.first_us, result.last_us) == (2, first.time_us, last.time_us)
    assert [(each.topic, each.first, each.end) for each in world.read] == [("t", 5, 20)]
    assert [(line.unclaimed, line.later) for line in result.topics] == [(0, 5)]


@WHOLE
def test_of_what_passed_untouched_an_older_ledger_may_not_say_how_many_records_there_were(world: World) -> None:
    """Message formats v0 and v1. A set without messages has none, and what was refused counts for nothing."""
    world.send(world.made(5))
    world.answer([], reason="empty")
    world.answer([], reason="corrupt", error_code=2)
    assert world.audit().exit_code == CLEAN
    world.answer([], reason="topic_excluded", base_offset=world.append(world.made(4)))
    world.answer([], reason="observed", error_code=None)
    result = world.audit()
    assert (counted(result.totals), result.exit_code) == ({"acknowledged": 5, "present": 5}, INCOMPLETE)
    assert [told.partition(" that ")[0] for told in result.incomplete] == ["Not counted: 2 batches"]


@WHOLE
def test_a_topic_of_the_same_name_in_another_cluster(world: World) -> None:
    world.rows.append(gauge_row(process="here-1", cluster_id="here"))
    world.send(world.made(5))
    world.rows.append(gauge_row(process="there-2", time_us=world.now_us, cluster_id="there"))
    world.answer([ledger_part([(b"key", b"theirs")], base_offset=3)], process="there-2")
    result = world.audit()
    assert (counted(result.totals), result.exit_code) == ({"acknowledged": 5, "present": 5}, CLEAN)
    assert result.notes == ["1 processes in the journal are in front of other clusters, not audited: there."]


def test_a_state_of_another_cluster(world: World) -> None:
    """Its own journal is read, but the brokers are those of another cluster, or of one that was built anew."""
    row = world.send(world.made(5), process="p-1")
    world.rows.append(gauge_row(process="p-1", time_us=world.now_us, cluster_id="there"))
    state = AuditState(processes={"before-0": ProcessMark(row.time_us, [])}, cluster_id="there")
    with pytest.raises(CannotRun, match=r"^The state is that of cluster there, and the brokers .* of cluster here: "):
        world.audit_on(AuditScope(state=state))


def test_a_journal_that_goes_on_in_front_of_another_cluster_alone(world: World) -> None:
    """The state is the audited cluster's, and nothing of that one is new."""
    row = world.send(world.made(5), process="p-1")
    world.rows.append(gauge_row(process="p-1", time_us=world.now_us, cluster_id="there"))
    state = AuditState(processes={"before-0": ProcessMark(row.time_us, [])}, cluster_id="here")
    result, moved = world.audit_on(AuditScope(state=state))
    assert (result.rows, result.exit_code, moved.cluster_id) == (0, INCOMPLETE, "here")
    assert result.incomplete == [
        "Nothing of cluster here, which was asked: all processes in the journal are in front of others: there."
    ]


@WHOLE
def test_a_file_that_is_there_twice_counts_once(world: World) -> None:
    """Another row of a number that is there already is none of its copies."""
    world.send(world.made(5))
    world.refuse(world.made(3))
    world.close_files()
    shutil.copy(world.file(0), world.file(0).with_name("again.jsonl.zst"))
    world.send(world.made(5), seq=1)
    result = world.audit()
    assert counted(result.totals) == {"acknowledged": 10, "present": 10, "unacknowledged": 3}
    assert (result.rows, result.incomplete, result.exit_code) == (3, [], CLEAN)
    assert result.notes[0].startswith("2 ledger rows are copies of others, and count once: ")


def test_a_span_without_rows(world: World) -> None:
    world.send(world.made(5))
    with pytest.raises(CannotRun, match=r"no ledger rows in that span: was journal\.ledger on\?"):
        world.audit(AuditScope(Span(START_US + 3600 * STEP_US)))


def test_a_topic_without_rows_beside_one_with_some(world: World) -> None:
    """A name with a typing error, say. What an audit before found is enough, and that brokers have it."""
    world.send(world.made(5))
    world.logs["quiet"] = {0: Log()}
    asked = ("clik", "quiet", "t")
    result, state = world.audit_on(AuditScope(state=AuditState(only=[*asked]), topics=asked))
    assert (result.rows, result.exit_code) == (1, INCOMPLETE)
    assert result.notes == ["No ledger row to be audited is of these topics: quiet."]
    assert [told.partition(". ")[0] for told in result.incomplete] == ["Nothing of topics that were asked for: clik"]
    del world.logs["t"]  # once it was known, it may be deleted
    again, _ = world.audit_on(AuditScope(state=state, topics=asked))
    assert (again.rows, again.incomplete, again.notes[1:]) == (0, result.incomplete, result.notes)


def test_a_file_that_is_deleted_while_it_is_audited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was there when rows were counted, but not when they were to be checked; the next audit misses it."""
    row = world.send(world.made(5))

    def then_deleted(*given: Any) -> Losses:
        lost = losses(*given)
        world.file(0).unlink()
        return lost

    monkeypatch.setattr(run, "losses", then_deleted)
    state = AuditState(processes={"before-0": ProcessMark(row.time_us, [])})
    result, moved = world.audit_on(AuditScope(state=state))
    assert (result.rows, result.exit_code, moved is state) == (0, INCOMPLETE, True)
    assert result.incomplete[0].startswith("Deleted while it was audited: 1 ledger rows.")
    assert world.asked == [((), OF_ALL_KINDS), ([LedgerRow], ())]


@WHOLE
def test_when_all_has_expired_there_is_no_answer(world: World) -> None:
    world.send(world.made(10))
    world.expire(10)
    with pytest.raises(CannotRun, match=r"All 10 records .* have expired"):
        world.audit()


@pytest.mark.whole  # the next test has this step first
def test_what_expires_while_it_is_read_is_not_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.send(world.made(10, b"key"))
    world.expire(4)
    before = [{"t": TopicNow({0: Ends(0, 10)})}]
    later = world.now
    monkeypatch.setattr(world, "now", lambda names: before.pop() if before else later(names))
    assert counted(world.audit().totals) == {"acknowledged": 10, "present": 6, "expired": 4}


@WHOLE
def test_what_goes_on_expiring_is_not_lost_either(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time it is read some more is gone; but what is lost above that is lost."""
    world.send(world.made(40))
    world.send(world.made(10))
    del world.log().records[45]
    held = world.records

    def expiring(spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        world.expire(world.log().earliest + 5)
        return held(spark, ranges)

    monkeypatch.setattr(world, "records", expiring)
    result = world.audit()
    assert counted(result.totals) == {"acknowledged": 50, "present": 34, "expired": 15, "missing": 1}
    assert [(each.kind, each.first_offset) for each in result.findings] == [(Kind.MISSING, 45)]


def test_what_the_journal_lost_makes_the_audit_incomplete(world: World, tmp_path: Path) -> None:
    """Of a process that was there before the span, what it dropped until then does not count. A row of another one is
    not there, as those before the span and in it tell."""
    world.send(world.made(1), process="other-2", seq=1)
    row = world.send(world.made(5))
    world.send(world.made(1), process="other-2", seq=3)
    world.rows += [
        *(gauge_row(time_us=row.time_us + second, rows_dropped_total=second) for second in (2, 3, 9)),
        *(gauge_row(worker=1, started_us=row.time_us, time_us=row.time_us + 1, rows_dropped_total=1) for _ in "ab"),
        gauge_row(worker=2, time_us=row.time_us - 1, rows_dropped_total=1),
    ]
    write_lines(tmp_path, b'{"kind":"ledger","time', name="torn")
    result = world.audit(AuditScope(Span(row.time_us)))
    assert (result.rows, result.rows_missing, result.exit_code) == (2, 1, INCOMPLETE)
    assert (result.rows_dropped, result.lines_torn) == (8, 1)
    dropped, torn, gap, *_ = result.incomplete
    assert "Dropped: 8 journal rows" in dropped
    assert torn == "Unreadable: 1 lines or files of the journal."
    assert "1 journal rows, by their numbers: other-2, ledger 2." in gap


@WHOLE  # test_losses.py has all of it; an audit of what real faults left is in tests/integration/test_audit.py
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_file_that_is_not_there_is_missed(world: World, lost: int) -> None:
    """The first, one in the middle, the last: of the latter the process's own last row tells."""
    for _ in range(3):
        world.send(world.made(5))
        world.close_files()
    world.rows.append(gauge_row(process="here-1", ledger_rows_total=3, last=True))
    assert world.audit().exit_code == CLEAN
    world.file(lost).unlink()
    result = world.audit()
    assert (result.exit_code, result.rows_missing, len(result.incomplete)) == (INCOMPLETE, 1, 1)
    assert f"1 journal rows, by their numbers: here-1, ledger {lost + 1}." in result.incomplete[0]


@WHOLE  # test_losses.py has which rows tell of it, and test_what_the_journal_lost… that an audit reads those around it
def test_an_hour_of_one_of_two_proxies_that_is_not_there(world: World) -> None:
    """It had acknowledged a record that is gone, and its rows of before and after are there."""
    hour = Span(START_US + 10 * STEP_US, START_US + 20 * STEP_US)
    for time_us in (START_US, START_US + 12 * STEP_US, START_US + 22 * STEP_US):
        for process in ("one-1", "two-2"):
            world.now_us = time_us
            world.send(world.made(1), process=process)
            world.close_files()
    del world.log().records[3]
    world.file(3).unlink()
    result = world.audit(AuditScope(hour))
    assert (result.rows, result.exit_code) == (1, INCOMPLETE)
    assert "1 journal rows, by their numbers: two-2, ledger 2." in result.incomplete[0]


# --- one after the other ------------------------------------------------------------------------------------------


@WHOLE  # test_object_store.py carries on, too
def test_each_audit_carries_on_where_the_last_one_ended(world: World) -> None:
    first = world.made(5)
    world.send(first)
    crashed = world.part(world.made(3))
    world.send(world.made(5))
    young = world.send(world.made(5))

    # The youngest row is left for the next audit; three records are in a file that a crash left open.
    result, state = world.audit_on(AuditScope(Span(last=young.time_us), state=AuditState()))
    assert counted(result.totals) == {"acknowledged": 10, "present": 10}
    assert [(line.unclaimed, line.later) for line in result.topics] == [(3, 5)]
    assert state.offsets == {"t": {0: 13}}

    # A copy of what the first audit has seen.
    world.append(first)
    world.send(world.made(5))
    result, state = world.audit_on(AuditScope(state=state))
    assert counted(result.totals) == {"acknowledged": 10, "present": 10, "duplicated": 5}
    assert [(each.first, each.end) for each in world.read] == [(13, 28)]
    assert state.offsets == {"t": {0: 28}}

    # The crashed process's file was closed by the next one.
    world.answer([crashed], process="there-2", time_us=START_US)
    result, state = world.audit_on(AuditScope(state=state))
    assert counted(result.totals) == {"acknowledged": 3, "present": 3}
    assert [(each.first, each.end) for each in world.read] == [(5, 8)]
    assert [(line.unclaimed, line.later) for line in result.topics] == [(0, 20)]
    assert state.offsets == {"t": {0: 28}}
    assert set(state.processes) == {"here-1", "there-2"}

    result, same = world.audit_on(AuditScope(state=state))
    assert (result.rows, result.exit_code, same) == (0, CLEAN, state)
    assert "no new rows" in result.notes[0]

    del world.logs["t"]
    world.send(world.made(4))
    result, state = world.audit_on(AuditScope(state=state))
    assert counted(result.totals) == {"acknowledged": 4, "present": 4}
    assert "t was audited up to offset 28 of partition 0, which now ends at 4" in result.incomplete[0]
    assert state.offsets == {"t": {0: 4}}


@WHOLE
def test_files_of_a_process_that_come_in_another_order(world: World) -> None:
    """The second file is there first: the first one is missed, once, and audited when it comes."""
    world.send(world.made(5))
    world.close_files()
    late = world.file(0)
    content = late.read_bytes()
    late.unlink()
    world.send(world.made(5))
    result, state = world.audit_on(AuditScope(state=AuditState()))
    assert (result.totals.present, result.rows_missing, result.exit_code) == (5, 1, INCOMPLETE)
    result, state = world.audit_on(AuditScope(state=state))
    assert (result.rows, result.rows_missing, result.exit_code) == (0, 0, CLEAN)
    late.write_bytes(content)
    result, state = world.audit_on(AuditScope(state=state))
    assert (counted(result.totals), result.exit_code) == ({"acknowledged": 5, "present": 5}, CLEAN)
    assert state.followed["here-1"].audited == [(1, 2)]


@WHOLE
def test_rows_of_one_microsecond_may_be_in_two_files(world: World) -> None:
    """Those of one request, say, between whose partitions a file was closed."""
    seen = world.send(world.made(5), number=1)
    world.send(world.made(5), 1, number=1, time_us=seen.time_us)
    mark = ProcessMark(seen.time_us, ["1/0/t"])
    state = AuditState(processes={seen.process: mark}, offsets={"t": {0: 5}})
    result, state = world.audit_on(AuditScope(state=state))
    assert counted(result.totals) == {"acknowledged": 5, "present": 5}
    assert [(each.partition, each.first, each.end) for each in world.read] == [(1, 0, 5)]
    assert state.processes == {seen.process: ProcessMark(seen.time_us, ["1/0/t", "1/1/t"])}
    assert state.offsets == {"t": {0: 5, 1: 5}}


@WHOLE
def test_what_an_unclean_election_cost_of_audited_records_is_told_though_the_log_has_grown_since(world: World) -> None:
    """Nothing that is new is wrong. The topic has its id still, which an older state does not tell."""
    audited = world.send(world.made(10))
    world.cut(7)
    world.send(world.made(5), time_us=audited.time_us + AROUND_US + STEP_US)
    world.ids["t"] = "its-id"
    state = AuditState(processes={audited.process: ProcessMark(audited.time_us, ["0/0/t"])}, offsets={"t": {0: 10}})
    result, moved = world.audit_on(AuditScope(Span(last=audited.time_us + 2 * AROUND_US), state=state))
    assert (counted(result.totals), result.exit_code) == ({"acknowledged": 5, "present": 5}, INCOMPLETE)
    assert result.incomplete[0].startswith(
        "Gone since it was audited: t was audited up to offset 10 of partition 0, and offset 7 of it was acknowledged "
    )
    assert (moved.offsets, moved.topic_ids) == ({"t": {0: 12}}, {"t": "its-id"})


@WHOLE
def test_a_topic_made_again_that_has_outgrown_the_former_one(world: World) -> None:
    audited = world.send(world.made(5), topic_id="then")
    del world.logs["t"]
    world.ids["t"] = "now"
    world.append(world.made(7))
    world.send(world.made(5), topic_id="now")
    mark = ProcessMark(audited.time_us, ["0/0/t"])
    state = AuditState(processes={audited.process: mark}, offsets={"t": {0: 5}}, topic_ids={"t": "then"})
    result, moved = world.audit_on(AuditScope(state=state))
    assert (counted(result.totals), result.exit_code) == ({"acknowledged": 5, "present": 5}, INCOMPLETE)
    assert result.incomplete[0].startswith("Gone since it was audited: t was deleted and created again, ")
    assert (moved.offsets, moved.topic_ids) == ({"t": {0: 12}}, {"t": "now"})


@WHOLE
def test_a_span_that_is_asked_for_wins_over_the_state(world: World) -> None:
    row = world.send(world.made(5))
    world.send(world.made(5))
    del world.log().records[2]
    state = AuditState(processes={row.process: ProcessMark(row.time_us + STEP_US, [])}, offsets={"t": {0: 10}})
    result, moved = world.audit_on(AuditScope(Span(first=row.time_us, last=row.time_us + 1), state=state))
    assert [finding.kind for finding in result.findings] == [Kind.MISSING]
    # It moves forward only.
    assert (moved.offsets, moved.processes) == (state.offsets, state.processes)


@WHOLE
def test_a_key_that_was_sent_again_is_not_missed_before_that_is_audited(world: World) -> None:
    """Both records are gone, and only the last one should be there: the next audit is to tell."""
    world.compacted.add(world.topic)
    first = world.answer([world.keyed([(b"k", b"then")])])
    world.answer([world.keyed([(b"k", b"now")])])
    world.log().records.clear()
    result = world.audit(AuditScope(Span(last=first.time_us + 1)))
    assert counted(result.totals) == {"acknowledged": 1, "compacted": 1}


@WHOLE
def test_what_is_compacted_while_it_is_read_is_not_missing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key was sent again after the log's end was asked for; that of another one, which is gone, was not."""
    world.compacted.add(world.topic)
    world.answer([world.keyed([(b"k", b"then"), (b"lost", b"then"), (b"there", b"then")])])
    held = world.records

    def cleaning(spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        if world.log().latest == 3:
            world.append([(b"k", b"now")])
            del world.log().records[0], world.log().records[1]
        return held(spark, ranges)

    monkeypatch.setattr(world, "records", cleaning)
    result = world.audit()
    assert counted(result.totals) == {"acknowledged": 3, "present": 1, "compacted": 1, "missing": 1}
    assert [(each.kind, each.first_offset) for each in result.findings] == [(Kind.MISSING, 1)]


@pytest.fixture(scope="module")
def scenes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, AuditResult]:
    """All scenes, at the same time, so that an audit may end in the middle of each; and what one audit finds.

    But for those in which records are sent again in other batches: if that is after the end, they count as unconfirmed.
    """
    world = World(spark, tmp_path_factory.mktemp("journal"))
    for name, scene in SCENES.items():
        if name not in ("in-other-batches", "not-the-longest"):
            world.topic, world.now_us = name, START_US
            scene.happens(world)
    return world, world.audit()


@WHOLE
@pytest.mark.parametrize("ends", [(1,), (3,), (1, 2, 4)])
def test_audits_one_after_the_other_find_what_a_single_one_finds(
    scenes: tuple[World, AuditResult], ends: tuple[int, ...]
) -> None:
    world, single = scenes
    state, totals, found = AuditState(), Counter[str](), list[Finding]()
    for last in (*(START_US + answers * STEP_US + 1 for answers in ends), None):
        result, state = world.audit_on(AuditScope(Span(last=last), state=state))
        totals.update(counted(result.totals))
        found += result.findings
    assert totals == counted(single.totals)
    assert sorted(map(repr, found)) == sorted(map(repr, single.findings))
