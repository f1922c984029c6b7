"""Go's clients behind kit's interface: franz-go and Sarama. go/newest is the program; each order goes to its stdin."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.kit.json_records import record_of, text_of
from tests.kit.paths import program
from tests.kit.spec import Ack, ClientFailed, ConsumedRecord, ProduceResult, ProduceSpec

_SECONDS = 60
_ACKS = {"0": 0, "1": 1, "all": -1}


class GoClient:
    def __init__(
        self, name: str, ca: Path | None = None, keystore: Path | None = None, login: tuple[str, str, str] | None = None
    ) -> None:
        """`ca`: with TLS, and who must have signed the brokers' certificates; `keystore`: a certificate to show.

        `login`: mechanism, user and password.
        """
        self.name = name
        told = dict(zip(("mechanism", "user", "password"), login or (), strict=False))
        self._secured = {"ca": str(ca or ""), "keystore": str(keystore or ""), **told}

    def can(self, spec: ProduceSpec) -> bool:
        places = spec.partition is not None or spec.timestamp_base is not None
        return not (places or spec.transactional_id or spec.abort or spec.rate)

    def produce(self, bootstrap: str, spec: ProduceSpec) -> ProduceResult:
        records = [
            {
                "key": text_of(spec.key(seq)),
                "value": text_of(spec.value(seq)),
                "headers": [{"key": key, "value": text_of(value)} for key, value in spec.record_headers(seq)],
            }
            for seq in range(spec.count)
        ]
        lines = self._run(
            "produce",
            bootstrap,
            topic=spec.topic,
            acks=_ACKS[spec.acks],
            codec=spec.compression,
            linger_ms=spec.linger_ms,
            idempotent=spec.idempotence,
            records=records,
        )
        failures = {line["seq"]: line["error"] for line in lines if "error" in line}
        return ProduceResult([Ack(**line) for line in lines if "error" not in line], failures)

    def consume(
        self, bootstrap: str, topic: str, group: str, count: int, read_committed: bool = False
    ) -> list[ConsumedRecord]:
        assert not read_committed, "not asked of Go's clients"
        return [record_of(line) for line in self._run("consume", bootstrap, topic=topic, group=group, count=count)]

    def brokers(self, bootstrap: str, topic: str) -> set[str]:
        (answer,) = self._run("brokers", bootstrap, topic=topic)
        return set(answer["addresses"])

    def close(self) -> None:
        pass

    def _run(self, verb: str, bootstrap: str, **told: Any) -> list[dict[str, Any]]:
        order = json.dumps({"client": self.name, "verb": verb, "bootstrap": bootstrap, **self._secured, **told})
        try:
            done = subprocess.run(
                [str(program("go-clients"))], input=order, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise ClientFailed(f"{self.name} {verb}: not done within {_SECONDS} s") from None
        if done.returncode:
            raise ClientFailed(f"{self.name} {verb}: {done.stderr[-2000:]}")
        return [json.loads(line) for line in done.stdout.splitlines()]
