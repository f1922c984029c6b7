"""`python -m tests.clients [NAME…]`: test suites of clients' authors, run directly and through Forebay, and compared.

Out: for each suite how many tests pass each way, and what passes directly only. Exit code 1 if that is anything but
what a suite names with its reason in `differences`. What fails both ways (it wants SASL, an older broker, …) says
nothing of Forebay and is only counted. A test that differs is run twice more before it counts: suites have races of
their own.

The suites are in the clients' Go modules, which `go` fetches. KafkaJS has none that can be had: scenarios of our own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.clients import kafkajs
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK

KAFKA = "4.3.1"
NODE = 1
BROKER_SETTINGS = {"message.max.bytes": "200000000", "group.share.delivery.count.limit": "10"}
"""As kafka-go's and franz-go's authors run their brokers; where its id is 0 the former take it for none."""
TIMES_MORE = 2
MOVED = "spreads records without a key over partitions in turn and counts them: Forebay may put them elsewhere (README)"


@dataclass(frozen=True)
class Suite:
    """`env` names an environment variable that the suite takes the broker's address from; without one, 9092 is
    where it looks, and is replaced in the sources."""

    name: str
    module: str
    package: str
    env: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    skip: str = "^$"
    differences: Mapping[str, str] = field(default_factory=dict)
    """Tests that pass directly only, and why that is as it should be."""


SUITES = (
    Suite(
        "kafka-go",
        "github.com/segmentio/kafka-go@v0.4.51",
        ".",
        settings={"KAFKA_VERSION": KAFKA},
        skip="^TestReaderConsumerGroup$/^consumer_group_commits_on_close$",  # it panics, and takes what follows with it
        differences={
            "TestClient": MOVED,
            "TestClient/retrieve_committed_offsets_for_a_consumer_group_and_topic": MOVED,
            "TestReaderConsumerGroup/consumer_group_reads_content_across_partitions": MOVED,
            "TestReaderConsumerGroup/consumer_group_rebalance": MOVED,
            "TestReaderConsumerGroup/rebalance_across_many_partitions_and_consumers": MOVED,
            "TestReaderConsumerGroup": MOVED,
        },
    ),
    Suite(
        "franz-go",
        "github.com/twmb/franz-go@v1.22.2",
        "./pkg/kgo",
        env="KGO_SEEDS",
        # Few records: with many, two cores do not come to the end within the time limit.
        settings={"KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "4000", "KGO_LOG_LEVEL": "none"},
    ),
)

Results = dict[str, bool]
"""Test → whether it passed."""


class Checkout:
    """A module's sources in a folder, to be tested against one broker."""

    def __init__(self, suite: Suite, folder: Path, port: int) -> None:
        self._suite, self._folder, self._port = suite, folder, port
        self._env = {**os.environ, **suite.settings}
        fetch = ["go", "mod", "download", "-json", suite.module]
        fetched = subprocess.run(fetch, check=True, stdout=subprocess.PIPE, text=True)
        shutil.copytree(json.loads(fetched.stdout)["Dir"], folder, copy_function=shutil.copyfile)
        for place in (folder, *folder.rglob("*")):  # as fetched they cannot be written
            place.chmod(0o755)
        if suite.env is not None:
            self._env[suite.env] = f"{LOOPBACK}:{port}"
        else:
            for source in (folder / suite.package).glob("*.go"):
                source.write_text(re.sub(r"\b9092\b", str(port), source.read_text()))

    def run(self, tests: Collection[str] = ()) -> Results:
        """All tests, or those named with all that is under them."""
        only = "|".join(sorted({re.escape(test.partition("/")[0]) for test in tests})) or ".*"
        command = [
            "go",
            "test",
            "-mod=mod",
            "-json",
            "-count=1",
            "-timeout=15m",
            f"-run=^({only})$",
            f"-skip={self._suite.skip}",
            self._suite.package,
        ]
        done = subprocess.run(
            command, cwd=self._folder, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        (self._folder / "said.json").write_text(done.stdout)
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        ends = [event for event in events if event["Action"] in ("pass", "fail") and "Test" in event]
        # The port may be part of a test's name.
        return {event["Test"].replace(str(self._port), "9092"): event["Action"] == "pass" for event in ends}


def main(names: Collection[str]) -> int:
    codes = [compare(suite) for suite in SUITES if not names or suite.name in names]
    if not names or "kafkajs" in names:
        codes.append(kafkajs.compare(KAFKA))
    return max(codes)


def compare(suite: Suite) -> int:
    """0 if all that passes directly passes through Forebay, but for named differences."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="client-suites-")))
        clusters = [
            stack.enter_context(KafkaCluster(KAFKA, 1, settings=BROKER_SETTINGS, first_node=NODE)) for _ in range(2)
        ]
        forebay = stack.enter_context(ForebayProcess(clusters[1].bootstrap, clusters[1].nodes))
        direct = Checkout(suite, folder / "direct", clusters[0].ports[NODE])
        # The broker's port and not that to bootstrap: suites compare what they are told with where they connected.
        through = Checkout(suite, folder / "through", forebay.node_port(NODE))
        with ThreadPoolExecutor(2) as pool:
            directly, proxied = pool.map(Checkout.run, (direct, through))
        for _ in range(TIMES_MORE):
            if differing := passed_only_in(directly, proxied):
                proxied |= {test: True for test, passed in through.run(differing).items() if passed}
    for way, results in (("directly", directly), ("through Forebay", proxied)):
        print(f"{suite.name} {way}: {sum(results.values())} of {len(results)} tests pass")
    differing = passed_only_in(directly, proxied)
    for test in differing:
        print(f"{suite.name} directly only: {test}: {suite.differences.get(test, 'unexpected')}", flush=True)
    return int(not any(directly.values()) or not suite.differences.keys() >= set(differing))


def passed_only_in(these: Results, those: Results) -> list[str]:
    return sorted(test for test, passed in these.items() if passed and not those.get(test))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
