"""The fates of runs become one response, once, with exactly the client's partitions."""

from __future__ import annotations

import pytest

from forebay_codecs import produce_response
from forebay_codecs.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    NONE,
    NOT_ENOUGH_REPLICAS,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from forebay_codecs.produce_response import PartitionResponse
from forebay_policies.producer_batch import RecordRun, run_overhead
from forebay_proxy.produce.completion import ANSWERED_AT_ONCE, ProduceCompletion


class Answered:
    """One request for partitions of the topic "ponds", and what its client got."""

    def __init__(self, *partitions: int, acks: int = 1, version: int = 8) -> None:
        self.frames: list[bytes | None] = []
        self.refused: list[bool] = []
        self.version = version
        self.completion = ProduceCompletion(version, 7, acks, 1000, 0.0, self.done)
        self.completion.add_topic("ponds")
        self.slots = [self.completion.add_partition(partition) for partition in partitions]

    def done(self, completion: ProduceCompletion, frame: bytes | None) -> None:
        assert completion is self.completion
        self.frames.append(frame)
        self.refused.append(completion.any_refused)

    def run(self, slot: int = 0, count: int = 1, moved: bool = False, first: int = 0, whole: bool = True) -> RecordRun:
        run = self.completion.add_run(slot, count, moved=moved, whole=whole)
        run.first = first
        return run

    def acknowledge(self, run: RecordRun, base_offset: int, log_start_offset: int = 0) -> None:
        self.completion.acknowledged(run, base_offset, -1, log_start_offset)

    def fail(self, run: RecordRun, code: int, message: str = "no") -> None:
        self.completion.failed(run, code, message, [])

    @property
    def response(self) -> list[PartitionResponse]:
        (frame,) = self.frames
        assert frame is not None
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert int.from_bytes(frame[4:8], "big") == 7
        ((topic, partitions),) = produce_response.parse(frame[4:], self.version).topics
        assert topic == "ponds"
        return partitions


def test_runs_take_memory_of_their_own_and_each_its_part_of_the_requests() -> None:
    answered = Answered(3, 4, 5, 6)
    assert {answered.run(slot).overhead for slot in answered.slots} == {run_overhead(4)}


class TestOffsets:
    def test_a_batch_kept_alone_has_the_brokers_offset(self) -> None:
        answered = Answered(3)
        run = answered.run()
        answered.completion.all_added()
        answered.completion.acknowledged(run, 100, 55, 9)
        assert answered.response == [PartitionResponse(3, NONE, 100, 55, 9, [], None)]
        assert answered.refused == [False]

    def test_a_batch_kept_but_merged_has_its_place_added(self) -> None:
        answered = Answered(0)
        run = answered.run(first=5)
        answered.completion.all_added()
        answered.acknowledge(run, 100)
        assert answered.response[0].base_offset == 105

    def test_an_offset_that_leaves_no_room_for_its_place_is_not_told(self) -> None:
        answered = Answered(0)
        run = answered.run(first=5)
        answered.completion.all_added()
        answered.acknowledge(run, 2**63 - 1)
        assert (answered.response[0].error_code, answered.response[0].base_offset) == (NONE, -1)

    def test_any_moved_record_makes_the_offset_unknown(self) -> None:
        answered = Answered(0)
        kept, moved = answered.run(), answered.run(moved=True)
        answered.completion.all_added()
        answered.acknowledge(moved, 3, 2)
        answered.acknowledge(kept, 100, 9)
        (told,) = answered.response
        assert (told.base_offset, told.log_start_offset) == (-1, -1), "which may be another partition's"

    def test_a_part_that_is_moved_on_its_way_counts_as_moved(self) -> None:
        answered = Answered(0)
        run = answered.run()
        answered.completion.all_added()
        run.moved = True
        answered.acknowledge(run, 100)
        assert (answered.response[0].error_code, answered.response[0].base_offset) == (NONE, -1)

    @pytest.mark.parametrize("turned", [False, True])
    def test_the_two_parts_of_a_mixed_batch_have_no_offset_together_though_both_stayed(self, turned: bool) -> None:
        answered = Answered(0)
        keyed, null_key = answered.run(first=2, whole=False), answered.run(whole=False)
        answered.completion.all_added()
        for run, offset in ((null_key, 200), (keyed, 100)) if turned else ((keyed, 100), (null_key, 200)):
            answered.acknowledge(run, offset)
        assert (answered.response[0].error_code, answered.response[0].base_offset) == (NONE, -1)

    def test_an_acknowledgement_without_an_offset_stays_without(self) -> None:
        answered = Answered(0)
        run = answered.run(first=4)
        answered.completion.all_added()
        answered.acknowledge(run, -1)
        assert answered.response[0].base_offset == -1

    def test_partitions_are_answered_in_the_clients_order(self) -> None:
        answered = Answered(5, 1, 3)
        runs = [answered.run(slot) for slot in answered.slots]
        answered.completion.all_added()
        for offset, run in zip((30, 10, 20), reversed(runs), strict=True):
            answered.acknowledge(run, offset)
        assert [(found.partition, found.base_offset) for found in answered.response] == [(5, 20), (1, 10), (3, 30)]


