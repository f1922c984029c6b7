"""Which Produce requests of v0 to v2 were taken from which client, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.kit.ancient import PROGRAMS
from tests.kit.paths import ANCIENT_CLIENT_VERSIONS
from tests.kit.spec import Codec, Keys, ProduceSpec

FOLDER: Final = Path(__file__).parent
TOPIC: Final = "golden"
CODECS: Final[tuple[Codec, ...]] = ("none", "gzip", "snappy", "lz4")
JAVA: Final = {f"java-{version}": version for version in ANCIENT_CLIENT_VERSIONS}
OTHERS: Final = {program.name: program for program in PROGRAMS}


def spec(client: str, codec: Codec) -> ProduceSpec:
    """Six records: text, null and empty values, with a key and without. The linger puts them into one request.

    kafka-python wants a key where there is no value.
    """
    keys: Keys = "keyed" if client.startswith("kafka-python") else "mixed"
    return ProduceSpec(TOPIC, "run", 6, keys, 6, "1", codec, contents="mixed", size=90, linger_ms=1_000)


CASES: Final = [
    *((name, codec) for name in JAVA for codec in CODECS),
    *((name, codec) for name, program in OTHERS.items() for codec in CODECS if program.can(spec(name, codec))),
]


def path(client: str, codec: str) -> Path:
    return FOLDER / f"{client}-{codec}.hex"


def read(client: str, codec: str) -> bytes:
    """The request without its size prefix."""
    return bytes.fromhex(path(client, codec).read_text())
