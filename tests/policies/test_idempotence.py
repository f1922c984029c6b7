"""Which sequence a batch leaves under, after whatever became of those before it."""

from __future__ import annotations

import pytest

from forebay_policies.idempotence import MAX_EPOCH, MAX_IDS, UNUSED_S, Kind, ProducerIds
from forebay_policies.producer_batch import Lane, ProducerBatch
from forebay_policies.throttling import CLIENT_ID
from tests.kit.producer_states import Numbers, numbers_of
from tests.policies.accumulator_kit import Bench
from tests.policies.batches import KEPT, client_batch, encoded, run_of

LEADER_ACKS: Kind = (False, False, CLIENT_ID)
ALL_ACK: Kind = (True, False, CLIENT_ID)


def numbers(batch: ProducerBatch) -> Numbers:
    """As a broker reads them."""
    return numbers_of(encoded(batch))


class Ids(Bench):
    """Partitions 0 and 1 of one topic, with ids 7 (acks=1) and 8 (acks=all)."""

    def __init__(self) -> None:
        super().__init__(2)
        self.ids = self.accumulator.ids
        self.asked: list[list[Kind]] = []
        self.ids.observe(lambda: self.asked.append(list(self.ids.wanted)))
        self.ids.arrived(LEADER_ACKS, 7, 0)
        self.ids.arrived(ALL_ACK, 8, 0)

    def away(self, *values: bytes, partition: int = 0, lane: Lane = KEPT) -> ProducerBatch:
        self.put(partition, *values, lane=lane)
        return self.drain_one(partition + 1)

    def forget_topic(self) -> None:
        """It is produced to again."""
        self.accumulator.forget("topic")
        self.topic = self.accumulator.topic("topic")
        self.lead(1, 2)

    def acknowledge(self, batch: ProducerBatch, partition: int = 0) -> None:
        self.queue(partition, batch.lane.acks).sequence.acknowledged(batch)
        self.complete(partition, batch)


class TestSequences:
    def test_a_batch_follows_the_one_that_was_acknowledged(self) -> None:
        ids = Ids()
        first = ids.away(b"a", b"b")
        assert numbers(first) == Numbers(7, 0, 0, 2)
        ids.acknowledge(first)
        assert numbers(ids.away(b"c")) == Numbers(7, 0, 2, 1)

    def test_each_partition_has_sequences_of_its_own_and_acks_all_another_id(self) -> None:
        ids = Ids()
        ids.acknowledge(ids.away(b"a"))
        assert numbers(ids.away(b"b", partition=1)) == Numbers(7, 0, 0, 1)
        assert numbers(ids.away(b"c", lane=KEPT._replace(acks=-1))) == Numbers(8, 0, 0, 1)

    def test_what_was_refused_for_certain_gives_its_sequence_to_the_next(self) -> None:
        ids = Ids()
        refused = ids.away(b"a")
        ids.queue(0).sequence.given_back(refused)
        ids.complete(0, refused)
        assert numbers(ids.away(b"b", b"c")) == Numbers(7, 0, 0, 2)

    def test_another_attempt_keeps_the_sequence(self) -> None:
        ids = Ids()
        batch = ids.away(b"a", b"b")
        batch.tainted = True
        ids.back(0, batch)
        assert ids.drain_one(1) is batch
        assert numbers(batch) == Numbers(7, 0, 0, 2)

    def test_whoever_is_dropped_though_it_may_be_appended_takes_the_epoch_with_it(self) -> None:
        ids = Ids()
        dropped = ids.away(b"a")
        ids.complete(0, dropped)
        assert numbers(ids.away(b"b")) == Numbers(7, 1, 0, 1)
        assert numbers(ids.away(b"c", partition=1)) == Numbers(7, 0, 0, 1)
        assert ids.ids.bumps == 1

    def test_after_the_last_sequence_comes_0(self) -> None:
        ids = Ids()
        ids.acknowledge(ids.away(b"a"))
        ids.queue(0).sequence.next = 2**31 - 2
        batch = ids.away(b"b", b"c", b"d")
        assert numbers(batch).first == 2**31 - 2
        ids.acknowledge(batch)
        assert numbers(ids.away(b"e")).first == 1

    def test_after_the_last_epoch_comes_another_id(self) -> None:
        ids = Ids()
        ids.acknowledge(ids.away(b"a"))
        ids.queue(0).sequence.epoch = MAX_EPOCH
        ids.complete(0, ids.away(b"b"))
        without = ids.away(b"c")
        assert numbers(without).producer_id == -1
        ids.complete(0, without)
        assert list(ids.ids.wanted) == [LEADER_ACKS]
        ids.ids.arrived(LEADER_ACKS, 9, 0)
        assert numbers(ids.away(b"d")) == Numbers(9, 0, 0, 1)

    def test_a_topic_that_takes_no_sequences_is_sent_none(self) -> None:
        ids = Ids()
        ids.queue(0).sequence.plain = True
        assert numbers(ids.away(b"a")).producer_id == -1
        assert numbers(ids.away(b"b", partition=1)).producer_id == 7


