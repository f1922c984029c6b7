"""A broker's answer, or its silence: every run told once, or the batch in a queue again; memory given back once."""

from __future__ import annotations

from random import Random
from time import monotonic
from typing import Any
from unittest.mock import patch

import pytest
import structlog

from forebay_codecs.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from forebay_codecs.produce_response import PartitionResponse
from forebay_policies.accumulator import PartitionQueue
from forebay_policies.journal_rows import BatchRow
from forebay_policies.producer_batch import ProducerBatch, RecordRun
from forebay_policies.retry import ELSEWHERE_TRIES
from forebay_policies.throttling import CLIENT_ID
from forebay_proxy.config.settings import HostPort
from forebay_proxy.journal.recorder import Journal
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.completion import JOURNAL
from forebay_proxy.produce.delivery import LOOKS, Delivery
from tests.kit import fakes_proxy as fakes
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, until
from tests.kit.fakes_proxy import FakeOwner
from tests.kit.ports import LOOPBACK
from tests.kit.wire import keyed, null_key
from tests.policies import accumulator_kit


class Looked(list[int]):
    """Counts how often it is looked into."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return super().__getitem__(index)


class Dock:
    """Topic "ponds", its partitions led by brokers 0, 1, 1."""

    def __init__(self) -> None:
        self.accumulator = fakes.accumulator()
        self.cluster = fakes.known(self.accumulator, {"ponds": [0, 1, 1]})
        self.changed: list[str] = []
        self.woken: list[int] = []
        self.timed: list[int] = []
        """Partitions of whose acknowledged batches the time was told."""
        self.stats = MetricRegistry()
        journal = Journal(0, self.stats)
        self.rows = journal._rows
        self.delivery = Delivery(
            self.accumulator,
            settings((HostPort(LOOPBACK, 1),), 2),
            self.stats,
            self.changed.append,
            lambda queue, seconds: self.timed.append(queue.index),
            Random(1),
            journal,
        )
        self.accumulator.observe(opened=lambda queue, batch: None, ready=self.woken.append)

    def queue(self, index: int) -> PartitionQueue:
        return self.cluster.topics["ponds"].queues.queue(index)

    def merged(self, *clients: list[str], movable: bool = False) -> tuple[ProducerBatch, list[FakeOwner]]:
        """One batch of partition 0 that is away, and its owners."""
        make = null_key if movable else keyed
        owners = [fakes.append(self.accumulator, self.queue(0), make(*client), movable) for client in clients]
        batch = fakes.drain(self.accumulator, self.queue(0))
        self.woken.clear()
        return batch, owners

    def answer(self, batch: ProducerBatch, code: int, base_offset: int = -1, partition: int = 0) -> None:
        response = PartitionResponse(partition, code, base_offset, -1, 0, [(0, "why")], "no")
        self.delivery.answered(self.queue(partition), batch, response)

    async def leaves(self, batch: ProducerBatch, partition: int) -> None:
        await until(lambda: batch.partition != partition)

    def assert_empty(self) -> None:
        assert self.accumulator.pool.available == self.accumulator.pool.memory
        assert (self.accumulator.queued_bytes, self.accumulator.in_flight_bytes) == (0, 0)
        assert not self.cluster.topics["ponds"].queues.loads()

    def fates(self) -> list[str]:
        """Of the batches that were answered, as the journal has them."""
        return [row.fate for row in self.rows if isinstance(row, BatchRow)]

    def errors(self, side: str, kind: str) -> float:
        return self.stats.take().counters["forebay_errors_total", (side, kind)]

    def retries(self, reason: str) -> float:
        return self.stats.take().counters["forebay_retries_total", (reason,)]


class TestAvoided:
    """A broker is to get nothing that may go elsewhere."""

    @in_loop
    async def test_what_waits_for_it_and_may_go_goes_ready_or_not(self) -> None:
        dock = Dock()
        kept = fakes.append(dock.accumulator, dock.queue(1), keyed("kept"))
        moved = fakes.append(dock.accumulator, dock.queue(1), null_key("moved"), movable=True)
        dock.cluster.avoid(frozenset({1}))
        dock.delivery.avoided({1})
        assert fakes.values(fakes.drain(dock.accumulator, dock.queue(0))) == ["moved"]
        assert [len(dock.queue(index).batches) for index in range(3)] == [0, 1, 0]
        assert (kept.told, moved.told) == ([], []), "their fate is not known yet"

    @in_loop
    async def test_what_is_under_way_or_may_be_appended_stays(self) -> None:
        dock = Dock()
        batch, _ = dock.merged(["a"], movable=True)
        fakes.append(dock.accumulator, dock.queue(0), null_key("b"), movable=True)
        (waiting,) = dock.queue(0).batches
        waiting.tainted = True
        dock.cluster.avoid(frozenset({0}))
        dock.delivery.avoided({0})
        assert dock.queue(0).in_flight is batch
        assert dock.queue(0).batches == [waiting]

    @in_loop
    async def test_where_no_other_is_left_it_stays(self) -> None:
        dock = Dock()
        fakes.append(dock.accumulator, dock.queue(0), null_key("a"), movable=True)
        dock.cluster.avoid(frozenset({0, 1}))
        dock.delivery.avoided({0, 1})
        assert len(dock.queue(0).batches) == 1


class TestNewLeader:
    """KIP-951: the broker that refuses names its successor."""

    @in_loop
    @pytest.mark.parametrize(("leader", "changed"), [((1, 9), []), (None, ["ponds"])])
    @pytest.mark.parametrize("tainted", [False, True])
    async def test_only_where_it_names_none_one_is_asked_for(
        self, leader: tuple[int, int] | None, changed: list[str], *, tainted: bool
    ) -> None:
        dock = Dock()
        batch, (owner,) = dock.merged(["a"])
        batch.tainted = tainted
        refused = PartitionResponse(0, NOT_LEADER_OR_FOLLOWER, -1, -1, -1, [], None, leader)
        dock.delivery.answered(dock.queue(0), batch, refused)
        assert dock.changed == changed
        assert owner.told == []


class TestAcknowledged:
    @in_loop
    async def test_every_owner_learns_where_its_records_stand(self) -> None:
        dock = Dock()
        batch, owners = dock.merged(["a", "b"], ["c"], ["d"])
        dock.answer(batch, NONE, 100)
        assert [owner.told for owner in owners] == [
            [("acknowledged", 100, False)],
            [("acknowledged", 102, False)],
            [("acknowledged", 103, False)],
        ]
        assert dock.timed == [0]
        dock.assert_empty()

    @in_loop
    async def test_how_long_it_took_is_told_of_the_first_try_only(self) -> None:
        """A batch that was refused elsewhere says nothing of the broker that took it in the end."""
        dock = Dock()
        batch, (owner,) = dock.merged(["a"], movable=True)
        dock.answer(batch, NOT_LEADER_OR_FOLLOWER)
        again = fakes.drain(dock.accumulator, dock.queue(batch.partition))
        dock.answer(again, NONE, 100, partition=batch.partition)
        assert [kind for kind, *_ in owner.told] == ["acknowledged"]
        assert dock.timed == []

    @in_loop
    async def test_nor_of_a_batch_whose_client_was_throttled_while_it_waited(self) -> None:
        """The quota of one client makes no broker slow for others."""
        dock = Dock()
        throttling = dock.accumulator.throttling
        for node_id, seconds, told in ((0, 1.0, []), (1, 1.0, [0]), (0, 0.4, [0])):
            throttling.settle(10.0)
            throttling.throttled(node_id, CLIENT_ID, seconds, -0.5)
            batch, _ = dock.merged(["a"])  # at 0 s
            batch.sent(0, batch.size, 0.6)
            dock.timed.clear()
            dock.answer(batch, NONE, 100)
            assert dock.timed == told


class BrokenOwner(FakeOwner):
    """A fault of ours, in what one client is told."""

    def acknowledged(self, run: RecordRun, base_offset: int, log_append_time: int, log_start_offset: int) -> None:
        raise RuntimeError("broken")

    def failed(
        self, run: RecordRun, error_code: int, message: str | None, record_errors: list[tuple[int, str | None]]
    ) -> None:
        raise RuntimeError("broken")


class TestFaultsOfOurs:
    @in_loop
    @pytest.mark.parametrize("code", [NONE, NOT_ENOUGH_REPLICAS])
    async def test_one_client_that_cannot_be_told_costs_its_neighbours_nothing(self, code: int) -> None:
        dock = Dock()
        batch, owners = dock.merged(["a"], ["b"], ["c"])
        batch.runs[1].owner = BrokenOwner()
        with structlog.testing.capture_logs() as logs:
            dock.answer(batch, code, 100 if code == NONE else -1)
        assert [len(owner.told) for owner in owners] == [1, 0, 1]
        assert [line["log_level"] for line in logs if "could not be told" in line["event"]] == ["error"]
        dock.assert_empty()


class TestRetry:
    @in_loop
    async def test_movable_records_are_put_on_another_brokers_least_loaded_partition_at_once(self) -> None:
        dock = Dock()
        fakes.append(dock.accumulator, dock.queue(1), keyed("backlog"))
        batch, (owner,) = dock.merged(["a"], movable=True)
        dock.answer(batch, NOT_LEADER_OR_FOLLOWER)
        assert dock.changed == ["ponds"]
        assert dock.woken == [1]
        assert dock.retries("repartitioned") == 1
        again = fakes.drain(dock.accumulator, dock.queue(2))
        assert again is batch
        assert fakes.values(again) == ["a"]
        dock.answer(again, NONE, 5, partition=2)
        assert owner.told == [("acknowledged", 5, True)]

    @in_loop
    async def test_of_idle_partitions_no_one_gets_all_that_another_refuses(self) -> None:
        dock = Dock()
        targets = set()
        for _ in range(20):
            batch, _ = dock.merged(["a"], movable=True)
            dock.answer(batch, NOT_LEADER_OR_FOLLOWER)
            target = 1 if dock.queue(1).batches else 2
            targets.add(target)
            dock.answer(fakes.drain(dock.accumulator, dock.queue(target)), NONE, 5, partition=target)
        assert targets == {1, 2}

    @in_loop
    @pytest.mark.parametrize("busy", [False, True])
    async def test_of_many_partitions_not_all_are_looked_at(self, busy: bool) -> None:
        dock = Dock()
        batch, _ = dock.merged(["a"], movable=True)
        dock.cluster.apply(fakes.metadata({"ponds": [0, 1] * 100}), {"ponds"}, 1.0, 300.0)
        for index in range(200 if busy else 0):
            fakes.append(dock.accumulator, dock.queue(index), keyed("backlog"))
        dock.cluster.topics["ponds"].queues.leaders = leaders = Looked(dock.cluster.topics["ponds"].queues.leaders)
        dock.answer(batch, NOT_LEADER_OR_FOLLOWER)
        assert batch.partition % 2 == 1
        assert leaders.looks <= LOOKS + 2

    @in_loop
    async def test_of_many_partitions_the_only_one_that_will_do_is_found(self) -> None:
        dock = Dock()
        batch, _ = dock.merged(["a"], movable=True)
        dock.cluster.apply(fakes.metadata({"ponds": [0] * 999 + [1]}), {"ponds"}, 1.0, 300.0)
        dock.answer(batch, NOT_LEADER_OR_FOLLOWER)
        assert batch.partition == 999

    @in_loop
    async def test_movable_records_without_another_broker_are_sent_back(self) -> None:
        dock = Dock()
        dock.cluster.set_down(dock.cluster.nodes[1], down=True)
        batch, _ = dock.merged(["a"], movable=True)
        dock.answer(batch, NOT_LEADER_OR_FOLLOWER)
        assert dock.queue(0).paused
        assert list(dock.queue(0).batches) == [batch]

    @in_loop
    async def test_movable_records_move_once_and_then_wait(self) -> None:
        dock = Dock()
        batch, _ = dock.merged(["a"], movable=True)
        dock.answer(batch, NOT_LEADER_OR_FOLLOWER)
        target = 1 if dock.queue(1).batches else 2
        again = fakes.drain(dock.accumulator, dock.queue(target))
        dock.answer(again, NOT_LEADER_OR_FOLLOWER, partition=target)
        assert list(dock.queue(target).batches) == [batch]
        assert dock.queue(target).paused

    @in_loop
    async def test_where_replicas_are_missing_they_move_behind_each_pause_too(self) -> None:
        dock = Dock()
        batch, (owner,) = dock.merged(["a"], movable=True)
        for tries in range(1, ELSEWHERE_TRIES):
            source = dock.queue(batch.partition)
            batch.producer_id = 7
            dock.answer(batch, NOT_ENOUGH_REPLICAS, partition=source.index)
            assert source.paused == (tries > 1)
            await dock.leaves(batch, source.index)
            assert dock.queue(batch.partition).leader != source.leader
            assert not source.paused
            assert fakes.drain(dock.accumulator, dock.queue(batch.partition)) is batch
        dock.answer(batch, NONE, 5, partition=batch.partition)
        assert owner.told == [("acknowledged", 5, True)]
        dock.assert_empty()

    @in_loop
    async def test_from_there_they_go_to_a_broker_that_has_not_refused_them_however_busy_it_is(self) -> None:
        """What refuses has no load once a batch leaves it, and looked the least loaded each time."""
        dock = Dock()
        dock.cluster.apply(fakes.metadata({"ponds": [0, 1, 2]}, nodes=(0, 1, 2)), {"ponds"}, 1.0, 300.0)
        fakes.append(dock.accumulator, dock.queue(2), keyed("backlog"))
        batch, _ = dock.merged(["a"], movable=True)
        for source in (0, 1):
            batch.producer_id = 7
            dock.answer(batch, NOT_ENOUGH_REPLICAS, partition=source)
            await dock.leaves(batch, source)
            if batch.partition == 1:
                assert fakes.drain(dock.accumulator, dock.queue(1)) is batch
        assert batch.partition == 2

    @in_loop
    async def test_nothing_moves_behind_a_pause_in_which_its_client_was_told_that_its_time_is_up(self) -> None:
        dock = Dock()
        batch, (owner,) = dock.merged(["a"], movable=True)
        batch.tries = 1
        batch.producer_id = 7
        dock.answer(batch, NOT_ENOUGH_REPLICAS)
        owner.done = True
        dock.accumulator.drop_done(0.0)
        await until(lambda: not dock.queue(0).paused)
        dock.assert_empty()

    @in_loop
    @pytest.mark.parametrize("movable", [False, True])
    async def test_what_was_refused_leaves_again_without_those_whose_client_was_told(self, movable: bool) -> None:
        dock = Dock()
        batch, (told, owner) = dock.merged(["a"], ["b"], movable=movable)
        told.done = True
        dock.answer(batch, NOT_LEADER_OR_FOLLOWER)
        assert dock.accumulator.in_flight_bytes == 0
        source = dock.queue(0)
        await until(lambda: not source.paused)
        target = next(queue for queue in dock.cluster.topics["ponds"].queues.queues() if queue.batches)
        assert (target is source) is not movable
        again = fakes.drain(dock.accumulator, target)
        assert fakes.values(again) == ["b"]
        dock.answer(again, NONE, 5, partition=target.index)
        assert (told.told, owner.told) == ([], [("acknowledged", 5, movable)])
        dock.assert_empty()

    @pytest.mark.parametrize("waiting", [4, 3, 2, 1, 0])
    @in_loop
    async def test_halves_of_what_was_refused_leave_without_those_whose_client_was_told(self, waiting: int) -> None:
        dock = Dock()
        clients = ["a", "b", "c", "d"]
        batch, owners = dock.merged(*[[name] for name in clients])
        for told in owners[: 4 - waiting]:
            told.done = True
        dock.answer(batch, INVALID_RECORD)
        left: list[str] = []
        while waiting > len(left):
            again = fakes.drain(dock.accumulator, dock.queue(0))
            left += fakes.values(again)
            dock.answer(again, NONE, 5)
        assert left == clients[4 - waiting :]
        assert accumulator_kit.drain(dock.accumulator, 0) == []
        dock.assert_empty()

    @in_loop
    async def test_kept_records_go_back_to_the_front_and_nothing_of_their_partition_leaves_for_a_while(self) -> None:
        dock = Dock()
        batch, (owner,) = dock.merged(["a"])
        fakes.append(dock.accumulator, dock.queue(0), keyed("next"))
        dock.answer(batch, NOT_LEADER_OR_FOLLOWER)
        assert dock.changed == ["ponds"]
        assert dock.retries("backoff") == 1
        fakes.flush(dock.queue(0), dock.accumulator)
        assert accumulator_kit.drain(dock.accumulator, 0) == []
        assert dock.woken == []
        await until(lambda: dock.woken)
        assert fakes.drain(dock.accumulator, dock.queue(0)) is batch
        assert owner.told == []

    @in_loop
    async def test_who_leads_after_the_pause_is_woken(self) -> None:
        dock = Dock()
        batch, _ = dock.merged(["a"])
        dock.answer(batch, NOT_LEADER_OR_FOLLOWER)
        dock.cluster.apply(fakes.metadata({"ponds": [1, 1, 1]}), {"ponds"}, 1.0, 300.0)
        await until(lambda: 1 in dock.woken)
        assert fakes.drain(dock.accumulator, dock.queue(0)) is batch

    @in_loop
    async def test_an_answer_that_names_an_offset_is_no_proof_that_nothing_was_appended(self) -> None:
        dock = Dock()
        batch, (owner,) = dock.merged(["a"])
        dock.answer(batch, NOT_LEADER_OR_FOLLOWER, base_offset=7)
        assert owner.told == [("failed", REQUEST_TIMED_OUT, [])]
        dock.assert_empty()


class TestLost:
    @in_loop
    @pytest.mark.parametrize("movable", [False, True])
    async def test_every_owner_is_told_and_nothing_is_sent_again(self, movable: bool) -> None:
        dock = Dock()
        batch, owners = dock.merged(["a"], ["b"], movable=movable)
        dock.delivery.lost(dock.queue(0), batch)
        assert [owner.told for owner in owners] == [[("failed", REQUEST_TIMED_OUT, [])]] * 2
        dock.assert_empty()


class TestSplit:
    @in_loop
    @pytest.mark.parametrize("code", [MESSAGE_TOO_LARGE, INVALID_RECORD, CORRUPT_MESSAGE])
    @pytest.mark.parametrize("bad", [0, 2, 4])
    async def test_a_merged_batch_is_halved_until_only_the_guilty_owner_fails(self, code: int, bad: int) -> None:
        dock = Dock()
        batch, owners = dock.merged(*[[f"{number}a", f"{number}b"] for number in range(5)])
        log: list[str] = []
        while True:
            found = fakes.values(batch)
            if f"{bad}a" in found:
                dock.answer(batch, code)
            else:
                dock.answer(batch, NONE, len(log))
                log += found
            if not dock.queue(0).batches:
                break
            batch = fakes.drain(dock.accumulator, dock.queue(0))
        for number, owner in enumerate(owners):
            if number == bad:
                assert owner.told == [("failed", code, [(0, "why")])]
            else:
                assert owner.told == [("acknowledged", log.index(f"{number}a"), False)]
        assert log == [f"{number}{half}" for number in range(5) if number != bad for half in "ab"]
        dock.assert_empty()

    @in_loop
    async def test_halves_leave_before_what_came_later(self) -> None:
        dock = Dock()
        batch, _ = dock.merged(["a"], ["b"])
        fakes.append(dock.accumulator, dock.queue(0), keyed("later"))
        dock.answer(batch, MESSAGE_TOO_LARGE)
        sent = []
        while dock.queue(0).batches:
            piece = fakes.drain(dock.accumulator, dock.queue(0))
            sent += fakes.values(piece)
            dock.answer(piece, NONE, 0)
        assert sent == ["a", "b", "later"]

    @in_loop
    async def test_record_numbers_of_a_part_are_not_told_as_the_clients(self) -> None:
        dock = Dock()
        owner = fakes.append(dock.accumulator, dock.queue(0), keyed("a"), whole=False)
        dock.answer(fakes.drain(dock.accumulator, dock.queue(0)), INVALID_RECORD)
        assert owner.told == [("failed", INVALID_RECORD, [])]

    @in_loop
    @pytest.mark.parametrize(
        ("code", "whole", "sequenced"),
        [
            (INVALID_RECORD, False, True),
            (NOT_ENOUGH_REPLICAS, False, True),
            (NOT_ENOUGH_REPLICAS, True, True),
            (NOT_ENOUGH_REPLICAS, True, False),
        ],
    )
    async def test_client_batches_of_a_topic_go_in_no_halves_for_a_minute_after_a_refusal(
        self, code: int, whole: bool, sequenced: bool
    ) -> None:
        dock = Dock()
        assert dock.delivery.splits("ponds")
        began = monotonic()
        self._refused(dock, code, whole=whole, sequenced=sequenced)
        ended = monotonic()
        assert dock.delivery.splits("lakes")
        for now, splits in ((ended, False), (began + 59, False), (ended + 60, True)):
            with patch("forebay_proxy.produce.delivery.monotonic", lambda now=now: now):
                assert dock.delivery.splits("ponds") is splits

    @in_loop
    async def test_what_is_refused_for_its_own_sake_keeps_them_whole_but_does_not_make_them_so(self) -> None:
        dock = Dock()
        self._refused(dock, INVALID_RECORD)
        assert dock.delivery.splits("ponds")
        began = monotonic()
        self._refused(dock, INVALID_RECORD, whole=False)
        for seconds in (45, 90):
            with patch("forebay_proxy.produce.delivery.monotonic", lambda at=seconds: began + at):
                assert not dock.delivery.splits("ponds")
                self._refused(dock, INVALID_RECORD)

    def _refused(self, dock: Dock, code: int, *, whole: bool = True, sequenced: bool = True) -> None:
        """A batch with all records of a client's, or only some."""
        fakes.append(dock.accumulator, dock.queue(0), keyed("a"), whole=whole)
        batch = fakes.drain(dock.accumulator, dock.queue(0))
        batch.producer_id = 7 if sequenced else -1
        dock.answer(batch, code)


