"""Whether minutes were judged, over runs with the same checkpoint."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from forebay_pipeline.storage import Storage
from forebay_pipeline.watch.judged import Judged


def test_it_is_known_as_soon_as_one_was_judged_and_for_good(spark: SparkSession, tmp_path: Path) -> None:
    """A run that is killed has told it, too."""
    storage, checkpoint = Storage(spark), str(tmp_path / "checkpoint")
    first, alone = Judged(storage, checkpoint), Judged(storage, None)
    assert (first.any, Judged(storage, checkpoint).any) == (False, False)
    for each in (first, alone):
        each.tell(0, [])
    assert (first.any, Judged(storage, checkpoint).any) == (True, True)
    assert (alone.any, Judged(storage, None).any) == (True, False)
