"""JSON lines: a batch that is done again leaves no second copy, and another checkpoint's replaces none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.jobs.json_lines import JsonLines
from forebay_pipeline.storage import Storage


def checkpoint(folder: Path, query: str, begun: int = 99) -> str:
    (folder / "offsets").mkdir(parents=True)
    (folder / "offsets" / f"{begun}").touch()
    (folder / "metadata").write_text(f'{{"id":"{query}"}}')
    return str(folder)


def test_a_batch_done_again_replaces_its_lines(spark: SparkSession, tmp_path: Path) -> None:
    lines = JsonLines(Storage(spark), f"{tmp_path}/told/", "minutes", checkpoint(tmp_path / "mine", "mine"))
    lines.tell(7, [{"topic": "t", "lost": 0}, {"topic": "u", "lost": None}])
    lines.tell(8, [])
    lines.tell(12, [{"topic": "other"}])
    again = [{"topic": "t", "lost": 0}, {"topic": "u", "lost": 3}]
    lines.tell(7, again)
    found = {path.name: path.read_bytes().splitlines() for path in (tmp_path / "told").glob("[!_]*")}
    assert sorted(found) == ["minutes-000000007.jsonl", "minutes-000000012.jsonl"]
    assert [msgspec.json.decode(line) for line in found["minutes-000000007.jsonl"]] == again
    assert found["minutes-000000012.jsonl"] == [b'{"topic":"other"}']


def test_lines_that_another_checkpoint_would_replace_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    storage, told, mine = Storage(spark), str(tmp_path / "told"), checkpoint(tmp_path / "mine", "mine", 8)
    JsonLines(storage, told, "minutes", mine).tell(8, ["first"])
    for other in (
        str(tmp_path / "none"),
        checkpoint(tmp_path / "behind", "behind", 7),
        checkpoint(tmp_path / "as far", "as far", 8),
    ):
        with pytest.raises(CannotRun, match=f"^{told} has lines that were not written with the checkpoint {other}: "):
            JsonLines(storage, told, "minutes", other)
    JsonLines(storage, told, "minutes", mine).tell(9, ["second"])
    assert sorted(path.name for path in (tmp_path / "told").iterdir()) == [
        "_query-minutes",
        "minutes-000000008.jsonl",
        "minutes-000000009.jsonl",
    ]


def test_lines_that_an_older_copy_of_their_checkpoint_would_replace_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    storage, told = Storage(spark), str(tmp_path / "told")
    JsonLines(storage, told, "minutes", checkpoint(tmp_path / "mine", "mine", 8)).tell(8, ["first"])
    backup = checkpoint(tmp_path / "backup", "mine", 7)
    with pytest.raises(CannotRun, match=f"^{told} has lines that were not written with the checkpoint {backup}: "):
        JsonLines(storage, told, "minutes", backup)


def test_once_its_lines_are_gone_the_folder_may_become_anyones(spark: SparkSession, tmp_path: Path) -> None:
    storage, told = Storage(spark), tmp_path / "told"
    JsonLines(storage, str(told), "minutes", checkpoint(tmp_path / "mine", "mine")).tell(8, ["first"])
    (told / "minutes-000000008.jsonl").unlink()
    JsonLines(storage, str(told), "minutes", checkpoint(tmp_path / "other", "other", 0)).tell(0, ["first"])
    assert (told / "_query-minutes").read_bytes() == b'{"id":"other","last":0}'


def test_lines_of_two_names_in_one_folder_keep_out_of_each_others_way(spark: SparkSession, tmp_path: Path) -> None:
    storage, told = Storage(spark), str(tmp_path / "told")
    queries = {name: checkpoint(tmp_path / name, f"of {name}") for name in ("minutes", "runaways")}
    for batch in (0, 1):
        for name, mine in queries.items():
            JsonLines(storage, told, name, mine).tell(batch, ["told"])
    for name in queries:
        assert len(list((tmp_path / "told").glob(f"{name}-*.jsonl"))) == 2
        with pytest.raises(CannotRun, match="were not written with the checkpoint"):
            JsonLines(storage, told, name, checkpoint(tmp_path / f"other {name}", "other"))
