"""Java clients of any version: one JVM a version, kept for as long as the JavaClient is, fed commands on stdin.

Java's side is in `java/`: Session reads the commands and names the verbs. A JVM that does not answer in time is
killed, and the next command starts a new one.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from tests.kit.json_records import record_of
from tests.kit.paths import CLASSES, classpath
from tests.kit.spec import CODECS, Ack, ClientFailed, Codec, ConsumedRecord, ProduceResult, ProduceSpec

_FLAGS = [
    "-Xmx256m",
    "-Xms32m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
]
_LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
_ANSWER_SECONDS = 200
_READING_MS = 60_000


class JavaClient:
    _PRODUCES = "Produce"

    def __init__(self, version: str, props: Mapping[str, str] | None = None, more: Iterable[Path] = ()) -> None:
        """`props`: settings of everything that it starts, such as those of TLS. `more`: jars, for what is optional."""
        self._more = list(more)
        self.version = version
        self._props = {f"prop.{name}": value for name, value in (props or {}).items()}
        self.name = f"java-{version}"
        # kafka-clients learned zstd in 2.1
        newer = not version.startswith("0.") and version >= "2.1"
        self.codecs: tuple[Codec, ...] = CODECS if newer else CODECS[:-1]
        self._session: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None

    def can(self, spec: ProduceSpec) -> bool:
        return spec.compression in self.codecs

    def produce(self, bootstrap: str, spec: ProduceSpec) -> ProduceResult:
        acks: list[Ack] = []
        failures: dict[int, str] = {}
        stats: dict[str, float] = {}
        for line in self._ask(self._PRODUCES, self._produce_arguments(bootstrap, spec)):
            if "error" in line:
                failures[line["seq"]] = line["error"]
            elif "seq" in line:
                acks.append(Ack(**line))
            elif "stats" in line:
                stats = line["stats"]
        return ProduceResult(acks, failures, stats)

    def produce_live(
        self, bootstrap: str, spec: ProduceSpec, until: Path, seconds: float
    ) -> Iterator[Mapping[str, Any]]:
        """What Produce.java says, line by line as it comes. Sends until the file `until` is there or `spec.count` sent.

        Killed after `seconds`.
        """
        arguments = {**self._produce_arguments(bootstrap, spec), "until": until, "live": "true"}
        return self._lines(self._PRODUCES, arguments, seconds)

    def consume(
        self, bootstrap: str, topic: str, group: str, count: int, read_committed: bool = False
    ) -> list[ConsumedRecord]:
        isolation = "read_committed" if read_committed else "read_uncommitted"
        arguments = {"prop.isolation.level": isolation, **_of_reading(bootstrap, topic, group, count)}
        return self._records("Consume", arguments)

    def consume_shared(self, bootstrap: str, topic: str, group: str, count: int) -> list[ConsumedRecord]:
        """As a member of a share group (KIP-932); version 4.2 and newer."""
        return self._records("ShareConsume", _of_reading(bootstrap, topic, group, count))

    def streams(self, bootstrap: str, source: str, sinks: Mapping[str, str], count: int, **props: object) -> None:
        """Runs java/streams until it has read `count` records of `source`; needs its class and jars in `more`.

        `sinks`: its name for a topic → the topic.
        """
        settings = {f"prop.{name}": value for name, value in props.items()}
        list(self._ask("Streams", {"bootstrap": bootstrap, "in": source, "count": count, **sinks, **settings}))

    def brokers(self, bootstrap: str, topic: str) -> set[str]:
        """The addresses at which the client believes the topic's replicas to be."""
        answer = next(self._ask("Brokers", {"bootstrap": bootstrap, "topic": topic}))
        return set(answer["addresses"])

    def admin(self, bootstrap: str, op: str, name: str = "", **arguments: object) -> Any:
        """An operation of java/admin/Admin.java; version 3.2.3 and newer."""
        return next(self._ask("Admin", {"bootstrap": bootstrap, "op": op, "name": name, **arguments}))["result"]

    def parity(self, bootstrap: str, of: str, **arguments: object) -> Any:
        """The outcome of a scenario of java/parity, or their names; version 3.9.2 and newer."""
        return next(self._ask("Parity", {"bootstrap": bootstrap, "of": of, **arguments}))["result"]

    def principal_names(self, rules: str, *names: str | bytes) -> list[tuple[str | None, str | None]] | None:
        """(distinguished name, what Kafka calls its owner) of names, as text or as DER; None for what is refused.

        None instead of the list for rules that are refused. Version 4.3.1.
        """
        found: list[tuple[str | None, str | None]] = []
        texts = [{"name": name} for name in names if isinstance(name, str)]
        ders = [name.hex() for name in names if isinstance(name, bytes)]
        for arguments in [*texts, *([{"names": ",".join(ders)}] if ders else [])]:
            for line in self._ask("PrincipalName", {"rules": rules, **arguments}):
                if "rules" in line:
                    return None
                found.append((line["dn"], line["name"]))
        return found

    @property
    def pid(self) -> int | None:
        return self._session.pid if self._session is not None else None

    def close(self) -> None:
        if self._session is not None:
            self._session.kill()
            self._session.communicate()
            self._session = None

    def _produce_arguments(self, bootstrap: str, spec: ProduceSpec) -> dict[str, object]:
        return _produce_arguments(bootstrap, spec)

    def _records(self, verb: str, arguments: Mapping[str, object]) -> list[ConsumedRecord]:
        return [record_of(line) for line in self._ask(verb, arguments)]

    def _ask(self, verb: str, arguments: Mapping[str, object]) -> Iterator[dict[str, Any]]:
        """The answer's lines without its last. The whole answer is read before the first line is given."""
        return iter(list(self._lines(verb, arguments, _ANSWER_SECONDS)))

    def _lines(self, verb: str, arguments: Mapping[str, object], seconds: float) -> Iterator[dict[str, Any]]:
        arguments = {**arguments, **self._props}
        session = self._start()
        assert session.stdin is not None
        assert session.stdout is not None
        words = [f"{name}={quote(str(value), safe='')}" for name, value in arguments.items()]
        watchdog = threading.Timer(seconds, session.kill)
        watchdog.start()
        try:
            session.stdin.write(" ".join([verb, *words]) + "\n")
            session.stdin.flush()
            for text in session.stdout:
                line = json.loads(text)
                if "done" in line:
                    return
                if "failed" in line:
                    raise ClientFailed(f"{self.name} {verb} {dict(arguments)}: {line['failed']}\n{self._said()}")
                yield line
        finally:
            watchdog.cancel()
        self.close()
        raise ClientFailed(f"{self.name} {verb} {dict(arguments)}: gone or too slow\n{self._said()}")

    def _start(self) -> subprocess.Popen[str]:
        if self._session is None or self._session.poll() is not None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the JVM)
            jars = ":".join(map(str, [*classpath(f"clients-{self.version}"), CLASSES, *self._more]))
            self._session = subprocess.Popen(
                ["java", *_FLAGS, _LOG_LEVEL, "-cp", jars, "kit.Session"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        return self._session

    def _said(self) -> str:
        """The end of the JVM's stderr: the client's own warnings."""
        if self._errors is None:
            return ""
        self._errors.seek(0)
        return self._errors.read()[-3_000:].decode(errors="replace")


class AncientJavaClient(JavaClient):
    """Before 0.11: message formats v0 and v1, no headers, no timestamps of one's own, no idempotence."""

    _PRODUCES = "AncientProduce"

    def _produce_arguments(self, bootstrap: str, spec: ProduceSpec) -> dict[str, object]:
        arguments = super()._produce_arguments(bootstrap, spec)
        del arguments["prop.enable.idempotence"]
        return {**arguments, "contents": spec.contents}


def _of_reading(bootstrap: str, topic: str, group: str, count: int) -> dict[str, object]:
    return {"bootstrap": bootstrap, "topic": topic, "group": group, "count": count, "timeout_ms": _READING_MS}


def _produce_arguments(bootstrap: str, spec: ProduceSpec) -> dict[str, object]:
    arguments: dict[str, object] = {
        "bootstrap": bootstrap,
        "topic": spec.topic,
        "name": spec.name,
        "count": spec.count,
        "keys": spec.keys,
        "key_count": spec.key_count,
        "size": spec.size,
        "rate": spec.rate,
        "headers": str(spec.headers).lower(),
        "null_header": str(spec.null_header).lower(),
        "abort": str(spec.abort).lower(),
        "prop.acks": spec.acks,
        "prop.compression.type": spec.compression,
        "prop.linger.ms": spec.linger_ms,
        # Said always: since 3.0 a producer is idempotent unless told otherwise.
        "prop.enable.idempotence": str(spec.kept).lower(),
    }
    if spec.timestamp_base is not None:
        arguments["timestamp_base"] = spec.timestamp_base
    if spec.partition is not None:
        arguments["partition"] = spec.partition
    if spec.transactional_id is not None:
        arguments["transactional"] = "true"
        arguments["prop.transactional.id"] = spec.transactional_id
    arguments.update({f"prop.{name}": value for name, value in spec.props.items()})
    return arguments