class TestErrors:
    def test_the_first_error_of_a_partition_wins(self) -> None:
        answered = Answered(0)
        first, second, third = [answered.run() for _ in range(3)]
        answered.completion.all_added()
        answered.acknowledge(first, 7)
        answered.fail(second, CORRUPT_MESSAGE, "first")
        answered.fail(third, INVALID_RECORD, "second")
        assert answered.response == [PartitionResponse(0, CORRUPT_MESSAGE, -1, -1, 0, [], "first")]
        assert answered.refused == [True]

    @pytest.mark.parametrize("refusal", [UNKNOWN_TOPIC_OR_PARTITION, NOT_ENOUGH_REPLICAS])
    @pytest.mark.parametrize("turned", [False, True])
    def test_half_a_batch_refused_is_no_refusal_of_the_batch(self, turned: bool, refusal: int) -> None:
        """Told of a refusal, librdkafka sends all of it again, whatever its retries are: the other half twice."""
        answered = Answered(0)
        keyed, null_key = answered.run(whole=False), answered.run(whole=False)
        answered.completion.all_added()
        if turned:
            answered.acknowledge(null_key, 7)
        answered.fail(keyed, refusal)
        if not turned:
            answered.acknowledge(null_key, 7)
        assert [found.error_code for found in answered.response] == [REQUEST_TIMED_OUT]

    @pytest.mark.parametrize("other", [None, REQUEST_TIMED_OUT])
    def test_half_a_batch_refused_and_the_other_half_unknown_is_no_refusal_either(self, other: int | None) -> None:
        answered = Answered(0)
        keyed, null_key = answered.run(whole=False), answered.run(whole=False)
        answered.completion.all_added()
        answered.fail(keyed, UNKNOWN_TOPIC_OR_PARTITION)
        if other is None:
            answered.completion.expire()
        else:
            answered.fail(null_key, other)
        assert [found.error_code for found in answered.response] == [REQUEST_TIMED_OUT]

    def test_both_halves_refused_are_a_refusal(self) -> None:
        answered = Answered(0)
        runs = [answered.run(whole=False) for _ in range(2)]
        answered.completion.all_added()
        for run in runs:
            answered.fail(run, UNKNOWN_TOPIC_OR_PARTITION)
        assert [found.error_code for found in answered.response] == [UNKNOWN_TOPIC_OR_PARTITION]

    def test_an_error_is_its_partitions_alone(self) -> None:
        answered = Answered(0, 1)
        runs = [answered.run(slot) for slot in answered.slots]
        answered.completion.all_added()
        answered.fail(runs[0], CORRUPT_MESSAGE)
        answered.acknowledge(runs[1], 4)
        assert [found.error_code for found in answered.response] == [CORRUPT_MESSAGE, NONE]

    def test_record_errors_are_passed_on(self) -> None:
        answered = Answered(0)
        run = answered.run()
        answered.completion.all_added()
        answered.completion.failed(run, INVALID_RECORD, "bad", [(2, "null key")])
        assert answered.response[0].record_errors == [(2, "null key")]

    def test_an_early_refusal_never_answers_alone(self) -> None:
        answered = Answered(0, 1)
        answered.completion.refuse(0, CORRUPT_MESSAGE, "checksum")
        assert answered.frames == []
        run = answered.run(1)
        answered.completion.all_added()
        assert answered.frames == []
        answered.acknowledge(run, 1)
        assert [found.error_code for found in answered.response] == [CORRUPT_MESSAGE, NONE]

    def test_when_all_is_refused_the_answer_comes_with_the_last_added(self) -> None:
        answered = Answered(0)
        answered.completion.refuse(0, CORRUPT_MESSAGE, None)
        answered.completion.all_added()
        assert answered.response[0].error_code == CORRUPT_MESSAGE

    def test_a_part_that_is_answered_before_all_are_added_does_not_answer(self) -> None:
        answered = Answered(0, 1)
        answered.acknowledge(answered.run(0), 1)
        assert answered.frames == []
        second = answered.run(1)
        answered.completion.all_added()
        assert answered.frames == []
        answered.acknowledge(second, 2)
        assert len(answered.response) == 2


class TestUntouched:
    def test_the_brokers_answer_is_told_as_it_is(self) -> None:
        answered = Answered(0, 1)
        answered.run(0)
        answered.run(1)
        answered.completion.all_added()
        ok = PartitionResponse(0, NONE, 12, 34, 5, [], None)
        bad = PartitionResponse(1, INVALID_RECORD, -1, -1, 6, [(0, "why")], "bad")
        answered.completion.tell(0, ok)
        answered.completion.tell(1, bad)
        assert answered.response == [ok, bad]


