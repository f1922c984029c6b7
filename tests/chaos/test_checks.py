"""What the chaos tests rely on: a reconciliation that finds each kind of harm, targets, the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.chaos.bystander import DIRECT, THROUGH, Latency, Post, Wait, Waits
from tests.chaos.fault import median, worst
from tests.chaos.faults import FAULTS, LIKE_ANOTHER, pair
from tests.chaos.neighbour_faults import LONG, NEIGHBOUR_FAULTS
from tests.chaos.reconcile import Findings, reconcile
from tests.chaos.report import BEGIN, END, keep, table
from tests.chaos.run import Result, Spared
from tests.chaos.tally import Promise, Tally
from tests.kit.spec import Ack, ConsumedRecord, ProduceSpec

Log = list[ConsumedRecord]
SENT = 8


def told(retried: int = 0, idempotence: bool = False) -> Tally:
    """Eight records of two keys and none, acknowledged with the offsets that they have in `there`."""
    spec = ProduceSpec(
        topic="load", name="old", count=SENT, keys="mixed", key_count=4, idempotence=idempotence, size=20
    )
    tally = Tally(spec, Promise(ordered=True, offsets=True), sent=SENT, retried=retried)
    for seq in range(SENT):
        tally.acknowledged(Ack(seq, 0, seq))
    return tally


def there(tally: Tally) -> Log:
    spec = tally.spec
    return [ConsumedRecord("load", 0, seq, 0, spec.key(seq), spec.value(seq)) for seq in range(SENT)]


def again(log: Log, seq: int, **changed: object) -> ConsumedRecord:
    """Record `seq` once more, at the end."""
    return replace(log[seq], **{"offset": len(log), **changed})  # type: ignore[arg-type]


def test_a_true_account_is_found_true() -> None:
    tally = told()
    assert reconcile([tally], there(tally)) == Findings(sent=SENT, acknowledged=SENT)


def test_refused_and_unknown_records_may_be_there_or_not() -> None:
    tally = told()
    for seq in (0, 1, 2):
        del tally.acks[seq]
    tally.refused(0, "timed out")
    tally.refused(1, "timed out")
    log = [record for record in there(tally) if record.offset not in (1, 2)]
    assert reconcile([tally], log) == Findings(sent=SENT, acknowledged=SENT - 3, refused=2, unknown=1)


HARM: dict[str, Callable[[Log], Log]] = {
    "acknowledged records are lost": lambda log: log[:5] + log[6:],
    "1 duplicates, 0 allowed": lambda log: [*log, again(log, 3)],
    "nobody sent": lambda log: [*log, again(log, 3, value=b"other-3")],
    "did not send": lambda log: [*log[:6], replace(log[6], key=b"another"), log[7]],
    "out of order": lambda log: [
        replace(log[0], offset=4),
        *log[1:4],
        replace(log[4], offset=0),
        *log[5:],
    ],
    "keys in several partitions": lambda log: [replace(log[0], partition=1), *log[1:]],
    "was told Ack": lambda log: [*log[:7], replace(log[7], offset=9)],
}


@pytest.mark.parametrize("harm", HARM)
def test_harm_is_found(harm: str) -> None:
    tally = told()
    log = HARM[harm](there(tally))
    assert any(harm in violation for violation in reconcile([tally], log).violations)


def test_a_client_that_retried_accounts_for_as_many_duplicates() -> None:
    tally = told(retried=2)
    log = there(tally)
    log += [again(log, 3), again(log, 5)]
    assert reconcile([tally], log) == Findings(SENT, SENT, duplicated=2, retried=2)
    assert reconcile([tally], [*log, again(log, 7)]).violations != []


def test_an_idempotent_client_accounts_for_none() -> None:
    tally = told(retried=2, idempotence=True)
    log = there(tally)
    assert reconcile([tally], [*log, again(log, 3)]).violations != []
    assert reconcile([tally], [*log, again(log, 3)], forgotten=True).violations == []
    assert reconcile([tally], [*log, *[again(log, 3)] * 3], forgotten=True).violations != []


def test_of_two_that_a_client_had_away_at_once_the_later_may_come_first_where_it_counts_by_broker() -> None:
    for by_broker, acknowledged_before, found in ((True, False, 0), (True, True, 1), (False, False, 1)):
        tally = told()
        tally.promise = replace(tally.promise, offsets=False, by_broker=by_broker)
        tally.sent_at.update(dict.fromkeys(range(SENT), tally.acked_at[0] + (1 if acknowledged_before else -1)))
        assert len(reconcile([tally], HARM["out of order"](there(tally))).violations) == found


def test_a_record_told_of_twice_is_found() -> None:
    tally = told()
    tally.refused(3, "and yet")
    assert any("twice" in violation for violation in reconcile([tally], there(tally)).violations)


def test_of_a_topic_made_again_what_was_acknowledged_before_may_be_gone() -> None:
    tally = told()
    moment = tally.acked_at[4]
    tally.acked_at.update({seq: moment + seq - 4 for seq in range(SENT)})
    log = there(tally)
    assert reconcile([tally], log[4:], since=moment).violations == []
    assert reconcile([tally], log[5:], since=moment).lost == 1


def test_the_same_seed_draws_the_same_pairs_of_different_places() -> None:
    rng, same = Random("7"), Random("7")
    drawn = [pair(rng) for _ in range(50)]
    assert drawn == [pair(same) for _ in range(50)]
    assert all(not first.touches & second.touches for first, second in drawn)


POSTS = [Post(DIRECT, 0, 9092, "t", rate=1), *(Post(THROUGH, node, 9092, "t", rate=1) for node in (0, 1))]


def test_waits_count_while_they_overlap_the_fault_at_brokers_that_it_spares() -> None:
    before, into, out_of, after = Wait(1, 1, 2, 0), Wait(1, 8, 11, 0), Wait(1, 19, 21, 1), Wait(1, 31, 32, 0)
    elsewhere, directly = Wait(2, 12, 16, 0), Wait(0, 12, 12.5, 0)
    waits = Waits(POSTS, [before, into, out_of, after, elsewhere, directly])
    assert waits.latency(DIRECT, {0}, 10, 20) == Latency(p50=0.5, p99=0.5, worst=0.5, errors=0)
    assert waits.latency(THROUGH, {0}, 10, 20) == Latency(p50=2, p99=3, worst=3, errors=1)  # 1 1 2 2 3
    assert waits.latency(THROUGH, {0, 1}, 10, 20).worst == 4


def test_a_load_waits_from_when_records_were_due() -> None:
    """One a second, due at 100, 101, 102 … as the quickest tells, which was acknowledged at once."""
    tally = told()
    tally = replace(tally, spec=replace(tally.spec, rate=1))
    tally.acked_at = {0: 100.5, 1: 101.0, 2: 107.0, 3: 107.0, 4: 107.0, 5: 107.0, 6: 107.0, 7: 107.5}
    assert tally.waits(103.5, 106.5) == [5, 4, 3, 2, 1]


def test_through_forebay_a_bystander_may_wait_little_longer_than_directly() -> None:
    directly = Latency(p50=0.01, p99=0.02, worst=0.1, errors=0)
    assert worst(directly, replace(directly, worst=0.4))
    assert not worst(directly, replace(directly, worst=0.41))
    assert median(directly, Latency(p50=0.07, p99=5.0, worst=9.0, errors=0))
    assert not median(directly, replace(directly, p50=0.071))
    assert not median(directly, replace(directly, errors=1))


def test_the_table_has_a_column_for_bystanders() -> None:
    quick, slow = Latency(0.001, 0.002, 0.003, 0), Latency(0.01, 0.02, 9.0, 0)
    results = [
        Result("hung", 1, "default", 3.0, Findings(), 0.5, 0.1, 0.2, Spared(quick, slow)),
        Result("all gone", 1, "short", 3.0, Findings(), 0.5, 0.1, None),
    ]
    cells = [row[-2:] for row in table(results).rows]
    assert cells == [("0.2", "0.001 · 0.002 · 0.003 / 0.010 · 0.020 · 9.000"), ("–", "–")]


def test_what_is_left_to_the_whole_run_is_there() -> None:
    assert {fault.name for fault in FAULTS} > LIKE_ANOTHER
    assert {fault.name for fault in NEIGHBOUR_FAULTS} > LONG


DRAWN = [("latency", 1, 0.1), ("latency + reset", 2, 0.4), ("reset + latency", 2, 0.2)]


def test_the_document_keeps_single_faults_and_all_pairs_in_one_row(tmp_path: Path) -> None:
    document = tmp_path / "reliability.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    found = Findings(sent=10, acknowledged=9, refused=1)
    results = [Result(name, faults, "short", 3.0, found, 0.5, recovery, 0.2) for name, faults, recovery in DRAWN]
    keep(results, "7", document)
    text = document.read_text()
    assert text.startswith(f"before\n{BEGIN}\n| fault |")
    assert text.endswith(f"{END}\nafter\n")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows[2:]] == ["latency", "random pairs, 2 of them"]
    assert rows[-1] == [
        "random pairs, 2 of them",
        "short",
        "3.0",
        "20",
        "18",
        "2",
        "0",
        "0",
        "0",
        "0",
        "0.5",
        "0.4",
        "0.2",
        "–",
    ]