class TestCompany:
    def test_what_failed_together_is_sent_with_ever_fewer_others_until_it_stands_alone(self) -> None:
        """One batch that a broker answers by closing the connection must not take the others with it for long."""
        ids = Ids()
        ids.lead(*[1] * 9)
        for partition in range(9):
            ids.put(partition, b"x", lane=KEPT)
        batches = [ids.queue(partition).batches[0] for partition in range(9)]
        sizes = []
        for tries in range(1, 10):
            drained = ids.drain(1)
            sizes.append(len(drained))
            for queue, batch in drained:
                ids.back(queue.index, batch)
            for batch in batches:
                batch.tainted, batch.tries = True, tries
        assert sizes == [9, 9, 9, 9, 9, 8, 4, 2, 1]

    def test_whoever_has_not_failed_does_not_go_along(self) -> None:
        ids = Ids()
        ids.lead(1, 1)
        failed = ids.away(b"a")
        failed.tainted, failed.tries = True, 8
        ids.put(1, b"b", lane=KEPT)
        ids.back(0, failed)
        assert [len(ids.drain(1)) for _ in range(3)] == [1, 1, 0]


class TestQueuesThatComeBack:
    """A queue that was forgotten does not know how far it was: it must begin no epoch again."""

    def test_a_forgotten_topic_begins_with_the_next_epoch(self) -> None:
        ids = Ids()
        ids.acknowledge(ids.away(b"a"))
        ids.forget_topic()
        assert numbers(ids.away(b"b")) == Numbers(7, 1, 0, 1)

    def test_one_that_has_raised_its_epoch_takes_all_later_ones_behind_that(self) -> None:
        ids = ProducerIds()
        ids.observe(lambda: None)
        ids.arrived(LEADER_ACKS, 7, 0)
        ids.forgotten(LEADER_ACKS, 7, 5)
        ids.forgotten(LEADER_ACKS, 7, 3)
        ids.forgotten(LEADER_ACKS, 6, 9)
        found = ids.of(LEADER_ACKS)
        assert found is not None
        assert found.first_epoch == 6

    @pytest.mark.parametrize("how", ["merged again", "idle", "topic forgotten"])
    def test_queues_of_client_ids_are_forgotten_too(self, how: str) -> None:
        ids = Ids()
        ids.accumulator.throttled(1, "client", 0.0, ids.now)
        batch = self._away(ids)
        assert numbers(batch).producer_id == -1
        ids.accumulator.completed(ids.topic.queue(0, 1, "client"), batch, ids.now)
        (kind,) = ids.ids.wanted
        ids.ids.arrived(kind, 9, 0)
        for epoch in (0, 1):
            batch = self._away(ids)
            assert numbers(batch) == Numbers(9, epoch, 0, 1)
            queue = ids.topic.queue(0, 1, "client")
            queue.sequence.acknowledged(batch)
            ids.accumulator.completed(queue, batch, ids.now)
            if how == "merged again":
                ids.accumulator.settle(ids.now + 1e6)
                ids.accumulator.throttled(1, "client", 0.0, ids.now)
            elif how == "idle":
                ids.accumulator.drop_abandoned(ids.now)
            else:
                ids.forget_topic()

    def test_what_was_merged_before_client_ids_were_kept_apart_is_forgotten_with_the_topic(self) -> None:
        ids = Ids()
        ids.acknowledge(ids.away(b"a"))
        ids.accumulator.throttled(1, "client", 0.0, ids.now)
        ids.forget_topic()
        ids.accumulator.settle(ids.now + 1e6)
        assert numbers(ids.away(b"b")) == Numbers(7, 1, 0, 1)

    def _away(self, ids: Ids) -> ProducerBatch:
        batch = client_batch(b"x")
        ids.accumulator.append(ids.topic.queue(0, 1, "client"), KEPT, run_of(batch), batch, ids.now)
        ids.flush()
        return ids.drain_one(1)


