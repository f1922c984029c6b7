"""Prints the test files of what is compiled, for `make compile-test`: those named like a hot module, and whole proxies.

`make test-all` runs every unit test over the compiled modules.
"""

from __future__ import annotations

from pathlib import Path

from hatch_build import HOT, ROOT

WHOLE = ("test_app", "test_connections", "test_hostile", "test_proxy_before_mock_cluster", "test_workers")
"""These go from a client's bytes to a broker's and back."""


def test_files() -> list[Path]:
    """Besides, tests/test_build.py: it fails where a hot module is not compiled."""
    found = {ROOT / "tests" / "test_build.py"}
    for hot in map(Path, HOT):
        folder = ROOT / "tests" / hot.parts[0]
        found.update(folder.rglob(f"test_{hot.stem}.py"), folder.rglob(f"test_{hot.stem}_*.py"))
    for name in WHOLE:
        found.update((ROOT / "tests" / "proxy").rglob(f"{name}.py"))
    return sorted(found)


if __name__ == "__main__":
    print(*(path.relative_to(ROOT) for path in test_files()))