class TestExpiry:
    def test_what_is_open_is_timed_out_and_what_is_known_is_told(self) -> None:
        answered = Answered(0, 1, 2)
        runs = [answered.run(slot) for slot in answered.slots]
        answered.completion.all_added()
        answered.acknowledge(runs[0], 9)
        answered.fail(runs[1], CORRUPT_MESSAGE)
        answered.completion.expire()
        assert [found.error_code for found in answered.response] == [NONE, CORRUPT_MESSAGE, REQUEST_TIMED_OUT]
        assert answered.response[0].base_offset == 9

    def test_before_all_is_added_everything_is_timed_out(self) -> None:
        answered = Answered(0, 1)
        answered.completion.refuse(0, CORRUPT_MESSAGE, None)
        answered.completion.expire()
        assert [found.error_code for found in answered.response] == [CORRUPT_MESSAGE, REQUEST_TIMED_OUT]

    def test_what_comes_later_changes_nothing(self) -> None:
        answered = Answered(0)
        first, second, third = [answered.run() for _ in range(3)]
        answered.completion.all_added()
        answered.completion.expire()
        answered.acknowledge(first, 1)
        answered.fail(second, CORRUPT_MESSAGE)
        answered.completion.tell(third.slot, PartitionResponse(0, NONE, 1, 1, 1, [], None))
        answered.completion.expire()
        assert answered.completion.done
        assert [found.error_code for found in answered.response] == [REQUEST_TIMED_OUT]

    def test_an_answer_is_not_followed_by_an_expiry(self) -> None:
        answered = Answered(0)
        run = answered.run()
        answered.completion.all_added()
        answered.acknowledge(run, 1)
        answered.completion.expire()
        assert [found.error_code for found in answered.response] == [NONE]


class TestWithoutAcks:
    def test_there_is_no_response(self) -> None:
        answered = Answered(0, acks=0)
        run = answered.run()
        answered.completion.all_added()
        answered.acknowledge(run, 1)
        assert (answered.frames, answered.refused) == ([None], [False])

    def test_a_refusal_is_said(self) -> None:
        answered = Answered(0, 1, acks=0)
        runs = [answered.run(slot) for slot in answered.slots]
        answered.completion.all_added()
        answered.fail(runs[0], CORRUPT_MESSAGE)
        answered.acknowledge(runs[1], 1)
        assert (answered.frames, answered.refused) == ([None], [True])


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_is_answered_with_the_longest_throttle(version: int) -> None:
    answered = Answered(0, version=version)
    run = answered.run()
    answered.completion.all_added()
    answered.completion.throttle(20)
    answered.completion.throttle(10)
    answered.acknowledge(run, 6)
    (frame,) = answered.frames
    assert frame is not None
    parsed = produce_response.parse(frame[4:], version)
    assert parsed.throttle_time_ms == 20
    assert parsed.topics[0][1][0].base_offset == 6


class TestMoreToAdd:
    """A request whose runs are added a part at a time."""

    def test_it_is_told_when_all_so_far_are_known_and_answers_when_all_are(self) -> None:
        answered = Answered(0, 1)
        told: list[int] = []
        first, second = answered.run(0), answered.run(1)
        answered.completion.when_told(lambda: told.append(len(answered.frames)))
        answered.acknowledge(first, 5)
        assert told == []
        answered.fail(second, CORRUPT_MESSAGE)
        assert (told, answered.frames) == ([0], [])
        answered.completion.when_told(lambda: told.append(1))
        assert told == [0, 1], "nothing is open"
        last = answered.run(0)
        answered.completion.all_added()
        answered.acknowledge(last, 6)
        assert [partition.error_code for partition in answered.response] == [NONE, CORRUPT_MESSAGE]
        assert told == [0, 1]

    def test_it_is_not_told_any_more_once_its_time_is_up(self) -> None:
        answered = Answered(0)
        told: list[None] = []
        run = answered.run(0)
        answered.completion.when_told(lambda: told.append(None))
        answered.completion.expire()
        answered.acknowledge(run, 5)
        assert told == []
        assert [partition.error_code for partition in answered.response] == [REQUEST_TIMED_OUT]


def test_the_answers_of_many_partitions_are_put_together_in_parts() -> None:
    """Of two topics, the second of which ends with the last part."""
    answered = Answered(*range(ANSWERED_AT_ONCE + 3))
    answered.completion.add_topic("lakes")
    answered.slots += [answered.completion.add_partition(index) for index in range(ANSWERED_AT_ONCE - 3)]
    runs = [answered.run(slot) for slot in answered.slots]
    answered.completion.all_added()
    for offset, run in enumerate(runs):
        answered.acknowledge(run, offset)
    assert answered.frames == [None]
    assert answered.completion.answer_some() is None
    frame = answered.completion.answer_some()
    assert frame is not None
    topics = produce_response.parse(frame[4:], answered.version).topics
    assert [(name, [told.partition for told in partitions]) for name, partitions in topics] == [
        ("ponds", list(range(ANSWERED_AT_ONCE + 3))),
        ("lakes", list(range(ANSWERED_AT_ONCE - 3))),
    ]
    offsets = [told.base_offset for _, partitions in topics for told in partitions]
    assert offsets == list(range(2 * ANSWERED_AT_ONCE))
