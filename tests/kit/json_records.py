"""Records as the kit's Java and Go programs write and read them: JSON, keys and values in base64."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from tests.kit.spec import ConsumedRecord


def record_of(line: Mapping[str, Any]) -> ConsumedRecord:
    return ConsumedRecord(
        topic=line["topic"],
        partition=line["partition"],
        offset=line["offset"],
        timestamp=line["timestamp"],
        key=_bytes(line["key"]),
        value=_bytes(line["value"]),
        headers=tuple((header["key"], _bytes(header["value"])) for header in line["headers"]),
    )


def text_of(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
