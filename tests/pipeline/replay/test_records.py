"""Batches with nothing in them are as large as they are said to be."""

from __future__ import annotations

import pytest

from forebay_pipeline.replay.records import records_of


@pytest.mark.parametrize("size", [7, 8, 70, 71, 72, 73, 512, 8200, 100_000])
def test_a_batch_has_its_size_but_for_a_byte(size: int) -> None:
    batch = records_of(size, 3)
    assert size - 1 <= len(batch.section) <= size
    assert (batch.record_count, batch.null_keys) == (3, 3)


def test_the_same_batch_is_made_once() -> None:
    assert records_of(512, 1) is records_of(512, 1)
    assert records_of(512, 2).record_count == 2
