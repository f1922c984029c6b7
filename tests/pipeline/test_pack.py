"""What is packed, and that it is enough for a Python that has nothing. test_cluster.py has Spark unpack it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from forebay_pipeline import pack as module
from forebay_pipeline.errors import CLEAN, COULD_NOT_RUN, CannotRun
from forebay_pipeline.pack import PYTHON, command, needed

COMPILED = os.environ.get("FOREBAY_REQUIRE_COMPILE") == "1"
SMALL = {"forebay", "librt", "msgspec"}


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Result]:
    """Packs Forebay and two packages that are compiled: all of them are half a gigabyte."""
    small = [package for package in needed("forebay") if package.name in SMALL]
    monkeypatch.setattr(module, "needed", lambda name, extra: small)
    return lambda name: CliRunner().invoke(command, ["--output", str(tmp_path / name)])


def names(*packages: str) -> set[str]:
    return {package.name.lower() for package in needed(*packages)}


def test_what_the_jobs_need_is_packed_and_what_spark_brings_is_not() -> None:
    jobs = names("forebay", "pipeline")
    assert {"forebay", "msgspec", "zstandard", "xxhash", "pyarrow", "numpy", "pandas", "matplotlib", "pillow"} <= jobs
    assert not {"pyspark", "py4j", "pytest", "textual"} & jobs
    assert names("forebay") < jobs


def test_a_python_that_has_nothing_has_all_of_it(packed: Callable[[str], Result], tmp_path: Path) -> None:
    done = packed("forebay.tar.gz")
    assert (done.exit_code, done.stderr) == (CLEAN, "")
    assert "forebay.tar.gz: 3 packages" in done.stdout
    assert f"Python {PYTHON.removeprefix('python')} on Linux" in done.stdout
    there, spark = tmp_path / "there", tmp_path / "spark"
    spark.mkdir()
    (spark / "msgspec.py").write_text("")
    with tarfile.open(tmp_path / "forebay.tar.gz") as archive:
        archive.extractall(there, filter="data")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / PYTHON).symlink_to(Path(sys.base_prefix, "bin", PYTHON))
    script = "import forebay_codecs.frame as a, forebay_policies.journal_rows as b, msgspec; print(a, b, msgspec)"
    environ = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    bare = subprocess.run([there / "bin" / "python", "-c", script], env=environ, capture_output=True, text=True)
    assert bare.stderr == ""
    assert bare.stdout.count(f"{there}/lib/") == 3
    assert any(ending in bare.stdout.split("forebay_policies")[0] for ending in EXTENSION_SUFFIXES) is COMPILED
    environ["PYTHONPATH"] = str(spark)
    ours = subprocess.run(
        [there / "bin" / "python", "-c", "import msgspec; print(msgspec)"], env=environ, capture_output=True, text=True
    )
    assert str(spark / "msgspec.py") in ours.stdout  # what Spark has put on the path comes first


def test_without_that_python_it_is_said(packed: Callable[[str], Result], tmp_path: Path) -> None:
    packed("forebay.tgz")
    with tarfile.open(tmp_path / "forebay.tgz") as archive:
        archive.extractall(tmp_path, filter="data")
    done = subprocess.run([tmp_path / "bin" / "python"], env={"PATH": "/nowhere"}, capture_output=True, text=True)
    assert done.returncode == 127
    assert done.stderr == f"forebay: this pack needs {PYTHON} on the PATH (/nowhere)\n"


def test_the_archive_names_nobody_and_no_place(packed: Callable[[str], Result], tmp_path: Path) -> None:
    packed("forebay.tgz")
    with tarfile.open(tmp_path / "forebay.tgz") as archive:
        members = archive.getmembers()
    assert {(each.uid, each.gid, each.uname, each.gname) for each in members} == {(0, 0, "", "")}
    assert all(each.mode & 0o444 == 0o444 for each in members)
    assert all(each.name.startswith("lib/") and ".." not in each.name for each in members[1:])


def test_another_ending_is_refused(packed: Callable[[str], Result]) -> None:
    """What Spark takes out of others, and that is what it goes by, could not be run."""
    done = packed("forebay.tar")
    assert done.exit_code == COULD_NOT_RUN
    assert "forebay.tar must end in .tar.gz or .tgz: Spark goes by that" in done.stderr


def test_what_is_not_installed_is_one_sentence() -> None:
    with pytest.raises(
        CannotRun, match=r"^no-such is not installed here: pip install '\.\[pipeline\]' in a clone of Forebay\.$"
    ):
        list(needed("no-such"))


def test_what_was_installed_by_other_means_is_one_sentence(
    packed: Callable[[str], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Distribution, "files", None)
    monkeypatch.setattr(module, "_editable", lambda package: False)
    done = packed("forebay.tgz")
    assert done.exit_code == COULD_NOT_RUN
    assert "was installed without a list of its files: install it by pip." in done.stderr


def test_caches_that_an_image_was_slimmed_by_are_not_missed_and_other_files_are(tmp_path: Path) -> None:
    info = tmp_path / "reeds-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: reeds\nVersion: 1.0\n")
    (info / "RECORD").write_text("reeds.py,,\n__pycache__/reeds.cpython-311.pyc,,\n")
    reeds = Distribution.at(info)
    with pytest.raises(CannotRun, match=r"^reeds lacks reeds\.py, which it was installed with\.$"):
        list(module._files(reeds))
    (tmp_path / "reeds.py").touch()
    assert list(module._files(reeds)) == [(tmp_path / "reeds.py", "reeds.py")]


def test_a_file_that_cannot_be_written_is_one_sentence_and_leaves_nothing(
    packed: Callable[[str], Result], tmp_path: Path
) -> None:
    (tmp_path / "forebay.tgz").mkdir()
    done = packed("forebay.tgz")
    assert done.exit_code == COULD_NOT_RUN
    assert done.stderr == f"forebay-pipeline: Cannot write {tmp_path / 'forebay.tgz'}: Is a directory.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["forebay.tgz"]
