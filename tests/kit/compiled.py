"""Prints which tests `make compile-test` runs: those named like a hot module, and those of the whole proxy.

`make test-all` runs every unit test over the compiled modules.
"""

from __future__ import annotations

from pathlib import Path

from hatch_build import HOT, ROOT

WHOLE = ("test_app", "test_connections", "test_hostile", "test_proxy_before_mock_cluster")
"""These go from a client's bytes to a broker's and back."""
GUARD = "tests/test_build.py::test_hot_modules_are_compiled_where_asked_for_and_only_there"


def test_files() -> list[Path]:
    found = set[Path]()
    for hot in map(Path, HOT):
        folder = ROOT / "tests" / hot.parts[0]
        found.update(folder.rglob(f"test_{hot.stem}.py"), folder.rglob(f"test_{hot.stem}_*.py"))
    for name in WHOLE:
        found.update((ROOT / "tests" / "proxy").rglob(f"{name}.py"))
    return sorted(found)


if __name__ == "__main__":
    print(GUARD, *(path.relative_to(ROOT) for path in test_files()))
