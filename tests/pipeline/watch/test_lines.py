"""JSON lines: a batch that is done again leaves no second copy."""

from __future__ import annotations

from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from forebay_pipeline.storage import Storage
from forebay_pipeline.watch.lines import JsonLines
from forebay_pipeline.watch.verdict import Finding, Minute
from tests.pipeline.watch.made_up import minute


def test_a_batch_done_again_replaces_its_lines(spark: SparkSession, tmp_path: Path) -> None:
    lines = JsonLines(Storage(spark), f"{tmp_path}/told/")
    lost = minute(lost=3, findings=[Finding.LOST])
    lines.tell(7, [minute(), minute(lost=None)])
    lines.tell(8, [])
    lines.tell(12, [minute(topic="other")])
    lines.tell(7, [minute(), lost])
    found = {path.name: path.read_bytes().splitlines() for path in (tmp_path / "told").iterdir()}
    assert sorted(found) == ["minutes-000000007.jsonl", "minutes-000000012.jsonl"]
    assert [msgspec.json.decode(line, type=Minute) for line in found["minutes-000000007.jsonl"]] == [minute(), lost]
    assert msgspec.json.decode(found["minutes-000000012.jsonl"][0])["topic"] == "other"
