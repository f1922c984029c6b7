"""What the chaos tests rely on: a reconciliation that finds each kind of harm, a footprint that sees what is held."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.chaos.faults import FAULTS, LIKE_ANOTHER, pair
from tests.chaos.reconcile import Findings, reconcile
from tests.chaos.report import BEGIN, END, keep
from tests.chaos.run import Result
from tests.chaos.stage import Stage
from tests.chaos.tally import Promise, Tally
from tests.chaos.waiting import wait_until
from tests.kit.ports import LOOPBACK
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


def test_what_forebay_holds_is_seen(stage: Stage) -> None:
    """Ten of them, since a connection to a broker that closed meanwhile may make up for one or two."""
    stage.wait_until_settled()
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(socket.create_connection((LOOPBACK, stage.forebay.port), 5))
        wait_until(lambda: stage.footprint().client_connections == 10, 10, "the connections are seen")
        assert set(stage.footprint().beyond(stage.settled)) >= {"client_connections", "file_descriptors"}
    stage.wait_until_settled()


DRAWN = [("latency", 1, 0.1), ("latency + reset", 2, 0.4), ("reset + latency", 2, 0.2)]


def test_the_document_keeps_single_faults_and_all_pairs_in_one_row(tmp_path: Path) -> None:
    document = tmp_path / "reliability.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    found = Findings(sent=10, acknowledged=9, refused=1)
    results = [Result(name, faults, 3.0, found, 0.5, recovery, 0.2) for name, faults, recovery in DRAWN]
    keep(results, "7", document)
    text = document.read_text()
    assert text.startswith(f"before\n{BEGIN}\n| fault |")
    assert text.endswith(f"{END}\nafter\n")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows[2:]] == ["latency", "random pairs, 2 of them"]
    assert rows[-1] == ["random pairs, 2 of them", "3.0", "20", "18", "2", "0", "0", "0", "0", "0.5", "0.4", "0.2"]


def test_what_is_left_to_the_whole_run_is_there() -> None:
    assert {fault.name for fault in FAULTS} > LIKE_ANOTHER
