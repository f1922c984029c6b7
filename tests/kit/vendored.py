"""`make vendor-check`: whether the page's libraries are what npm has, byte for byte.

In: vendored.json beside them, which says of each file from which package it is, and its SHA-256. Out: nothing, or what
differs, and exit code 1.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.kit.npm import unpack
from tests.kit.paths import ROOT

FOLDER: Final = ROOT / "proxy" / "forebay_proxy" / "console" / "static" / "vendor"
LIST: Final = FOLDER / "vendored.json"


class Vendored(NamedTuple):
    """`file` in FOLDER is `path` of the npm package `package` (name@version); `licence` by its SPDX name."""

    file: str
    package: str
    path: str
    licence: str
    sha256: str


def listed() -> list[Vendored]:
    return [Vendored(**entry) for entry in json.loads(LIST.read_text())]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def differences() -> Iterator[str]:
    """One line for each file that is not as npm has it."""
    entries = listed()
    with tempfile.TemporaryDirectory() as fetched:
        for package in sorted({entry.package for entry in entries}):
            folder = Path(fetched, package)
            unpack(package, folder)
            for entry in entries:
                if entry.package != package:
                    continue
                published = folder / entry.path
                if not published.exists():
                    yield f"{entry.file}: {package} has no {entry.path}"
                elif published.read_bytes() != (FOLDER / entry.file).read_bytes():
                    yield f"{entry.file} is not {entry.path} of {package}"


def main() -> int:
    found = list(differences())
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
