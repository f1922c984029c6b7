"""What is built and what the tools forbid: wheels, compiled modules, the layers, skipped tests."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from hatch_build import FOLDERS, HOT, ROOT
from tests.kit import compiled

CONSTRAINTS = (ROOT / "constraints.txt").read_text().splitlines()
COMPILED = os.environ.get("FOREBAY_REQUIRE_COMPILE") == "1"


def run(*command: str | Path, given: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environ, input=given, capture_output=True, text=True, timeout=280
    )


def build(wheels: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    return run(*pip, "--wheel-dir", wheels, ".", **environ)


def test_hot_modules_exist() -> None:
    assert [name for name in HOT if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("name", HOT)
def test_hot_modules_are_compiled_where_asked_for_and_only_there(name: str) -> None:
    """`make compile-test` must not run the pure ones unnoticed, nor `make unit` a forgotten compiled twin."""
    module = importlib.import_module(name.removesuffix(".py").partition("/")[2].replace("/", "."))
    assert module.__file__ is not None
    assert module.__file__.endswith(tuple(EXTENSION_SUFFIXES)) is COMPILED


def test_what_runs_over_the_compiled_modules_is_there() -> None:
    names = {path.stem for path in (*compiled.of_hot_modules(), *compiled.of_the_whole_proxy())}
    assert {*compiled.WHOLE, "test_records", "test_accumulator", "test_client_connection"} <= names


def test_no_compiled_module_stands_in_the_source_tree() -> None:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".so", ".pyd")]
    assert found == []


@pytest.mark.parametrize("folder", [".venv", "build/demo"])
def test_make_refuses_another_python_than_an_environment_was_made_with(folder: str, tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / folder / "bin" / "python"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 3.9\n")
    old.chmod(0o755)
    environ = {"PATH": os.environ["PATH"]}  # none of a make that runs this

    def make(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = ("make", "--dry-run", *words)
        return subprocess.run(command, cwd=tmp_path, env=environ | more, capture_output=True, text=True, timeout=60)

    for refused in (make(f"PYTHON={sys.executable}", "lint"), make("demo", PYTHON=sys.executable)):
        assert refused.returncode == 2
        assert f"{folder} was made with another Python than {sys.executable}: first `make clean`" in refused.stderr
    for taken in (make("lint"), make(f"PYTHON={old}", "lint"), make(f"PYTHON={sys.executable}", "clean")):
        assert taken.returncode == 0, taken.stderr


@pytest.mark.whole
def test_without_a_c_compiler_the_wheel_is_pure(tmp_path: Path) -> None:
    built = build(tmp_path, CC="/bin/false", FOREBAY_REQUIRE_COMPILE="0")
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")


def test_the_page_is_in_the_wheel_as_it_is_here(tmp_path: Path) -> None:
    assert build(tmp_path, FOREBAY_NO_COMPILE="1").returncode == 0
    static = ROOT / "proxy" / "forebay_proxy" / "console" / "static"
    here = {str(path.relative_to(static)): path.read_bytes() for path in static.rglob("*") if path.is_file()}
    (wheel,) = tmp_path.iterdir()
    prefix = "forebay_proxy/console/static/"
    with zipfile.ZipFile(wheel) as packed:
        there = {name.removeprefix(prefix): packed.read(name) for name in packed.namelist() if name.startswith(prefix)}
    assert there == here
    assert {"index.html", "app.js", "style.css", "vendor/uPlot.iife.min.js", "vendor/uPlot.LICENSE.txt"} <= there.keys()


@pytest.mark.whole  # `make compile-test` asks for it, and fails where nothing was compiled
def test_where_compiling_is_required_its_failure_is_an_error(tmp_path: Path) -> None:
    built = build(tmp_path, CC="/bin/false", FOREBAY_REQUIRE_COMPILE="1")
    assert built.returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_compiling_can_be_switched_off(tmp_path: Path) -> None:
    """No failure although a C compiler that fails is required to succeed: it was never called."""
    built = build(tmp_path, CC="/bin/false", FOREBAY_REQUIRE_COMPILE="1", FOREBAY_NO_COMPILE="1")
    assert built.returncode == 0, built.stderr


def test_folders_to_compile_that_there_are_not_are_named(tmp_path: Path) -> None:
    built = build(tmp_path, FOREBAY_COMPILE="codecs,police", FOREBAY_REQUIRE_COMPILE="1")
    assert built.returncode != 0
    assert "FOREBAY_COMPILE=codecs,police: police is none of codecs, policies, proxy" in built.stdout + built.stderr


def imported() -> dict[str, set[str]]:
    """{top-level module: the files that import it}, of all that is shipped and not ours or the standard library's."""
    found: dict[str, set[str]] = {}
    for path in (path for folder in ("codecs", "policies", "proxy") for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            for top in {name.partition(".")[0] for name in names}:
                if top not in sys.stdlib_module_names and not top.startswith("forebay_"):
                    found.setdefault(top, set()).add(path.name)
    return found


def declared() -> set[str]:
    """Normalised names of what an installation brings, with all extras of the proxy."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *extras["demo"], *extras["otlp"], *extras["top"]]
    return {normalised(re.split(r"[^\w.-]", requirement)[0]) for requirement in requirements}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_what_is_imported_is_what_is_installed() -> None:
    """Here the development group is installed too, and would hide what a user lacks."""
    distributions = packages_distributions()
    missing = {
        module: files
        for module, files in imported().items()
        if not {normalised(name) for name in distributions[module]} & declared()
    }
    assert missing == {}


def test_everything_that_is_installed_is_pinned() -> None:
    pins = {normalised(line.partition("==")[0]) for line in CONSTRAINTS if "==" in line}
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    wanted = declared() | {normalised(re.split(r"[^\w.-]", requirement)[0]) for requirement in group}
    assert wanted - pins == set()


BANNED = (
    "import time",
    "import asyncio",
    "import socket",
    "from random import choice",
    "import random\nrandom.random()",
)


def ruff(folder: str, source: str) -> str:
    return run(
        sys.executable, "-m", "ruff", "check", "--select=TID251", f"--stdin-filename={folder}/x.py", "-", given=source
    ).stdout


@pytest.mark.parametrize("source", BANNED)
@pytest.mark.parametrize("folder", ["codecs/forebay_codecs", "policies/forebay_policies"])
def test_codecs_and_policies_have_no_clock_no_io_no_randomness_of_their_own(folder: str, source: str) -> None:
    assert "TID251" in ruff(folder, source)


def test_a_generator_may_be_passed_in() -> None:
    assert "TID251" not in ruff("policies/forebay_policies", "import random\ndef draw(rng: random.Random) -> None: ...")


def test_the_proxy_may_have_them() -> None:
    assert "TID251" not in ruff("proxy/forebay_proxy", "\n".join(BANNED))


@pytest.mark.parametrize("workers", ["2", pytest.param("0", marks=pytest.mark.whole)])
def test_a_skipped_test_fails_the_run(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_it.py").write_text("import pytest\n\ndef test_it() -> None:\n    pytest.skip('no reason')\n")
    pytest_run = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        workers,
        f"--rootdir={tmp_path}",
        tmp_path,
    )
    assert run(*pytest_run).returncode == 0
    strict = run(*pytest_run, "-p", "tests.no_skips")
    assert strict.returncode == 1
    assert "no reason" in strict.stdout
