"""Prints which tests `make compile-test` runs: those named like a hot module, those of the whole proxy, and of `pack`.

With --ignore: pytest's options to leave out all of them, which `make test` runs compiled and not pure as well.
`make test-all` runs every unit test both ways.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hatch_build import HOT, ROOT

WHOLE = ("test_app", "test_connections", "test_hostile", "test_proxy_before_mock_cluster")
"""These go from a client's bytes to a broker's and back."""
PACK = "tests/pipeline/test_pack.py"
"""That it takes the compiled modules along."""
GUARD = "tests/test_build.py::test_hot_modules_are_compiled_where_asked_for_and_only_there"


def of_hot_modules() -> list[Path]:
    found = set[Path]()
    for hot in map(Path, HOT):
        folder = ROOT / "tests" / hot.parts[0]
        found.update(folder.rglob(f"test_{hot.stem}.py"), folder.rglob(f"test_{hot.stem}_*.py"))
    return sorted(path.relative_to(ROOT) for path in found)


def of_the_whole_proxy() -> list[Path]:
    found = [path for name in WHOLE for path in (ROOT / "tests" / "proxy").rglob(f"{name}.py")]
    return sorted(path.relative_to(ROOT) for path in found)


if __name__ == "__main__":
    if sys.argv[1:] == ["--ignore"]:
        print(*(f"--ignore={path}" for path in (*of_hot_modules(), *of_the_whole_proxy())))
    else:
        print(GUARD, PACK, *of_hot_modules(), *of_the_whole_proxy())
