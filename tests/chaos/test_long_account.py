"""A long account comes to what reconcile.py does, whatever is told first, and keeps nothing of what is settled."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.chaos.long_account import LongAccount, account_of
from tests.chaos.reconcile import reconcile
from tests.chaos.tally import Promise, Tally
from tests.kit.spec import Ack, ConsumedRecord, ProduceSpec

SENT = 60
SPEC = ProduceSpec("t", "one", count=SENT, keys="mixed", key_count=3)
PARTITIONS = 3
RUNS = 500


def at(seq: int, partition: int, offset: int) -> ConsumedRecord:
    return ConsumedRecord("t", partition, offset, 0, SPEC.key(seq), SPEC.value(seq))


def written(rng: Random, harm: float) -> list[ConsumedRecord]:
    """A topic in which, as often as `harm` says, a record is missing, there twice, late, elsewhere, or another."""
    order = list(range(SENT))
    for seq in range(SENT - 1):
        if rng.random() < harm:
            other = rng.randrange(SENT)
            order[seq], order[other] = order[other], order[seq]
    order = [seq for seq in order if rng.random() >= harm]
    order += [seq for seq in order if rng.random() < harm]
    ends = [0] * PARTITIONS
    found = []
    for seq in order:
        astray = rng.random() < harm / 4
        partition = rng.randrange(PARTITIONS) if astray or not SPEC.is_keyed(seq) else seq % SPEC.key_count
        record = at(seq, partition, ends[partition])
        ends[partition] += 1
        found.append(replace(record, value=SPEC.value(seq), key=b"?") if rng.random() < harm / 8 else record)
    return found


def told(rng: Random, log: list[ConsumedRecord], harm: float) -> list[Ack | int]:
    """What the client is told of its records, by their turn: acknowledged, refused (a number), or nothing."""
    places = {int((record.value or b"").decode().rpartition("-")[2]): record for record in log}
    lines: list[Ack | int] = []
    for seq in range(SENT):
        record = places.get(seq)
        if rng.random() < harm:
            lines += [seq] if rng.random() < 0.5 else []
        elif record is None:
            lines += [Ack(seq, 0, -1)] if rng.random() < harm else [seq]
        else:
            lines.append(Ack(seq, record.partition, record.offset + (rng.random() < harm / 4)))
    return lines


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("retried", [0, 2])
def test_it_comes_to_what_a_reconciliation_does(ordered: bool, retried: int) -> None:
    rng = Random(1)
    kinds = set()
    for run in range(RUNS):
        harm = (0.0, 0.01, 0.1)[run % 3]
        log = written(rng, harm)
        lines = told(rng, log, harm)
        promise = Promise(ordered, offsets=True)
        tally = Tally(SPEC, promise, sent=SENT, retried=retried)
        account = LongAccount(SPEC, promise)
        account.sent, account.retried = SENT, retried
        for line in lines:
            if isinstance(line, Ack):
                tally.acknowledged(line)
            else:
                tally.refused(line, "refused")
        rest: list[Ack | int | ConsumedRecord] = list(log)
        for line in rng.sample(lines, len(lines)):  # answers come in any order, beside what is read in its order
            rest.insert(rng.randrange(len(rest) + 1), line)
        for event in rest:
            if isinstance(event, ConsumedRecord):
                found = account_of(event, {SPEC.name: account})
                assert found is not None
                found[0].found(found[1], event)
            elif isinstance(event, Ack):
                account.acknowledged(event)
            else:
                account.refused(event, "refused")
        expected, got = reconcile([tally], log), account.findings()
        kinds.add((expected.lost > 0, expected.duplicated > 0, bool(expected.violations)))
        assert replace(got, violations=[]) == replace(expected, violations=[])
        assert bool(got.violations) == bool(expected.violations), (got, expected)
    assert len(kinds) > 3


@pytest.mark.parametrize(("by_broker", "one_by_one", "found"), [(True, False, 0), (True, True, 1), (False, False, 1)])
def test_of_two_that_were_away_at_once_the_later_may_come_first_where_they_count_by_broker(
    by_broker: bool, one_by_one: bool, found: int
) -> None:
    account = LongAccount(SPEC, Promise(True, False, by_broker))
    one, other = 0, 2 * SPEC.key_count  # of the same key
    assert SPEC.key(one) == SPEC.key(other) is not None
    if not one_by_one:
        account.sends(other)
    account.acknowledged(Ack(one, 0, -1))
    if one_by_one:
        account.sends(other)
    account.acknowledged(Ack(other, 0, -1))
    for seq, offset in ((other, 0), (one, 1)):
        account.found(seq, at(seq, 0, offset))
    assert len(account.findings().violations) == found


def test_a_record_told_of_twice_is_found() -> None:
    account = LongAccount(SPEC, Promise(True, True))
    account.refused(0, "no")
    account.refused(0, "no")
    assert "twice" in account.findings().violations[0]


@pytest.mark.parametrize("idempotence", [False, True])
def test_a_client_may_have_as_many_duplicates_as_it_sent_again(idempotence: bool) -> None:
    account = LongAccount(replace(SPEC, idempotence=idempotence), Promise(True, True))
    account.sent = 1
    account.acknowledged(Ack(0, 0, 0))
    for offset in range(3):
        account.found(0, at(0, 0, offset))
    account.retried = 2
    assert account.findings().violations == []
    account.retried = 1
    assert account.findings().violations == ["one: 2 duplicates, 1 allowed"]


def test_nothing_is_kept_of_what_is_settled() -> None:
    account = LongAccount(SPEC, Promise(True, True))
    for seq in range(10_000):
        account.acknowledged(Ack(seq, seq % 3, seq))
        account.found(seq, at(seq, seq % 3, seq))
        assert account.open == 0
    assert account.findings().violations == []


def test_a_reader_that_stands_still_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.chaos.long_account.MOST_OPEN", 10)
    account = LongAccount(SPEC, Promise(True, True))
    for seq in range(11):
        account.acknowledged(Ack(seq, 0, seq))
    with pytest.raises(AssertionError, match="not settled, the first 0"):
        account.acknowledged(Ack(11, 0, 11))


@pytest.mark.parametrize("value", [None, b"", b"two-1", b"one-x", b"one"])
def test_what_is_nobodys(value: bytes | None) -> None:
    account = LongAccount(SPEC, Promise(True, True))
    assert account_of(replace(at(0, 0, 0), value=value), {"one": account}) is None
