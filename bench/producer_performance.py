"""Kafka's own load: org.apache.kafka.tools.ProducerPerformance of an old or a new client.

    fetch()
    result = produce("2.8.2", proxy.bootstrap, TOPIC, Load(records=61_440, rate=2_048, size=512))

In: a client's version and what to send; records have no key. Out: what it says at the end. It counts whole
milliseconds from `send` to the acknowledgement, so small percentiles are coarse; averages are not.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.kit.paths import JARS, STAMPS, classpath
from tests.kit.setup import DEPENDENCY_PLUGIN, run, step

NEWEST: Final = "4.3.1"
"""Comes with the brokers."""

_OLD: Final = ("2.3.1", "2.8.2")
_PARSER: Final = "net.sourceforge.argparse4j:argparse4j:0.7.0"
# As the kit's clients: the first compiler only, which within a run is the faster one.
_FLAGS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto")
_LOG_LEVEL: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
_SUMMARY: Final = re.compile(
    r"(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec.*, (?P<average>[\d.]+) ms avg latency, [\d.]+ ms max"
    r" latency, (?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99.9th"
)
_REQUESTS: Final = re.compile(r"^producer-metrics:request-total\S*\s*: ([\d.]+)", re.MULTILINE)


class Load(NamedTuple):
    """`rate` in records/s, −1: as fast as they go. `props` are the producer's, over acks=1 and linger.ms=0."""

    records: int
    rate: int
    size: int
    props: Mapping[str, str] = {}


class Result(NamedTuple):
    """Latencies in ms; `requests` are all that the client sent, a handful for metadata included."""

    records: int
    rate: float
    average: float
    p50: float
    p95: float
    p99: float
    p999: float
    requests: float


class LoadFailed(Exception):
    """Holds the command and the end of what it printed."""


def fetch() -> None:
    """Half a megabyte for each old client, beside the kit's jars; nothing where it is there already."""
    for version in _OLD:
        name = f"tools-{version}"
        artifacts = (f"org.apache.kafka:kafka-tools:{version}", _PARSER)
        step(name, repr(artifacts), lambda name=name, artifacts=artifacts: _copy(name, artifacts))  # type: ignore[misc]


def _copy(name: str, artifacts: tuple[str, ...]) -> None:
    (JARS / name).mkdir(parents=True, exist_ok=True)
    STAMPS.mkdir(parents=True, exist_ok=True)
    for artifact in artifacts:
        goal = f"{DEPENDENCY_PLUGIN}:copy"
        run(["mvn", "-B", "-q", goal, f"-Dartifact={artifact}", f"-DoutputDirectory={JARS / name}"])


def command(version: str, bootstrap: str, topic: str, load: Load) -> list[str]:
    folders = [f"broker-{version}"] if version == NEWEST else [f"tools-{version}", f"clients-{version}"]
    jars = ":".join(str(jar) for folder in folders for jar in classpath(folder))
    props = {"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": "0", **load.props}
    words = {"--topic": topic, "--num-records": load.records, "--throughput": load.rate, "--record-size": load.size}
    return [
        *("java", *_FLAGS, _LOG_LEVEL, "-cp", jars, "org.apache.kafka.tools.ProducerPerformance", "--print-metrics"),
        *(str(word) for pair in words.items() for word in pair),
        *("--producer-props", *(f"{name}={value}" for name, value in props.items())),
    ]


def produce(version: str, bootstrap: str, topic: str, load: Load) -> Result:
    """Sends all of `load` and waits for what becomes of it. Raises LoadFailed where not all was acknowledged."""
    return start(version, bootstrap, topic, load).result()


def start(version: str, bootstrap: str, topic: str, load: Load) -> Running:
    return Running(command(version, bootstrap, topic, load), load)


class Running:
    """A load under way."""

    def __init__(self, words: list[str], load: Load) -> None:
        self._words = words
        self._load = load
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def result(self) -> Result:
        seconds = 120 + (self._load.records / self._load.rate if self._load.rate > 0 else 0)
        try:
            printed, _ = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise LoadFailed(f"{' '.join(self._words)}\nwas not done after {seconds:.0f} s") from None
        found, requests = _SUMMARY.search(printed), _REQUESTS.search(printed)
        if found is None or requests is None or self._process.returncode or "Exception" in printed:
            raise LoadFailed(f"{' '.join(self._words)}\nended with {self._process.returncode}:\n{printed[-4000:]}")
        numbers = {name: float(value) for name, value in found.groupdict().items()}
        return Result(**{**numbers, "records": int(numbers["records"])}, requests=float(requests[1]))  # type: ignore[arg-type]