class TestOtherErrors:
    @in_loop
    async def test_are_every_owners_without_another_try(self) -> None:
        dock = Dock()
        batch, owners = dock.merged(["a"], ["b"])
        dock.answer(batch, NOT_ENOUGH_REPLICAS)
        assert [owner.told for owner in owners] == [[("failed", NOT_ENOUGH_REPLICAS, [])]] * 2
        dock.assert_empty()


class TestTheJournals:
    """Its own batches, which nobody but itself waits for, are no errors of clients."""

    @in_loop
    @pytest.mark.parametrize(("neighbours", "counted"), [(False, 0), (True, 1)])
    async def test_what_becomes_of_its_rows_is_not_counted_unless_a_client_shares_it(
        self, neighbours: bool, counted: int
    ) -> None:
        dock = Dock()

        def away() -> ProducerBatch:
            batch, owners = dock.merged(["a"], ["b"])
            for owner in owners[: 1 if neighbours else 2]:
                owner.client = JOURNAL  # type: ignore[assignment]
            return batch

        dock.answer(away(), NOT_ENOUGH_REPLICAS)
        assert dock.errors("upstream", "answered") == counted
        dock.delivery.lost(dock.queue(0), away())
        assert dock.errors("upstream", "outcome_unknown") == counted
        dock.answer(away(), NOT_LEADER_OR_FOLLOWER, base_offset=7)
        assert dock.errors("upstream", "outcome_unknown") == 2 * counted
        batch = away()
        dock.delivery.deserted(batch.runs)
        assert dock.errors("upstream", "outcome_unknown") == 3 * counted
        gone = dock.queue(0)
        dock.cluster.apply(fakes.metadata({"ponds": []}, errors={"ponds": 3}), {"ponds"}, 1.0, 300.0)
        dock.delivery.answered(gone, batch, PartitionResponse(0, UNKNOWN_TOPIC_OR_PARTITION, -1, -1, 0, [], None))
        assert dock.errors("internal", "retriable") == counted


