"""Producers of other families that still speak Produce v0 to v2: Sarama and librdkafka of 2018, and kafka-python told
to be old."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.kit.json_records import text_of
from tests.kit.paths import OLD_KAFKA_PYTHON, OLD_LIBRDKAFKA, program
from tests.kit.spec import Ack, ClientFailed, ProduceResult, ProduceSpec

_SECONDS = 90
_ACKS = {"0": 0, "1": 1, "all": -1}
_CODECS = ("none", "gzip", "snappy", "lz4")

_KIT = Path(__file__).parent


def old_librdkafka() -> list[str]:
    """The command; what it is told on stdin, and says, is in its module."""
    return [sys.executable, "-P", str(_KIT / "old_librdkafka.py"), str(OLD_LIBRDKAFKA / "confluent_kafka" / ".libs")]


class AncientProgram:
    """`version`: what it takes its brokers for. A program that is told all on stdin, and says what became of it."""

    def __init__(self, family: str, version: str) -> None:
        self.name = f"{family}-{version}"
        self._family = family
        self._version = version

    def can(self, spec: ProduceSpec) -> bool:
        """Sarama's LZ4 wants brokers of 0.10; kafka-python a library of its own for snappy, and a key or a value."""
        if self._family == "librdkafka":
            return True
        if self._family == "sarama":
            return spec.compression != "lz4" or self._version.startswith("0.10")
        return spec.compression != "snappy" and (spec.contents == "text" or spec.keys == "keyed")

    def produce(self, bootstrap: str, spec: ProduceSpec) -> ProduceResult:
        order = {
            "bootstrap": bootstrap,
            "version": self._version,
            "topic": spec.topic,
            "acks": _ACKS[spec.acks],
            "codec": _CODECS.index(spec.compression),
            "linger_ms": spec.linger_ms,
            "props": dict(spec.props),
            "records": [
                {"key": text_of(spec.key(seq)), "value": text_of(spec.value(seq))} for seq in range(spec.count)
            ],
        }
        ended = subprocess.run(
            self._command(), input=json.dumps(order), capture_output=True, text=True, timeout=_SECONDS, env=self._env()
        )
        if ended.returncode:
            raise ClientFailed(f"{self.name}: {ended.stderr[-2000:]}")
        acks: list[Ack] = []
        failures: dict[int, str] = {}
        for line in map(json.loads, ended.stdout.splitlines()):
            if "error" in line:
                failures[line["seq"]] = line["error"]
            else:
                acks.append(Ack(**line))
        return ProduceResult(acks, failures)

    def _command(self) -> list[str]:
        if self._family == "sarama":
            return [str(program("sarama-produce"))]
        if self._family == "librdkafka":
            return old_librdkafka()
        # -P: the kit has a module of the name `kafka` beside the program.
        return [sys.executable, "-P", str(_KIT / "old_kafka_python.py")]

    def _env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(OLD_KAFKA_PYTHON), "PYTHONWARNINGS": "ignore"}


PROGRAMS = (
    *(AncientProgram("sarama", version) for version in ("0.8.2.2", "0.10.2.0")),
    *(AncientProgram("kafka-python", version) for version in ("0.8.2", "0.9", "0.10")),
    *(AncientProgram("librdkafka", version) for version in ("0.8.2", "0.9.0")),
)
