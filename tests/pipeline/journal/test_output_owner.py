"""Which checkpoints may write to an output, by the files that Spark and Forebay leave in both."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.output_owner import check_owner, check_place, claim, named_query, own, query_id
from forebay_pipeline.storage import Storage


def log(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("v1\n")
        (folder / f".{name}.crc").write_text("")


def checkpoint(folder: Path, query: str, *batches: str) -> str:
    log(folder / "offsets", *batches)
    (folder / "metadata").write_text(f'{{"id":"{query}"}}')
    return str(folder)


@pytest.fixture
def storage(spark: SparkSession) -> Storage:
    return Storage(spark)


def test_an_output_without_batches_may_become_anyones(storage: Storage, tmp_path: Path) -> None:
    """Also one whose first run ended before it had written any."""
    output = tmp_path / "output"
    check_owner(storage, str(output), str(tmp_path / "new"))
    own(storage, str(output), "ended")
    check_owner(storage, str(output), str(tmp_path / "new"))
    own(storage, str(output), "next")
    log(output / "_spark_metadata", "0")
    check_owner(storage, str(output), checkpoint(tmp_path / "next", "next", "0"))


def test_it_stays_that_of_the_checkpoint_it_was_written_with(storage: Storage, tmp_path: Path) -> None:
    output = tmp_path / "output"
    log(output / "_spark_metadata", "9.compact", "10", "8")
    own(storage, str(output), "mine")
    check_owner(storage, str(output), checkpoint(tmp_path / "mine", "mine", "9", "10"))
    check_owner(storage, f"{output}/", checkpoint(tmp_path / "begun", "mine", "10", "11") + "/")
    for other in (
        str(tmp_path / "new"),
        checkpoint(tmp_path / "started", "other"),
        checkpoint(tmp_path / "other", "other", "8"),
        checkpoint(tmp_path / "former", "mine", "8", "9"),
    ):
        with pytest.raises(CannotRun, match=f"^{output} has batches .* the checkpoint {other}: "):
            check_owner(storage, str(output), other)


def test_one_that_is_as_far_by_chance_is_another_one_all_the_same(storage: Storage, tmp_path: Path) -> None:
    output = tmp_path / "output"
    log(output / "_spark_metadata", "0")
    own(storage, str(output), "mine")
    with pytest.raises(CannotRun):
        check_owner(storage, str(output), checkpoint(tmp_path / "other", "other", "0", "1"))


def test_a_checkpoint_is_that_of_one_job_once_its_query_has_begun(storage: Storage, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    for job in ("watch", "runaways"):
        claim(storage, str(place), job)
    checkpoint(place, "mine")
    claim(storage, f"{place}/", "runaways")
    with pytest.raises(CannotRun, match=f"^The checkpoint {place} is that of `runaways`: `watch` would leave out "):
        claim(storage, str(place), "watch")


def test_where_parquet_is_the_oldest_file_that_spark_names_tells(storage: Storage, tmp_path: Path) -> None:
    """It alone does: of a folder that was moved later ones may be in the new place."""
    output = tmp_path / "out put"
    names = output / "_spark_metadata"
    assert not check_place(storage, str(output))
    log(names, "0")
    assert not check_place(storage, str(output))

    def write(name: str, *folders: Path) -> None:
        files = (f'{{"path":"{folder.as_uri()}/kind=a/topic=b%253A/1.parquet","size":1}}' for folder in folders)
        (names / name).write_text("\n".join(["v1", *files]))

    write("1", output)
    write("2", tmp_path / "old")
    assert check_place(storage, f"{output}/")
    write("9.compact", tmp_path / "old", output)
    with pytest.raises(CannotRun, match=f"^{output} was moved or copied: .* names files in file:{tmp_path}/old. Give"):
        check_place(storage, str(output))
    write("19.compact", output)
    assert check_place(storage, f"file://{output}")
    (names / "19.compact").write_text("v1\n{}")
    with pytest.raises(CannotRun, match=r"/19.compact does not say which files there are: .*[^.].$"):
        check_place(storage, str(output))


def test_the_id_of_a_query(storage: Storage, tmp_path: Path) -> None:
    assert query_id(storage, checkpoint(tmp_path / "c", "mine") + "/") == "mine"
    assert query_id(storage, str(tmp_path / "none")) is None


def test_a_query_is_named_before_it_starts_and_keeps_its_name(storage: Storage, tmp_path: Path) -> None:
    assert named_query(storage, checkpoint(tmp_path / "c", "mine")) == "mine"
    given = named_query(storage, f"{tmp_path}/new/")
    assert given == query_id(storage, f"{tmp_path}/new") == named_query(storage, f"{tmp_path}/new")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"id":1}'])
def test_what_names_no_query_is_told(storage: Storage, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metadata").write_bytes(content)
    with pytest.raises(CannotRun, match=f"^{tmp_path}/metadata does not say which query it is of: .*[^.].$"):
        query_id(storage, str(tmp_path))