class TestUnreachable:
    @in_loop
    async def test_what_may_go_elsewhere_goes_and_the_rest_waits(self) -> None:
        dock = Dock()
        moved = fakes.append(dock.accumulator, dock.queue(0), null_key("n"), movable=True)
        fakes.append(dock.accumulator, dock.queue(0), keyed("k"))
        fakes.flush(dock.queue(0), dock.accumulator)
        dock.cluster.set_down(dock.cluster.nodes[0], down=True)
        dock.woken.clear()
        dock.delivery.unreachable(0)
        assert [fakes.values(batch) for batch in dock.queue(0).batches] == [["k"]]
        assert dock.woken == [1]
        target = 1 if dock.queue(1).batches else 2
        dock.answer(fakes.drain(dock.accumulator, dock.queue(target)), NONE, 3, partition=target)
        assert moved.told == [("acknowledged", 3, True)]

    @in_loop
    async def test_what_still_lingers_goes_along(self) -> None:
        """Beside records that are ready and stay it was forgotten: nobody looked there again when it was ready."""
        dock = Dock()
        fakes.append(dock.accumulator, dock.queue(0), keyed("k"))
        fakes.flush(dock.queue(0), dock.accumulator)
        fakes.append(dock.accumulator, dock.queue(0), null_key("n"), movable=True)
        dock.cluster.set_down(dock.cluster.nodes[0], down=True)
        dock.delivery.unreachable(0)
        assert [fakes.values(batch) for batch in dock.queue(0).batches] == [["k"]]


