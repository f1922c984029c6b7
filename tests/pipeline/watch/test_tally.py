"""What is counted of a topic's minute."""

from __future__ import annotations

import msgspec

from forebay_pipeline.audit.ledger import ACKNOWLEDGED, NOT_FOLLOWED, UNACKNOWLEDGED
from forebay_pipeline.jobs.histogram import bucket_of
from forebay_pipeline.watch.tally import Offsets, Tally


def test_records_are_counted_by_what_became_of_them() -> None:
    tally = Tally()
    tally.count(ACKNOWLEDGED, 3, 100, 10, 2_000)
    tally.count(ACKNOWLEDGED, 3, 90, 5, 9_000)
    tally.count(ACKNOWLEDGED, 4, 7, 1, 2_000)
    tally.count(UNACKNOWLEDGED, 3, -1, 2, 30_000_000)
    tally.count(NOT_FOLLOWED, 3, -1, 4, 1)
    assert (tally.acknowledged, tally.unacknowledged, tally.not_followed) == (16, 2, 4)
    assert tally.latencies == {bucket_of(2_000): 11, bucket_of(9_000): 5}
    assert tally.offsets == {3: Offsets(90, 110, 15), 4: Offsets(7, 8, 1)}


def test_a_batch_of_nothing_claims_nothing() -> None:
    tally = Tally()
    tally.count(ACKNOWLEDGED, 0, 0, 0, 5)
    assert tally == Tally()


def test_tallies_add_up_to_what_one_process_would_have_counted() -> None:
    one, other, both = Tally("c"), Tally("c"), Tally("c")
    for tally in (one, both):
        tally.count(ACKNOWLEDGED, 0, 10, 10, 2_000)
        tally.count(UNACKNOWLEDGED, 0, -1, 1, 5)
    for tally in (other, both):
        tally.count(ACKNOWLEDGED, 0, 0, 5, 2_000)
        tally.count(ACKNOWLEDGED, 1, 0, 5, 7_000)
        tally.count(NOT_FOLLOWED, 0, -1, 3, 5)
    before = msgspec.json.encode(other)
    total = Tally("c")
    total.add(one)
    total.add(other)
    assert total == both
    total.add(other)
    assert msgspec.json.encode(other) == before


def test_it_comes_back_from_the_checkpoint_as_it_was() -> None:
    tally = Tally("c")
    tally.count(ACKNOWLEDGED, 3, 100, 10, 2_000)
    assert msgspec.json.decode(msgspec.json.encode(tally), type=Tally) == tally
