"""Which Produce requests were taken from which client, and what is in them: known from their ProduceSpec alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.kit.spec import CODECS, Codec, ProduceSpec

FOLDER: Final = Path(__file__).parent
CLIENTS: Final = ("java-1.1.1", "java-2.8.2", "java-4.3.1", "confluent", "aiokafka", "kafka-python")
CANNOT: Final[dict[str, tuple[Codec, ...]]] = {"java-1.1.1": ("zstd",), "kafka-python": ("snappy",)}

TOPIC: Final = "golden"
SPEC: Final = ProduceSpec(
    topic=TOPIC,
    name="run",
    count=4,
    key_count=3,
    acks="1",
    size=90,  # long enough for a length of two bytes, and for compression to pay
    partition=0,
    timestamp_base=1_700_000_000_000,
    # Longer than anybody's pause between two sends, so that all records are in one batch; Java and librdkafka are
    # flushed at once all the same.
    linger_ms=1_000,
)


def specs(client: str) -> dict[str, ProduceSpec]:
    """By name of the case: headers and both kinds of keys with every codec, the other kinds without compression."""
    # kafka-python refuses headers without a value.
    mixed = replace(SPEC, keys="mixed", headers=True, null_header=client != "kafka-python")
    found = {
        f"{codec}-mixed": replace(mixed, compression=codec) for codec in CODECS if codec not in CANNOT.get(client, ())
    }
    found["none-keyed"] = replace(SPEC, keys="keyed", acks="all")
    found["none-null"] = replace(SPEC, keys="null", acks="0")
    if client in ("java-4.3.1", "confluent"):
        found["none-idempotent"] = replace(SPEC, keys="keyed", acks="all", idempotence=True)
    return found


def path(client: str, case: str) -> Path:
    return FOLDER / f"{client}-{case}.hex"


def read(client: str, case: str) -> bytes:
    """The request without its size prefix."""
    return bytes.fromhex(path(client, case).read_text())