class TestGone:
    @in_loop
    async def test_a_topic_that_the_brokers_do_not_know_any_more_is_told(self) -> None:
        dock = Dock()
        dock.cluster.on_partitions_gone(dock.delivery.gone)
        owners = [fakes.append(dock.accumulator, dock.queue(index), keyed("a")) for index in (0, 0, 2)]
        dock.cluster.apply(fakes.metadata({"ponds": []}, errors={"ponds": 3}), {"ponds"}, 1.0, 300.0)
        assert [owner.told for owner in owners] == [[("failed", UNKNOWN_TOPIC_OR_PARTITION, [])]] * 3
        assert dock.errors("internal", "retriable") == 2
        dock.assert_empty()

    @in_loop
    async def test_so_is_a_partition_that_was_lost_while_its_batch_was_away(self) -> None:
        dock = Dock()
        owner = fakes.append(dock.accumulator, dock.queue(2), keyed("a"))
        batch = fakes.drain(dock.accumulator, dock.queue(2))
        gone = dock.queue(2)
        dock.cluster.apply(fakes.metadata({"ponds": [0, 1]}), {"ponds"}, 1.0, 300.0)
        dock.delivery.answered(gone, batch, PartitionResponse(2, UNKNOWN_TOPIC_OR_PARTITION, -1, -1, 0, [], None))
        assert owner.told == [("failed", UNKNOWN_TOPIC_OR_PARTITION, [])]
        assert (dock.fates(), dock.errors("internal", "retriable")) == (["refused"], 1)
        dock.assert_empty()

    @in_loop
    async def test_unless_its_records_may_go_to_another_one(self) -> None:
        dock = Dock()
        fakes.append(dock.accumulator, dock.queue(2), null_key("a"), movable=True)
        batch = fakes.drain(dock.accumulator, dock.queue(2))
        gone = dock.queue(2)
        dock.cluster.apply(fakes.metadata({"ponds": [0, 1]}), {"ponds"}, 1.0, 300.0)
        dock.delivery.answered(gone, batch, PartitionResponse(2, UNKNOWN_TOPIC_OR_PARTITION, -1, -1, 0, [], None))
        assert (dock.fates(), dock.errors("internal", "retriable")) == (["retried"], 0)
        assert sorted(len(dock.queue(index).batches) for index in range(2)) == [0, 1]

    @in_loop
    async def test_of_one_that_had_been_appended_there_nobody_is_told_that_it_was_refused(self) -> None:
        """With acks=all a leader answers so, with the offset, where the partition is deleted meanwhile."""
        dock = Dock()
        owner = fakes.append(dock.accumulator, dock.queue(2), keyed("a"))
        batch = fakes.drain(dock.accumulator, dock.queue(2))
        batch.producer_id = 7
        gone = dock.queue(2)
        dock.cluster.apply(fakes.metadata({"ponds": [0, 1]}), {"ponds"}, 1.0, 300.0)
        dock.delivery.answered(gone, batch, PartitionResponse(2, UNKNOWN_TOPIC_OR_PARTITION, 5, -1, 0, [], None))
        assert owner.told == [("failed", REQUEST_TIMED_OUT, [])]
        assert (dock.fates(), dock.errors("upstream", "outcome_unknown")) == (["unknown"], 1)
        dock.assert_empty()

    @in_loop
    async def test_records_without_a_key_go_to_a_partition_that_is_there(self) -> None:
        dock = Dock()
        kept = fakes.append(dock.accumulator, dock.queue(2), keyed("k"))
        moved = fakes.append(dock.accumulator, dock.queue(2), null_key("n"), movable=True)
        gone = dock.queue(2)
        dock.cluster.apply(fakes.metadata({"ponds": [0]}), {"ponds"}, 1.0, 300.0)
        dock.delivery.gone([gone])
        assert (kept.told, moved.told) == ([("failed", UNKNOWN_TOPIC_OR_PARTITION, [])], [])
        dock.answer(fakes.drain(dock.accumulator, dock.queue(0)), NONE, 3)
        assert moved.told == [("acknowledged", 3, True)]
        dock.assert_empty()
