"""Memory that clients wait for, and bytes that cross racks."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay_pipeline.advice.facts import TopicReason
from forebay_pipeline.advice.present import Present
from forebay_pipeline.advice.resources import memory, racks
from forebay_pipeline.partitions.summary import RackUse
from tests.pipeline.advice.made_up import BATCHES, CLIENTS, as_forebay_reads, facts, worker

SHORT = [worker(seconds_waited=40, pool_waits=96), worker(worker=1)]
MERGED = BATCHES._replace(bytes=40_000_000_000, movable_bytes=32_000_000_000)
CROSSED = RackUse(same_bytes=10_000_000_000, other_bytes=30_000_000_000, unknown_bytes=0, last_us=1_000_000_000)


def test_waiting_for_memory_asks_for_more(tmp_path: Path) -> None:
    change = memory(facts(workers=SHORT))
    assert change is not None
    assert change.effect.worth == pytest.approx(40 / 2000)
    assert change.effect.others == ("32 MiB more memory at most for each worker of each host.",)
    assert "In 40 of 2,000 seconds of the workers a client waited for memory, 96 times together" in change.evidence
    assert as_forebay_reads(tmp_path, change).buffer_memory == 67_108_864


@pytest.mark.parametrize(
    "workers",
    [
        [],
        [worker(seconds_waited=9)],
        [worker(seconds=9000, seconds_waited=40)],
        [worker(seconds_waited=40, pool_bytes=1 << 34)],
    ],
    ids=["unknown", "for seconds", "seldom", "much already"],
)
def test_without_enough_evidence_nothing_is_said_of_memory(workers: list[object]) -> None:
    assert memory(facts(workers=workers)) is None


@pytest.mark.parametrize(("batches", "said"), [(999, False), (1000, True)])
def test_nothing_is_said_of_either_with_few_batches_to_go_by(batches: int, *, said: bool) -> None:
    seen = facts(workers=SHORT, racks=CROSSED, batches=MERGED._replace(batches=batches))
    assert [rule(seen) is not None for rule in (memory, racks)] == [said, said]


def test_what_crosses_racks_may_stay(tmp_path: Path) -> None:
    """Four fifths of the bytes may move: 24 of 40 GB at best, which is 60 %."""
    change = racks(facts(racks=CROSSED, batches=MERGED))
    assert change is not None
    assert change.effect.crossing == pytest.approx(-0.6)
    assert change.effect.others == ()
    assert "30.0 of 40.0 GB went to a leader in another rack; 80 % of all merged bytes have no key." in change.evidence
    assert as_forebay_reads(tmp_path, change).partitioner_rack_aware is True


def test_what_crosses_racks_has_a_price_where_one_is_given() -> None:
    """24 GB in 1,000 s are 62,208 in 30 days."""
    change = racks(facts(racks=CROSSED, batches=MERGED, price_per_gb=0.01))
    assert change is not None
    assert change.effect.others == ("248.83 to 622.08 less in 30 days like that, at 0.01 a GB.",)


def test_what_passes_untouched_does_not_stay() -> None:
    """Of 40 GB a tenth was merged, all of it without a key: no more than that may stay."""
    tenth = BATCHES._replace(bytes=4_000_000_000, movable_bytes=4_000_000_000)
    change = racks(facts(racks=CROSSED, batches=tenth, price_per_gb=0.01))
    assert change is not None
    assert change.effect.crossing == pytest.approx(-0.1)
    assert change.effect.others == ("41.47 to 103.68 less in 30 days like that, at 0.01 a GB.",)


def test_by_a_ledger_what_passes_untouched_is_known_however_much_is_compressed() -> None:
    """A twentieth of the batches was merged, of which four fifths may move: 1.2 of 40 GB."""
    reasons = [TopicReason("t", "idempotent", 1900, 0), TopicReason("t", "null_key", 100, 0)]
    change = racks(facts(racks=CROSSED, batches=MERGED, clients=CLIENTS._replace(reasons=reasons)))
    assert change is None, "little of what crosses may move"
    reasons = [TopicReason("t", "idempotent", 1000, 0), TopicReason("t", "null_key", 1000, 0)]
    change = racks(facts(racks=CROSSED, batches=MERGED, clients=CLIENTS._replace(reasons=reasons)))
    assert change is not None
    assert change.effect.crossing == pytest.approx(-0.3)
    assert "untouched" in change.how


def test_where_all_clients_are_in_one_rack_all_of_it_stays() -> None:
    """Nothing bounds the skew then. Whether they are, --config may tell."""
    crossed = facts(racks=CROSSED, batches=MERGED, price_per_gb=0.01)
    alone = racks(crossed._replace(present=Present({"client.rack": "a"})))
    apart = racks(crossed._replace(present=Present({"client.racks.10.1.0.0/16": "a"})))
    unknown = racks(crossed)
    assert alone is not None
    assert apart is not None
    assert unknown is not None
    assert alone.effect.others[0] == "622.08 less in 30 days like that, at 0.01 a GB."
    assert alone.effect.others[1].startswith("Where client.rack alone says where clients are, all of it stays there, ")
    assert "two fifths" not in alone.how
    assert len(apart.effect.others) == len(unknown.effect.others) == 1
    assert "client.rack alone" not in apart.how
    assert "client.rack alone" in unknown.how


@pytest.mark.parametrize(
    "given",
    [
        {"racks": None},
        {"racks": CROSSED, "present": Present({"partitioner.rack.aware": True})},
        {"racks": RackUse(9_000_000_000, 1_000_000_000, 0)},
        {"racks": RackUse(100_000_000, 300_000_000, 0)},
        {"racks": CROSSED, "batches": MERGED._replace(movable_bytes=1000)},
        {"racks": CROSSED, "batches": MERGED._replace(bytes=0)},
        {"racks": CROSSED, "batches": MERGED._replace(bytes=2_900_000_000, movable_bytes=2_900_000_000)},
    ],
    ids=["unknown", "already", "little crosses", "little at all", "keys", "nothing", "hardly any is merged"],
)
def test_without_enough_evidence_nothing_is_said_of_racks(given: dict[str, object]) -> None:
    assert racks(facts(**{"batches": MERGED, **given})) is None
