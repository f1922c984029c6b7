"""What the proxy retries itself, and what it leaves to the client."""

from __future__ import annotations

from random import Random

import pytest

from forebay_codecs import error_codes as codes
from forebay_policies.retry import SERVER_ERRORS, Verdict, backoff, judge, leads_no_more, refusal

NOT_APPENDED = -1

NOT_LEADER = [
    codes.UNKNOWN_TOPIC_OR_PARTITION,
    codes.LEADER_NOT_AVAILABLE,
    codes.NOT_LEADER_OR_FOLLOWER,
    codes.BROKER_NOT_AVAILABLE,
    codes.FENCED_LEADER_EPOCH,
    codes.UNKNOWN_LEADER_EPOCH,
]
REFUSED_WHOLE = [
    codes.CORRUPT_MESSAGE,
    codes.MESSAGE_TOO_LARGE,
    codes.RECORD_LIST_TOO_LARGE,
    codes.INVALID_TIMESTAMP,
    codes.INVALID_RECORD,
]
EVERY_CODE = range(-1, 135)


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("base_offset", [NOT_APPENDED, 0, 7])
def test_no_error_is_an_acknowledgement_even_without_an_offset(base_offset: int, runs: int) -> None:
    assert judge(codes.NONE, base_offset, runs) is Verdict.ACKNOWLEDGED


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("code", NOT_LEADER)
def test_what_the_wrong_broker_refused_is_retried(code: int, runs: int) -> None:
    assert judge(code, NOT_APPENDED, runs) is Verdict.RETRY


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("base_offset", [0, 7])
def test_an_error_with_an_offset_may_have_been_appended(base_offset: int, runs: int) -> None:
    """With acks=all a leader that loses its office while it waits for followers has appended: no second copy."""
    verdicts = {code: judge(code, base_offset, runs) for code in EVERY_CODE if code != codes.NONE}

    assert {verdicts.pop(code) for code in NOT_LEADER} == {Verdict.UNKNOWN}
    assert set(verdicts.values()) == {Verdict.ANSWER}


@pytest.mark.parametrize("code", REFUSED_WHOLE)
def test_a_merged_batch_that_was_refused_as_a_whole_is_tried_in_halves(code: int) -> None:
    assert judge(code, NOT_APPENDED, 2) is Verdict.SPLIT
    assert judge(code, NOT_APPENDED, 1) is Verdict.ANSWER


@pytest.mark.parametrize("runs", [1, 2])
def test_everything_else_is_the_clients_to_know(runs: int) -> None:
    """REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND above all: they may have been appended."""
    known = {codes.NONE, *NOT_LEADER, *REFUSED_WHOLE}
    others = [code for code in EVERY_CODE if code not in known]

    assert {codes.REQUEST_TIMED_OUT, codes.NOT_ENOUGH_REPLICAS, codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND} <= set(others)
    assert {judge(code, NOT_APPENDED, runs) for code in others} == {Verdict.ANSWER}


SAME, AGAIN, NEW, TOLD = Verdict.RETRY_SAME, Verdict.RETRY, Verdict.RESEQUENCE, Verdict.UNKNOWN

TABLE = [
    # answer, with an offset, parts: the verdict on a first attempt, and on one after an attempt of unknown outcome
    ([codes.NONE], False, 1, Verdict.ACKNOWLEDGED, Verdict.ACKNOWLEDGED),
    ([codes.DUPLICATE_SEQUENCE_NUMBER], False, 1, NEW, Verdict.ACKNOWLEDGED),
    ([codes.REQUEST_TIMED_OUT, codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND], False, 2, SAME, SAME),
    ([codes.KAFKA_STORAGE_ERROR, codes.UNKNOWN_SERVER_ERROR], False, 2, SAME, SAME),
    (NOT_LEADER, True, 2, SAME, SAME),
    ([codes.NOT_ENOUGH_REPLICAS], True, 2, SAME, SAME),
    (NOT_LEADER, False, 2, AGAIN, SAME),
    ([codes.NOT_ENOUGH_REPLICAS], False, 2, Verdict.ELSEWHERE, SAME),
    (REFUSED_WHOLE, False, 2, Verdict.SPLIT, TOLD),
    (REFUSED_WHOLE, False, 1, Verdict.ANSWER, TOLD),
    ([codes.TOPIC_AUTHORIZATION_FAILED, codes.INVALID_TOPIC_EXCEPTION], False, 2, Verdict.ANSWER, TOLD),
    ([codes.OUT_OF_ORDER_SEQUENCE_NUMBER], False, 2, NEW, NEW),
    ([codes.UNKNOWN_PRODUCER_ID], False, 2, NEW, TOLD),
    ([codes.INVALID_PRODUCER_EPOCH], False, 2, Verdict.RENEW, TOLD),
    ([codes.CLUSTER_AUTHORIZATION_FAILED, codes.UNSUPPORTED_FOR_MESSAGE_FORMAT], False, 2, Verdict.PLAIN, TOLD),
]


@pytest.mark.parametrize(("answers", "with_offset", "runs", "first", "tainted"), TABLE)
def test_the_table_of_batches_with_sequences(
    answers: list[int], with_offset: bool, runs: int, first: Verdict, tainted: Verdict
) -> None:
    for code in answers:
        offset = 7 if with_offset else NOT_APPENDED
        assert judge(code, offset, runs, sequenced=True) is first
        assert judge(code, offset, runs, sequenced=True, tainted=True) is tainted


def test_what_brokers_call_an_error_of_theirs_is_tried_so_often() -> None:
    verdicts = [
        judge(codes.UNKNOWN_SERVER_ERROR, NOT_APPENDED, 2, sequenced=True, tainted=tries > 0, tries=tries)
        for tries in range(SERVER_ERRORS + 1)
    ]
    assert verdicts == [SAME] * (SERVER_ERRORS - 1) + [TOLD] * 2
    assert judge(codes.REQUEST_TIMED_OUT, NOT_APPENDED, 2, sequenced=True, tainted=True, tries=100) is SAME


class Middle:
    """Every draw is the middle of its range."""

    def uniform(self, a: float, b: float, /) -> float:
        return (a + b) / 2


def test_backoff_doubles_up_to_its_most() -> None:
    pauses = [backoff(tries, 0.1, 1.0, Middle()) for tries in range(6)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_backoff_after_any_number_of_tries_is_a_number_of_seconds() -> None:
    assert backoff(1_000_000, 0.1, 1.0, Middle()) == 1.0
    assert backoff(1_000_000, 0.0, 1.0, Middle()) == 0.0


def test_backoff_is_spread_by_a_fifth_to_both_sides_and_never_beyond_its_most() -> None:
    rng = Random(7)
    pauses = [backoff(1, 0.1, 1.0, rng) for _ in range(1000)]
    assert 0.16 <= min(pauses) < 0.165
    assert 0.235 < max(pauses) <= 0.24
    assert max(backoff(9, 0.1, 1.0, rng) for _ in range(100)) == 1.0


def test_that_replicas_are_missing_is_a_refusal_and_says_nothing_of_leaders() -> None:
    assert refusal(codes.NOT_ENOUGH_REPLICAS)
    assert not leads_no_more(codes.NOT_ENOUGH_REPLICAS)
    assert all(refusal(code) and leads_no_more(code) for code in NOT_LEADER)
    assert not any(refusal(code) or leads_no_more(code) for code in REFUSED_WHOLE)
