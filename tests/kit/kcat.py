"""kcat behind kit's interface: text lines in, JSON out.

kcat tells partitions and offsets of what it delivered, but not of which line: its acknowledgements hold no places.
It sets no timestamps and gives every record of a run the same headers, so neither is asked of it.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.kit.paths import program
from tests.kit.spec import Ack, ClientFailed, ConsumedRecord, Headers, ProduceResult, ProduceSpec

_SECONDS = 60
# Between key and value; a line without it is a record without a key.
_DELIMITER = "\t"


class KcatClient:
    name = "kcat"

    def can(self, spec: ProduceSpec) -> bool:
        return not (spec.headers or spec.abort or spec.rate or spec.timestamp_base is not None)

    def produce(self, bootstrap: str, spec: ProduceSpec) -> ProduceResult:
        lines = [_line(spec.key(seq), spec.value(seq) or b"") for seq in range(spec.count)]
        settings = {
            "acks": spec.acks,
            "compression.codec": spec.compression,
            "enable.idempotence": str(spec.kept).lower(),
            "linger.ms": str(spec.linger_ms),
            **spec.props,
        }
        if spec.transactional_id is not None:
            settings["transactional.id"] = spec.transactional_id
        options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
        if spec.partition is not None:
            options += ["-p", str(spec.partition)]
        # -vvv names each delivery on stderr
        done = _kcat(["-P", "-b", bootstrap, "-t", spec.topic, "-K", _DELIMITER, "-vvv", *options], "".join(lines))
        delivered = done.stderr.count("% Message delivered")
        if spec.acks != "0" and delivered != spec.count:
            raise ClientFailed(f"kcat delivered {delivered} of {spec.count}:\n{done.stderr[-2000:]}")
        return ProduceResult([Ack(seq) for seq in range(spec.count)])

    def consume(
        self, bootstrap: str, topic: str, group: str, count: int, read_committed: bool = False
    ) -> list[ConsumedRecord]:
        isolation = "read_committed" if read_committed else "read_uncommitted"
        options = ["-X", "auto.offset.reset=earliest", "-X", f"isolation.level={isolation}"]
        done = _kcat(["-b", bootstrap, *options, "-G", group, "-J", "-q", "-c", str(count), topic])
        return [_record(json.loads(line)) for line in done.stdout.splitlines()]

    def brokers(self, bootstrap: str, topic: str) -> set[str]:
        done = _kcat(["-b", bootstrap, "-L", "-J", "-t", topic])
        return {broker["name"] for broker in json.loads(done.stdout)["brokers"]}

    def close(self) -> None:
        pass


def _kcat(arguments: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(program("kcat")), *arguments]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired as late:
        raise ClientFailed(f"kcat {arguments}: not done within {_SECONDS} s; said {late.stderr!r}") from None
    if done.returncode != 0:
        raise ClientFailed(f"kcat {arguments} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done


def _line(key: bytes | None, value: bytes) -> str:
    return f"{key.decode()}{_DELIMITER}{value.decode()}\n" if key is not None else f"{value.decode()}\n"


def _record(line: dict[str, Any]) -> ConsumedRecord:
    return ConsumedRecord(
        topic=line["topic"],
        partition=line["partition"],
        offset=line["offset"],
        timestamp=line["ts"],
        key=_bytes(line["key"]),
        value=_bytes(line["payload"]),
        headers=_headers(line.get("headers", [])),
    )


def _headers(flat: list[str | None]) -> Headers:
    """kcat lists names and values in turn."""
    return tuple((name or "", _bytes(value)) for name, value in zip(flat[::2], flat[1::2], strict=True))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
