"""`python -m tests.clients`: test suites that clients' authors wrote, run directly and through Forebay, and compared.

Out: for each suite how many tests pass each way, and what passes directly only. Exit code 1 if that is anything but
what is named with its reason in DIFFERENCES. What fails both ways (it wants SASL, another broker version, …) says
nothing of Forebay and is only counted. A test that differs is run twice more before it counts: suites have races of
their own.

What a suite needs is fetched by its language's own tools: Go modules for kafka-go's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster

KAFKA_GO = "github.com/segmentio/kafka-go@v0.4.51"
KAFKA = "4.3.1"
SUITE_MINUTES = 15
BROKER_SETTINGS = {"message.max.bytes": "200000000", "auto.create.topics.enable": "true"}
"""As the suite's authors run their brokers."""
DIFFERENCES: dict[str, str] = {}
"""Tests that pass directly only, and why that is as it should be."""


def main() -> int:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="client-suites-")))
        clusters = [stack.enter_context(KafkaCluster(KAFKA, 1, settings=BROKER_SETTINGS)) for _ in range(2)]
        forebay = stack.enter_context(ForebayProcess(clusters[1].bootstrap, clusters[1].nodes))
        # The port of the broker and not that to bootstrap: the suite compares what it is told with where it connected.
        direct = go_suite(folder / "direct", KAFKA_GO, clusters[0].ports[0])
        through = go_suite(folder / "through", KAFKA_GO, forebay.node_port(0))
        with ThreadPoolExecutor(2) as pool:
            told = list(pool.map(lambda suite: suite(()), (direct, through)))
        for _ in range(2):
            differing = passed_only_in(*told)
            if differing:
                told[1] |= {test: passed for test, passed in through(differing).items() if passed}
        differing = passed_only_in(*told)
    for name, results in zip(("directly", "through Forebay"), told, strict=True):
        print(f"{KAFKA_GO} {name}: {sum(results.values())} of {len(results)} tests pass")
    for test in differing:
        print(f"directly only: {test}: {DIFFERENCES.get(test, 'unexpected')}")
    return 1 if set(differing) - set(DIFFERENCES) or not any(told[0].values()) else 0


def passed_only_in(these: dict[str, bool], those: dict[str, bool]) -> list[str]:
    return sorted(test for test, passed in these.items() if passed and not those.get(test))


def go_suite(folder: Path, module: str, port: int) -> Callable[[Iterable[str]], dict[str, bool]]:
    """A function that runs the module's tests, all or those named, with brokers at `port`: test → whether it passed."""
    fetched = subprocess.run(["go", "mod", "download", "-json", module], check=True, capture_output=True, text=True)
    shutil.copytree(json.loads(fetched.stdout)["Dir"], folder, copy_function=shutil.copyfile)
    for place in (folder, *folder.rglob("*")):
        place.chmod(0o755)
    for source in folder.glob("*_test.go"):
        source.write_text(re.sub(r"\b9092\b", str(port), source.read_text()))

    def run(tests: Iterable[str]) -> dict[str, bool]:
        only = "|".join(sorted({re.escape(test.partition("/")[0]) for test in tests}))
        command = [
            "go",
            "test",
            "-mod=mod",
            "-json",
            "-count=1",
            f"-timeout={SUITE_MINUTES}m",
            f"-run=^({only or '.*'})$",
            ".",
        ]
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "KAFKA_VERSION": KAFKA},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        (folder / "out.json").write_text(done.stdout)
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return {
            event["Test"]: event["Action"] == "pass"
            for event in events
            if event["Action"] in ("pass", "fail") and "Test" in event
        }

    return run


if __name__ == "__main__":
    sys.exit(main())
