"""A Produce request in parts, and one answer from the parts' answers."""

from __future__ import annotations

from forebay_codecs import error_codes, produce_request, produce_response
from forebay_codecs.produce_response import PartitionResponse, ProduceResponse
from forebay_policies.divided_requests import DividedRequest, PartitionPart
from tests.kit.wire import batch, null_key, produce


class Stage:
    """A request for the partitions given, and what its client was answered."""

    def __init__(self, *partitions: tuple[str, int], version: int = 8) -> None:
        records = [(topic, index, batch(null_key(f"{topic}-{index}"))) for topic, index in partitions]
        frame = produce(7, *records, acks=-1, version=version)[4:]
        self.version = version
        self.answers: list[bytes] = []
        self.divided = DividedRequest(frame, produce_request.parse(frame), self.answers.append)

    def parts(self, *slots: int) -> list[PartitionPart]:
        return [self.divided.parts[slot] for slot in slots]

    def sent(self, *slots: int) -> tuple[list[PartitionPart], bytes]:
        parts = self.parts(*slots)
        return parts, b"".join(self.divided.frame_of(parts))[4:]

    @property
    def answer(self) -> ProduceResponse:
        (frame,) = self.answers
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert int.from_bytes(frame[4:8], "big") == 7
        return produce_response.parse(frame[4:], self.version)


def taken(partition: int, base_offset: int) -> PartitionResponse:
    return PartitionResponse(partition, 0, base_offset, -1, 0, [], None, (3, 17))


def test_a_part_holds_its_records_and_what_holds_for_all() -> None:
    stage = Stage(("a", 0), ("a", 1), ("b", 0))
    _, frame = stage.sent(0, 2)
    request = produce_request.parse(frame)
    assert (request.version, request.acks, request.timeout_ms) == (8, -1, 30_000)
    assert [
        (name, index, frame[start:end]) for name, partitions in request.topics for index, start, end in partitions
    ] == [("a", 0, batch(null_key("a-0"))), ("b", 0, batch(null_key("b-0")))]


def test_the_answer_is_in_the_requests_order_and_names_no_leader() -> None:
    stage = Stage(("a", 1), ("b", 0), ("a", 0), version=10)
    first, _ = stage.sent(0, 1)
    second, _ = stage.sent(2)
    stage.divided.close_one()
    stage.divided.answered(second, ProduceResponse([("b", [taken(0, 5)])], 30, ((3, "inner", 9092),)))
    stage.divided.close_one()
    assert stage.answers == []
    stage.divided.answered(first, ProduceResponse([("a", [taken(0, 6), taken(1, 7)])], 20))
    stage.divided.close_one()
    answer = stage.answer
    assert [(name, [(it.partition, it.base_offset) for it in told]) for name, told in answer.topics] == [
        ("a", [(1, 7), (0, 6)]),
        ("b", [(0, 5)]),
    ]
    assert all(it.current_leader is None for _, told in answer.topics for it in told)
    assert (answer.nodes, answer.throttle_time_ms) == ((), 30)


def test_what_is_left_out_of_an_answer_or_lost_is_told_so() -> None:
    stage = Stage(("a", 0), ("a", 1), ("a", 2), ("a", 3))
    first, _ = stage.sent(0, 1)
    second, _ = stage.sent(2)
    stage.parts(3)[0].fails(error_codes.UNKNOWN_TOPIC_OR_PARTITION, "no")
    stage.divided.close_one()
    stage.divided.answered(first, ProduceResponse([("a", [taken(0, 5)])], 0))
    stage.divided.close_one()
    stage.divided.lost(second, error_codes.NOT_LEADER_OR_FOLLOWER)
    stage.divided.close_one()
    ((_, told),) = stage.answer.topics
    assert [(it.partition, it.error_code, it.base_offset, it.error_message) for it in told] == [
        (0, 0, 5, None),
        (1, error_codes.REQUEST_TIMED_OUT, -1, None),
        (2, error_codes.NOT_LEADER_OR_FOLLOWER, -1, None),
        (3, error_codes.UNKNOWN_TOPIC_OR_PARTITION, -1, "no"),
    ]


def test_the_first_failure_is_told() -> None:
    stage = Stage(("a", 0))
    (part,) = stage.parts(0)
    part.fails(error_codes.NOT_LEADER_OR_FOLLOWER)
    part.fails(error_codes.REQUEST_TIMED_OUT)
    stage.divided.close_one()
    assert stage.answer.topics[0][1][0].error_code == error_codes.NOT_LEADER_OR_FOLLOWER


def test_a_request_of_nothing_is_answered_with_nothing() -> None:
    stage = Stage()
    stage.divided.close_one()
    assert stage.answer.topics == []


def test_a_partition_that_is_named_twice_is_answered_twice() -> None:
    stage = Stage(("a", 0))
    frame = produce(7, ("a", 0, batch(null_key("x"))), ("a", 0, batch(null_key("y"))), acks=-1, version=8)[4:]
    divided = DividedRequest(frame, produce_request.parse(frame), stage.answers.append)
    parts = divided.parts
    divided.frame_of(parts)
    divided.close_one()
    divided.answered(parts, ProduceResponse([("a", [taken(0, 5)])], 0))
    divided.close_one()
    ((_, told),) = stage.answer.topics
    assert [it.base_offset for it in told] == [5, 5]
