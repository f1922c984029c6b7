"""JSON lines: a batch that is done again leaves no second copy."""

from __future__ import annotations

from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from forebay_pipeline.jobs.json_lines import JsonLines
from forebay_pipeline.storage import Storage


def test_a_batch_done_again_replaces_its_lines(spark: SparkSession, tmp_path: Path) -> None:
    lines = JsonLines(Storage(spark), f"{tmp_path}/told/", "minutes")
    lines.tell(7, [{"topic": "t", "lost": 0}, {"topic": "u", "lost": None}])
    lines.tell(8, [])
    lines.tell(12, [{"topic": "other"}])
    again = [{"topic": "t", "lost": 0}, {"topic": "u", "lost": 3}]
    lines.tell(7, again)
    found = {path.name: path.read_bytes().splitlines() for path in (tmp_path / "told").iterdir()}
    assert sorted(found) == ["minutes-000000007.jsonl", "minutes-000000012.jsonl"]
    assert [msgspec.json.decode(line) for line in found["minutes-000000007.jsonl"]] == again
    assert found["minutes-000000012.jsonl"] == [b'{"topic":"other"}']
