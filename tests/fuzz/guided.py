"""The same targets, led by coverage: libFuzzer through atheris, with the targets' own mutations beside its own.

    python -m tests.fuzz.guided NAME FOLDER -max_total_time=60 …

In: a target's name. Out: a Tally, from the process that `guided` starts, since libFuzzer ends the process that it runs
in. FOLDER holds the corpus, which grows by what reaches new code, and is there again the next time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import subprocess
import sys
import traceback
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.fuzz.target import Finding, Tally
from tests.kit.paths import ROOT

INSTRUMENTED: Final = ("forebay_codecs",)
GRACE: Final = 120.0
"""Seconds beyond its time that libFuzzer may take to come to an end."""


def available() -> bool:
    return importlib.util.find_spec("atheris") is not None


def guided(name: str, seed: int, seconds: float, folder: Path) -> Tally:
    corpus = folder / "corpus" / name
    findings = folder / "guided" / name
    for path in (corpus, findings):
        path.mkdir(parents=True, exist_ok=True)
    for old in findings.iterdir():
        old.unlink()
    whole = max(1, round(seconds))
    command = [
        *(sys.executable, "-m", "tests.fuzz.guided", name, str(corpus)),
        *(f"-max_total_time={whole}", f"-seed={seed}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=65536"),
        *("-print_final_stats=1", f"-artifact_prefix={findings}/"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=seconds + GRACE)
    return read(name, float(whole), done.returncode, done.stderr, findings)


def read(name: str, seconds: float, code: int, said: str, findings: Path) -> Tally:
    """What libFuzzer said, as a tally."""
    tally = Tally(name, seconds=seconds)
    executed = re.search(r"number_of_executed_units: (\d+)", said)
    tally.inputs = int(executed[1]) if executed else max(map(int, re.findall(r"^#(\d+)", said, re.M)), default=0)
    tally.coverage = max(map(int, re.findall(r" cov: (\d+)", said)), default=0)
    for path in sorted(findings.iterdir()):
        tally.findings.append(Finding(name, path.read_bytes(), said[-3000:]))
    if code and not tally.findings:
        raise RuntimeError(f"{name}: libFuzzer ended with {code}: {said[-3000:]}")
    return tally


def main() -> None:
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        from tests.fuzz.registry import targets
    target = targets()[sys.argv[1]]
    corpus = Path(sys.argv[2])
    for seed in target.seeds:
        path = corpus / hashlib.sha256(seed).hexdigest()[:16]
        if not path.exists():
            path.write_bytes(seed)

    def one(data: bytes) -> None:
        try:
            target.check(data)
        except BaseException:
            traceback.print_exc()
            raise

    def mutate(data: Any, max_size: int, seed: int) -> bytes:
        rng = Random(seed)
        if rng.random() < 0.3:
            return bytes(atheris.Mutate(bytes(data), max_size))[:max_size]
        return target.mutate(bytes(data), rng)[:max_size]

    atheris.Setup([sys.argv[0], *sys.argv[2:]], one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