class TestAnotherCluster:
    """It gives out ids by itself: ours may be another producer's there."""

    def test_whatever_leaves_from_then_on_has_another_id(self) -> None:
        ids = Ids()
        ids.acknowledge(ids.away(b"a"))
        ids.accumulator.renew_ids()
        assert list(ids.ids.wanted) == [LEADER_ACKS, ALL_ACK]
        ids.ids.arrived(LEADER_ACKS, 9, 5)
        assert numbers(ids.away(b"b")) == Numbers(9, 5, 0, 1)
        assert numbers(ids.away(b"c", partition=1)) == Numbers(9, 5, 0, 1)

    def test_what_may_be_appended_keeps_its_own(self) -> None:
        ids = Ids()
        batch = ids.away(b"a", b"b")
        ids.accumulator.renew_ids()
        ids.ids.arrived(LEADER_ACKS, 9, 5)
        batch.tainted = True
        ids.back(0, batch)
        assert numbers(ids.drain_one(1)) == Numbers(7, 0, 0, 2)
        ids.acknowledge(batch)
        assert numbers(ids.away(b"c")) == Numbers(9, 5, 0, 1)

    def test_where_only_a_topic_is_gone_others_go_on_until_there_is_another_id(self) -> None:
        ids = Ids()
        ids.acknowledge(ids.away(b"a"))
        ids.accumulator.renew_ids({"another"})
        batch = ids.away(b"b")
        assert numbers(batch) == Numbers(7, 0, 1, 1)
        ids.ids.arrived(LEADER_ACKS, 9, 5)
        ids.acknowledge(batch)
        for sequence in range(2):
            batch = ids.away(b"c")
            assert numbers(batch) == Numbers(9, 5, sequence, 1)
            ids.acknowledge(batch)

    def test_the_topic_that_is_gone_does_not(self) -> None:
        ids = Ids()
        ids.acknowledge(ids.away(b"a"))
        ids.accumulator.renew_ids({"topic"})
        without = ids.away(b"b")
        assert numbers(without).producer_id == -1
        ids.complete(0, without)
        ids.ids.arrived(LEADER_ACKS, 9, 5)
        assert numbers(ids.away(b"c")) == Numbers(9, 5, 0, 1)


