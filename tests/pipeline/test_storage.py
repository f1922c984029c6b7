"""Files by way of Hadoop: as whole ones, or one sentence that says why not; of an object store in
test_object_store.py."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline import storage as module
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.storage import Storage
from tests.kit.waiting import wait_until


@pytest.fixture
def storage(spark: SparkSession) -> Storage:
    return Storage(spark)


def test_what_was_there_is_replaced(storage: Storage, tmp_path: Path) -> None:
    """With and without a scheme; nothing else lies beside it: no checksums, which an editor would make wrong."""
    path = tmp_path / "result.json"
    storage.write(str(path), b"a long first one")
    storage.write(path.as_uri(), b"\x00second\xff")
    assert path.read_bytes() == b"\x00second\xff"
    assert storage.read(str(path)) == storage.read(path.as_uri()) == b"\x00second\xff"
    assert os.listdir(tmp_path) == ["result.json"]


def test_the_beginning_of_a_file(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    assert storage.read(str(tmp_path / "a"), 4) == b"0123"
    assert storage.read(str(tmp_path / "a"), 99) == b"0123456789"


def test_a_folder_is_split_and_its_files_have_sizes(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "a file").write_bytes(b"seven b")
    assert storage.sizes(str(tmp_path)) == {"a file": 7}
    assert storage.split(f"{tmp_path}/lake/") == (f"file:{tmp_path}", "lake")
    with pytest.raises(CannotRun, match=r"^/ is all of a file system: name a folder in it\.$"):
        storage.split("/")


HOLD = """\
import fcntl, sys
with open(sys.argv[1], "ab") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


def test_a_lock_keeps_other_processes_out_while_it_lasts(storage: Storage, tmp_path: Path) -> None:
    path = tmp_path / "lake" / ".batch.lock"

    def taken() -> bool:
        return subprocess.run([sys.executable, "-c", HOLD, str(path)], stderr=subprocess.PIPE).returncode != 0

    with storage.locked(path.as_uri()):
        assert taken()
    assert not taken()


def test_who_has_to_wait_for_a_lock_says_so(
    storage: Storage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / ".batch.lock"
    said = ""

    def locked() -> None:
        with storage.locked(str(path)):
            pass

    def waits() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return said == f"Waiting for another process, which has locked {path}.\n"

    with ThreadPoolExecutor(1) as pool:
        with path.open("ab") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            waiting = pool.submit(locked)
            wait_until(waits, 20, "it does not say that it waits")
            assert not waiting.done()
        waiting.result(20)


def test_what_is_not_there(storage: Storage, tmp_path: Path) -> None:
    assert storage.read(str(tmp_path / "none")) is None
    assert not storage.is_folder(str(tmp_path / "none"))
    with pytest.raises(CannotRun, match=f"^Cannot read {tmp_path}/none: .*{tmp_path}/none does not exist.$"):
        storage.names(str(tmp_path / "none"))


def test_folders(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "b=1").mkdir()
    for name in ("a file", ".hidden", "c"):
        (tmp_path / name).touch()
    assert storage.names(str(tmp_path)) == [".hidden", "a file", "b=1", "c"]
    assert storage.names(f"file://{tmp_path}/b=1") == []
    assert storage.is_folder(tmp_path.as_uri())
    assert not storage.is_folder(str(tmp_path / "c"))


def test_a_folder_is_no_file(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=f"^Cannot read {tmp_path}: "):
        storage.read(str(tmp_path))
    with pytest.raises(CannotRun, match=f"^Cannot write {tmp_path}: it is a folder.$"):
        storage.write(str(tmp_path), b"")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", ["none://there/a", "s3n://there/a"])
def test_where_nothing_leads_is_one_sentence(storage: Storage, path: str) -> None:
    for refused in (storage.read, storage.names, storage.is_folder, lambda path: storage.write(path, b"")):
        with pytest.raises(CannotRun, match=rf"^Cannot (read|write) {re.escape(path)}: [^\n]*[^.\n]\.$"):
            refused(path)


def test_a_write_that_fails_leaves_what_was_there(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    storage.write(str(path), b"old")

    def full(stream: Any, *_: object, **__: object) -> None:
        stream.write(b"ne")
        stream.close()
        raise CannotRun("No space left on device.")

    monkeypatch.setattr(module, "_fill", full)
    with pytest.raises(CannotRun, match="No space left"):
        storage.write(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state.json"]
