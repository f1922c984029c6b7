"""Where a partition's next request goes while its leader changes: rule by rule, then against brokers at random."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_codecs.record_batch import BatchNumbers
from forebay_policies.leader_handover import LATE_S, MOST, NOWHERE, LeaderHandover

KEY = ("ponds", 0)


def numbers(first: int, epoch: int = 0, producer_id: int = 7) -> BatchNumbers:
    return BatchNumbers(producer_id, epoch, first)


class TestRules:
    def test_a_partition_without_a_past_goes_to_its_leader(self) -> None:
        handover = LeaderHandover()
        assert handover.broker(KEY, 2, numbers(0), 0.0) == 2
        assert handover.broker(KEY, NOWHERE, numbers(0), 0.0) == NOWHERE
        assert len(handover) == 0

    def test_what_follows_an_unanswered_request_goes_where_that_went(self) -> None:
        handover = LeaderHandover()
        handover.sent(KEY, 1)
        handover.sent(KEY, 1)
        assert handover.broker(KEY, 2, numbers(10), 0.0) == 1
        handover.answered(KEY)
        assert handover.broker(KEY, 2, None, 0.0) == 1
        handover.answered(KEY)
        assert handover.broker(KEY, 2, numbers(20), 0.0) == 2
        assert len(handover) == 0

    def test_other_partitions_are_not_concerned(self) -> None:
        handover = LeaderHandover()
        handover.sent(KEY, 1)
        assert handover.broker(("ponds", 1), 2, numbers(0), 0.0) == 2

    def test_behind_a_failure_nothing_goes_elsewhere_before_it_comes_again(self) -> None:
        handover = LeaderHandover()
        handover.sent(KEY, 1)
        handover.failed(KEY, numbers(0), 0.0, judged=True)
        assert handover.broker(KEY, 2, numbers(10), 1.0) == NOWHERE
        assert handover.broker(KEY, 2, numbers(0), 2.0) == 2
        assert handover.broker(KEY, 2, numbers(10), 3.0) == 2
        assert len(handover) == 0

    def test_the_broker_that_refused_may_judge_what_follows(self) -> None:
        handover = LeaderHandover()
        handover.sent(KEY, 1)
        handover.failed(KEY, numbers(0), 0.0, judged=True)
        assert handover.broker(KEY, 1, numbers(10), 1.0) == 1
        assert handover.broker(KEY, 2, numbers(20), 1.0) == NOWHERE

    def test_a_new_connection_to_the_same_broker_is_another_way(self) -> None:
        handover = LeaderHandover()
        handover.sent(KEY, 1)
        handover.failed(KEY, numbers(0), 0.0, judged=False)
        assert handover.broker(KEY, 1, numbers(10), 1.0) == NOWHERE

    def test_a_broker_that_did_not_lead_may_lead_again_and_gets_nothing_before_what_it_refused(self) -> None:
        handover = LeaderHandover()
        handover.sent(KEY, 2)
        handover.sent(KEY, 2)
        handover.failed(KEY, numbers(0), 0.0, judged=False)
        assert handover.broker(KEY, 2, numbers(20), 1.0) == NOWHERE
        handover.failed(KEY, numbers(10), 0.0, judged=False)
        assert handover.broker(KEY, 2, numbers(10), 1.0) == NOWHERE
        assert handover.broker(KEY, 2, numbers(0), 2.0) == 2

    def test_the_first_failure_counts(self) -> None:
        handover = LeaderHandover()
        handover.sent(KEY, 1)
        handover.sent(KEY, 1)
        handover.failed(KEY, numbers(0), 0.0, judged=True)
        handover.failed(KEY, numbers(10), 0.0, judged=True)
        assert handover.broker(KEY, 2, numbers(10), 1.0) == NOWHERE
        assert handover.broker(KEY, 2, numbers(0), 1.0) == 2

    def test_the_former_leader_gets_nothing_more_and_what_failed_waits_until_it_has_answered(self) -> None:
        handover = LeaderHandover()
        handover.sent(KEY, 1)
        handover.sent(KEY, 1)
        handover.failed(KEY, numbers(0), 0.0, judged=True)
        for first in (0, 20):
            assert handover.broker(KEY, 2, numbers(first), 1.0) == NOWHERE
            handover.refused(KEY, numbers(first), 1.0)
        assert handover.broker(KEY, 1, numbers(20), 1.0) == 1
        handover.failed(KEY, numbers(10), 2.0, judged=True)
        assert handover.broker(KEY, 2, numbers(0), 3.0) == 2

    def test_a_refusal_here_is_a_failure(self) -> None:
        handover = LeaderHandover()
        handover.refused(KEY, numbers(0), 0.0)
        assert handover.broker(KEY, 2, numbers(10), 1.0) == NOWHERE
        assert handover.broker(KEY, 2, numbers(0), 1.0) == 2

    def test_a_new_epoch_or_another_producer_begins_anew(self) -> None:
        for later in (numbers(10, epoch=1), numbers(10, producer_id=8), None):
            handover = LeaderHandover()
            handover.sent(KEY, 1)
            handover.failed(KEY, numbers(0), 0.0, judged=True)
            assert handover.broker(KEY, 2, later, 1.0) == 2
            assert len(handover) == 0

    def test_after_a_while_brokers_judge(self) -> None:
        handover = LeaderHandover()
        handover.refused(KEY, numbers(0), 0.0)
        assert handover.broker(KEY, 2, numbers(10), LATE_S - 1) == NOWHERE
        assert handover.broker(KEY, 2, numbers(10), LATE_S) == 2

    def test_records_without_sequences_have_failed_for_good(self) -> None:
        handover = LeaderHandover()
        handover.sent(KEY, 1)
        handover.failed(KEY, None, 0.0, judged=False)
        handover.refused(KEY, None, 0.0)
        assert len(handover) == 0

    def test_refusals_are_remembered_for_so_many_partitions(self) -> None:
        handover = LeaderHandover()
        for partition in range(MOST + 5):
            handover.refused(("ponds", partition), numbers(0), 0.0)
        assert len(handover) == MOST


class Client:
    """One idempotent producer with several batches away, which sends what failed again, the first of it first."""

    def __init__(self, count: int) -> None:
        self.to_send = list(range(count))

    def failed(self, batch: int) -> None:
        self.to_send = sorted({*self.to_send, batch})


class TestAtRandom:
    @settings(max_examples=400)
    @given(st.lists(st.integers(0, 6), max_size=120), st.integers(2, 12))
    def test_no_batch_is_at_a_log_before_an_earlier_one(self, moves: list[int], count: int) -> None:
        """Brokers know nothing of the producer at first, and take any sequence then: the worst case.

        0 the client sends the next; 1 it reads an answer; 2, 3 broker 1 or 2 works; 4 the leader moves, and Forebay
        hears of it; 5, 6 the connection to broker 1 or 2 is lost. A broker to which something is under way from the
        time before does not lead again: it could take the second of two after it refused the first, directly, too.
        """
        handover, client = LeaderHandover(), Client(count)
        leader, log = 1, list[int]()
        links: dict[int, list[int]] = {1: [], 2: []}
        wire: list[int] = []  # on its way from the client
        answers: list[tuple[int, bool]] = []  # on their way to the client

        def takes(batch: int) -> None:
            to = handover.broker(KEY, leader, numbers(batch), 0.0)
            if to == NOWHERE:
                handover.refused(KEY, numbers(batch), 0.0)
                answers.append((batch, False))
            else:
                handover.sent(KEY, to)
                links[to].append(batch)

        def works(broker: int) -> None:
            if not links[broker]:
                return
            batch = links[broker].pop(0)
            taken = broker == leader and (not log or batch in log or batch == log[-1] + 1)
            if taken:
                if batch not in log:
                    log.append(batch)
                handover.answered(KEY)
            else:
                handover.failed(KEY, numbers(batch), 0.0, judged=broker == leader)
            answers.append((batch, taken))

        def lost(broker: int) -> None:
            for batch in links[broker]:
                handover.failed(KEY, numbers(batch), 0.0, judged=False)
                answers.append((batch, False))
            links[broker].clear()

        def reads() -> None:
            if answers:
                batch, taken = answers.pop(0)
                if not taken:
                    client.failed(batch)

        for move in [*moves, *([0, 1, 2, 3] * 8 * count)]:
            if move == 0:
                if client.to_send:
                    wire.append(client.to_send.pop(0))
                if wire:
                    takes(wire.pop(0))
            elif move == 1:
                reads()
            elif move in (2, 3):
                works(move - 1)
            elif move == 4:
                if not links[3 - leader]:
                    leader = 3 - leader
            else:
                lost(move - 4)
            assert log == list(range(len(log)))
        assert len(log) == count
