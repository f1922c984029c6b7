"""Produces with the kafka-python that is first on the path, told to be as old as its api_version says. By subprocess.

In: one line of JSON on stdin as ancient.py writes it. Out: a line of JSON a record, as the other programs print it.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from kafka import KafkaProducer  # type: ignore[import-untyped]

CODECS = (None, "gzip", "snappy", "lz4")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def main() -> None:
    wanted: dict[str, Any] = json.load(sys.stdin)
    producer = KafkaProducer(
        bootstrap_servers=wanted["bootstrap"],
        api_version=tuple(map(int, wanted["version"].split("."))),
        client_id=f"kafka-python-{wanted['version']}",
        acks={-1: "all"}.get(wanted["acks"], wanted["acks"]),
        compression_type=CODECS[wanted["codec"]],
        linger_ms=wanted["linger_ms"],
        retries=3,
        **wanted["props"],
    )
    sent = [
        producer.send(wanted["topic"], key=_bytes(each["key"]), value=_bytes(each["value"]))
        for each in wanted["records"]
    ]
    producer.flush(60)
    for seq, future in enumerate(sent):
        try:
            told = future.get(60)
        except Exception as error:  # whatever the client's failure is, it is what there is to say
            print(json.dumps({"seq": seq, "error": repr(error)}))
        else:
            print(json.dumps({"seq": seq, "partition": told.partition, "offset": told.offset}))
    producer.close()


main()
