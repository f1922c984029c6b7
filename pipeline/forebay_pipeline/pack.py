"""Packs what Spark's tasks import into one archive, for executors that have nothing but Python.

    bin/python     a script: the executor's own python3.11, with lib/ behind what Spark has put on its path
    lib/…          Forebay, compiled as it is installed here, and all that its `pipeline` extra needs

In: the environment that runs the command. Out: an archive that Spark unpacks in each executor's folder
(spark.archives). It holds files as they are installed, and no absolute path. Not in it: Python, which must be of the
same version as here, and PySpark, of which Spark brings its own. Raises CannotRun if something is not installed, or the
file cannot be written.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import platform
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import click
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from forebay_pipeline.errors import CLEAN, CannotRun
from forebay_pipeline.jobs.options import job

_FOREBAY: Final = "forebay"
_EXTRA: Final = "pipeline"
_IMPORTED: Final = ("forebay_codecs", "forebay_policies", "forebay_proxy", "forebay_pipeline")
_SPARK_HAS: Final = frozenset({"pyspark", "py4j"})
_ENDINGS: Final = (".tar.gz", ".tgz")
"""Of all that Spark unpacks, these alone come out with their permissions, without which nothing can be run."""

_LEVEL: Final = 1
"""Of gzip; the default of 9 takes thirteen times the CPU for an eighth less."""

PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"

_LAUNCHER: Final = f"""\
#!/bin/sh
command -v {PYTHON} >/dev/null || {{ echo "forebay: this pack needs {PYTHON} on the PATH ($PATH)" >&2; exit 127; }}
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd) || exit
PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$here/lib" exec {PYTHON} "$@"
"""


def pack(output: Path) -> int:
    """Write the archive, as a whole or not at all; the number of packages in it, Forebay's among them."""
    packages = list(needed(_FOREBAY, _EXTRA))
    beside = output.with_name(f".{output.name}-{os.getpid()}")
    try:
        try:
            with tarfile.open(beside, "w:gz", compresslevel=_LEVEL) as archive:
                _add_launcher(archive)
                for package in packages:
                    for path, name in _files(package):
                        archive.add(path, f"lib/{name}", recursive=False, filter=_of_nobody)
            beside.replace(output)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise CannotRun(f"Cannot write {output}: {error.strerror}.") from error
    return len(packages)


def needed(name: str, extra: str = "") -> Iterator[Distribution]:
    """The package with that extra, and what it needs here, each once; not what Spark brings."""
    asked = [(name, extra)]
    seen = set(asked)
    found: dict[str, Distribution] = {}
    while asked:
        name, extra = asked.pop()
        package = found.get(name)
        if package is None:
            package = found[name] = _installed(name)
            yield package
        for requirement in map(Requirement, package.requires or ()):
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
                continue
            for wanted in requirement.extras or ("",):
                each = canonicalize_name(requirement.name), wanted
                if each[0] not in _SPARK_HAS and each not in seen:
                    seen.add(each)
                    asked.append(each)


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise CannotRun(f"{name} is not installed here: pip install '.[{_EXTRA}]' in a clone of Forebay.") from None


def _files(package: Distribution) -> Iterator[tuple[Path, str]]:
    """Where each file is, and its name below lib/; without scripts and others that stand outside of site-packages."""
    if package.name == _FOREBAY and _editable(package):
        yield from _sources()
    elif package.files is None:
        raise CannotRun(f"{package.name} was installed without a list of its files: install it by pip.")
    else:
        for file in package.files:
            if ".." in file.parts or file.is_absolute():
                continue
            path = Path(str(package.locate_file(file)))
            if path.exists():
                yield path, str(file)
            elif "__pycache__" not in file.parts:  # slim images do without it
                raise CannotRun(f"{package.name} lacks {file}, which it was installed with.")


def _editable(package: Distribution) -> bool:
    """Whether it stands somewhere else than where it is installed (PEP 610)."""
    told = package.read_text("direct_url.json")
    return told is not None and bool(json.loads(told).get("dir_info", {}).get("editable"))


def _sources() -> Iterator[tuple[Path, str]]:
    """Of a clone that is installed for development: what would be imported."""
    for name in _IMPORTED:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        folder = Path(spec.origin).parent
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path, str(path.relative_to(folder.parent))


def _add_launcher(archive: tarfile.TarFile) -> None:
    script = _LAUNCHER.encode()
    member = tarfile.TarInfo("bin/python")
    member.size, member.mode = len(script), 0o755
    archive.addfile(member, io.BytesIO(script))


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Readable by the user that runs an executor, and without the names of this machine's."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode |= 0o644
    return member


def matches() -> str:
    """What executors must have in common with this machine."""
    library, version = platform.libc_ver()
    libc = f" with {library} {version} or newer" if version else ""
    return f"Python {sys.version_info.major}.{sys.version_info.minor} on {platform.system()} {platform.machine()}{libc}"


def _named(_: click.Context, __: click.Parameter, value: str) -> Path:
    if not value.endswith(_ENDINGS):
        raise click.BadParameter(f"{value} must end in {' or '.join(_ENDINGS)}: Spark goes by that")
    return Path(value)


@click.command("pack")
@click.option(
    "--output", default="forebay.tar.gz", show_default=True, metavar="FILE", callback=_named, help="The archive."
)
@job
def command(*, output: Path) -> int:
    """Pack this environment for executors that have none.

    They need a Python of this version on their PATH, and nothing else.
    """
    packages = pack(output)
    click.echo(f"{output}: {packages} packages, {output.stat().st_size / 1e6:,.0f} MB, for {matches()}")
    click.echo(f"Spark is told: --archives {output}#forebay --conf spark.pyspark.python=./forebay/bin/python")
    return CLEAN
