"""What those who answer requests here find in their client: a place for each answer, and word of when it is alone."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from forebay_codecs.error_codes import CORRUPT_MESSAGE
from forebay_policies.departed_brokers import DepartedBrokers
from forebay_policies.hold_reason import HoldReason
from forebay_policies.untaken_answers import LARGE, UntakenAnswers
from forebay_proxy.clients.answered_client import AnsweredClient
from forebay_proxy.clients.connection_state import Cause, Phase
from forebay_proxy.produce.completion import ProduceCompletion
from tests.kit.event_loop import in_loop, turns, until
from tests.proxy.clients.upstream_kit import Stage


def completed(*, refused: bool) -> ProduceCompletion:
    completion = ProduceCompletion(7, 1, 1, 1000, 0.0, lambda completion, frame: None, ("10.0.0.1", None))
    completion.add_topic("ponds")
    slot = completion.add_partition(0)
    if refused:
        completion.refuse(slot, CORRUPT_MESSAGE, None)
    return completion


NOTHING = completed(refused=False)
REFUSED = completed(refused=True)


class Answering(Stage):
    def __init__(self) -> None:
        super().__init__()
        self.departed = DepartedBrokers(30)
        self.client = AnsweredClient(
            self.life, self.orderer, self.who, self.upstream, self.life.release, self.departed, 1, 2, UntakenAnswers()
        )


@in_loop
async def test_answers_leave_in_the_order_of_their_places() -> None:
    stage = Answering()
    first, second, third = stage.client.reserve(1), stage.client.reserve_answer(), stage.client.reserve(-1)
    third(NOTHING, b"3")
    second(b"2")
    assert stage.out == b""
    first(NOTHING, b"1")
    assert stage.out == b"123"


@in_loop
async def test_records_without_acks_have_no_place_and_their_refusal_ends_the_client() -> None:
    stage = Answering()
    accepted, refused = stage.client.reserve(0), stage.client.reserve(0)
    assert len(stage.orderer) == 0
    accepted(NOTHING, None)
    assert stage.life.state.taking
    with structlog.testing.capture_logs() as logs:
        refused(REFUSED, None)
    assert [line["client"] for line in logs] == ["client:1"]
    assert stage.life.state.phase is Phase.CLOSING


@in_loop
async def test_where_there_is_no_answer_the_client_is_closed() -> None:
    stage = Answering()
    stage.client.reserve_answer()(None)
    assert stage.life.state.phase is Phase.CLOSING


@pytest.mark.parametrize("cause", [Cause.STALLED, Cause.CLIENT_LEFT])
@in_loop
async def test_an_answer_after_the_end_goes_nowhere(cause: Cause) -> None:
    stage = Answering()
    produced, unacknowledged, answered = stage.client.reserve(1), stage.client.reserve(0), stage.client.reserve_answer()
    stage.life.end(cause, client="client:1")
    produced(NOTHING, b"1")
    unacknowledged(REFUSED, None)
    answered(None)
    assert (stage.out, stage.life.state.over) == (b"", True)


@in_loop
async def test_one_is_alone_once_the_other_produce_requests_are_answered() -> None:
    stage = Answering()
    told: list[str] = []
    first, second = stage.client.reserve(1), stage.client.reserve(0)
    stage.client.reserve(1)
    stage.client.when_alone(lambda: told.append("alone"))
    first(NOTHING, b"1")
    await turns()
    assert told == []
    second(NOTHING, None)
    await turns()
    assert told == ["alone"]
    stage.client.when_alone(lambda: told.append("still"))
    assert told == ["alone", "still"]


@in_loop
async def test_one_that_is_full_is_released_once_when_it_is_not_any_more() -> None:
    stage = Answering()
    dones = [stage.client.reserve(0) for _ in range(2)]
    assert stage.client.full
    stage.client.hold(HoldReason.IN_FLIGHT)
    for done in dones:
        done(NOTHING, None)
    assert not stage.client.full
    assert not stage.life.state.taking  # not from within what tells of the requests
    await turns()
    assert (stage.life.state.taking, stage.takes) == (True, 1)


@in_loop
async def test_a_large_answer_counts_until_it_is_taken_and_who_does_not_take_it_may_be_closed() -> None:
    stage = Answering()
    stage.transport.unsent = 5
    assert stage.client.room_for(LARGE, lambda: None)
    assert (stage.client.holds_answer, stage.client.untaken, stage.client.client_slow) == (True, 5, True)
    stage.transport.unsent = 0
    stage.client.answers_left()
    assert not stage.client.holds_answer
    stage.client.not_taken()
    assert stage.life.state.phase is Phase.ABORTED
    assert stage.count("forebay_frames_refused_total", "not_taken") == 1


@in_loop
async def test_it_is_held_and_released_as_the_connection() -> None:
    stage = Answering()
    stage.client.hold(HoldReason.PENDING_REQUEST)
    assert stage.life.state.holds == {HoldReason.PENDING_REQUEST}
    stage.client.release(HoldReason.PENDING_REQUEST)
    assert stage.takes == 1


@in_loop
async def test_each_has_a_number_of_its_own_and_the_addresses_of_the_connection() -> None:
    first, second = Answering(), Answering()
    assert first.client.number != second.client.number
    assert first.client.translate(1, "inner", 9092) == ("forebay", 9001)


@in_loop
async def test_a_throttled_client_is_not_read_until_the_longest_throttle_time_is_over() -> None:
    stage = Answering()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    stage.client.throttled(50)
    stage.client.throttled(200)
    stage.client.throttled(10)
    assert stage.life.state.holds == {HoldReason.THROTTLED}
    await until(lambda: stage.life.state.taking)
    assert loop.time() - begun >= 0.19
    stage.client.throttled(1)
    assert not stage.life.state.taking
    await until(lambda: stage.life.state.taking)