class TestIds:
    def test_without_anybody_who_asks_brokers_nothing_carries_an_id(self) -> None:
        bench = Bench(2)
        bench.put(0, b"a", lane=KEPT)
        assert numbers(bench.drain_one(1)).producer_id == -1

    def test_an_id_for_each_acks_is_wanted_from_the_start_and_once(self) -> None:
        ids = Ids()
        assert ids.asked == [[LEADER_ACKS], [LEADER_ACKS, ALL_ACK]]
        assert list(ids.ids.wanted) == []

    def test_where_brokers_give_none_batches_leave_without_until_they_do(self) -> None:
        ids = Ids()
        ids.acknowledge(ids.away(b"a"))
        ids.ids.disable()
        assert ids.ids.count == 0
        without = ids.away(b"b")
        assert numbers(without).producer_id == -1
        ids.complete(0, without)
        ids.ids.enable()
        assert numbers(ids.away(b"c")) == Numbers(7, 0, 1, 1)

    def test_there_are_not_more_than_so_many(self) -> None:
        ids = ProducerIds()
        ids.observe(lambda: None)
        for number in range(MAX_IDS + 10):
            assert ids.of((False, True, str(number))) is None
        assert len(ids.wanted) == MAX_IDS

    def test_beyond_so_many_client_ids_have_none_and_brokers_are_asked_for_none(self) -> None:
        ids, clients, told = self._full()
        assert (ids.ran_out, len(told)) == (False, MAX_IDS)
        for _ in range(3):
            assert ids.of((False, True, "late")) is None
        assert ids.ran_out
        assert len(told) == MAX_IDS + 1
        assert all(ids.of(kind) for kind in (LEADER_ACKS, ALL_ACK, *clients))
        assert list(ids.wanted) == []

    def test_forebays_own_have_room_all_the_same(self) -> None:
        ids, _, _ = self._full()
        ids.used_up(LEADER_ACKS, 0)
        ids.disable()
        ids.arrived((False, True, "late"), 5_000, 0)
        ids.enable()
        assert list(ids.wanted) == [LEADER_ACKS]

    def test_what_a_client_id_has_not_used_for_an_hour_makes_room(self) -> None:
        ids, clients, _ = self._full()
        used = ids.of(clients[0])
        assert used is not None
        used.taken()
        ids.drop_unused(100.0)
        ids.drop_unused(100.0 + UNUSED_S - 1)
        assert ids.count == MAX_IDS
        ids.drop_unused(100.0 + UNUSED_S)
        assert ids.count == 3
        assert ids.of(clients[0]) is used
        assert ids.of(clients[1]) is None
        assert list(ids.wanted) == [clients[1]]

    def test_for_another_cluster_only_those_are_asked_for_that_are_used(self) -> None:
        """Else nobody's hour ends where topics come and go."""
        ids, clients, _ = self._full()
        used = ids.of(clients[0])
        assert used is not None
        used.taken()
        ids.renew()
        assert set(ids.wanted) == {LEADER_ACKS, ALL_ACK, clients[0]}

    def test_an_hour_ends_where_nobody_is_throttled_any_more_too(self) -> None:
        ids = Ids()
        ids.ids.arrived((True, True, "client"), 8, 0)
        count = ids.ids.count
        assert not ids.accumulator.throttling.active
        ids.accumulator.drop_abandoned(ids.now)
        ids.accumulator.drop_abandoned(ids.now + UNUSED_S)
        assert ids.ids.count == count - 1

    def test_whatever_of_a_client_id_goes_on_counts_as_use(self) -> None:
        ids = Ids()
        ids.accumulator.throttled(1, "client", 0.0, ids.now)
        ids.ids.of((False, True, "client"))
        ids.ids.arrived((False, True, "client"), 9, 0)
        for _ in range(3):
            ids.now += UNUSED_S
            queue = ids.topic.queue(0, 1, "client")
            batch = client_batch(b"x")
            ids.accumulator.append(queue, KEPT, run_of(batch), batch, ids.now)
            ids.flush()
            away = ids.drain_one(1)
            assert numbers(away).producer_id == 9
            ids.accumulator.drop_abandoned(ids.now)
            ids.accumulator.drop_abandoned(ids.now + 2 * UNUSED_S)
            assert ids.ids.count == 3
            queue.sequence.acknowledged(away)
            ids.accumulator.completed(queue, away, ids.now)
            ids.accumulator.drop_abandoned(ids.now)
        ids.accumulator.drop_abandoned(ids.now + UNUSED_S)
        assert ids.ids.count == 2

    def _full(self) -> tuple[ProducerIds, list[Kind], list[int]]:
        """All that there are, those of client ids, and how many there were each time that somebody was told."""
        ids = ProducerIds()
        told: list[int] = []
        ids.observe(lambda: told.append(ids.count))
        clients: list[Kind] = [(False, True, str(number)) for number in range(MAX_IDS - 2)]
        for number, kind in enumerate([LEADER_ACKS, ALL_ACK, *clients]):
            ids.of(kind)
            ids.of(kind)
            ids.arrived(kind, number, 0)
        assert ids.count == MAX_IDS
        return ids, clients, told

    def test_another_queues_old_id_is_not_replaced_twice(self) -> None:
        ids = ProducerIds()
        ids.observe(lambda: None)
        ids.arrived(LEADER_ACKS, 7, 0)
        ids.used_up(LEADER_ACKS, 7)
        ids.arrived(LEADER_ACKS, 9, 0)
        ids.used_up(LEADER_ACKS, 7)
        found = ids.of(LEADER_ACKS)
        assert found is not None
        assert found.number == 9
