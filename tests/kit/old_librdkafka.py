"""Produces with librdkafka 0.11.6, of 2018, as the extensions of PHP and Node.js of that time do: its own C interface,
over what its wheel for Python 3.6 brings. By subprocess.

In: the folder of that wheel, and one line of JSON on stdin as ancient.py writes it; an empty `version` leaves what the
brokers are to their answers, and `pause_s` lies between two records. Out: a line of JSON a record, as the other
programs print it, as soon as its fate is known.
"""

from __future__ import annotations

import base64
import ctypes
import json
import sys
from pathlib import Path
from typing import Any, Final

CODECS: Final = ("none", "gzip", "snappy", "lz4")
ITS_OWN: Final = ("libz-*", "libcrypto-*", "libssl-*")
"""In the order in which they need each other."""
PRODUCER: Final = 0
COPIES: Final = 2
END, TOPIC, PARTITION, VALUE, KEY, SEQ, FLAGS, TIMESTAMP, HEADER = 0, 1, 3, 4, 5, 6, 7, 8, 9
"""rd_kafka_vtype_t: of what the next arguments of rd_kafka_producev are."""
ANY_PARTITION: Final = -1
FLUSH_MS: Final = 60_000


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("error", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("seq", ctypes.c_void_p),
    )


def _library(folder: Path) -> Any:
    for name in ITS_OWN:
        (path,) = folder.glob(name)
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(folder / "librdkafka.so.1"))
    for name in ("rd_kafka_conf_new", "rd_kafka_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_err2str.restype = ctypes.c_char_p
    return library


def _settings(wanted: dict[str, Any]) -> dict[str, str]:
    version = wanted["version"]
    return {
        "bootstrap.servers": wanted["bootstrap"],
        "client.id": f"librdkafka-{version or '0.11.6'}",
        "queue.buffering.max.ms": str(wanted["linger_ms"]),
        "compression.codec": CODECS[wanted["codec"]],
        "request.required.acks": str(wanted["acks"]),
        "produce.offset.report": "true",
        **({"api.version.request": "false", "broker.version.fallback": version} if version else {}),
        **wanted["props"],
    }


def _bytes(kind: int, text: str | None) -> tuple[ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]:
    value = None if text is None else base64.b64decode(text)
    return ctypes.c_int(kind), ctypes.c_char_p(value), ctypes.c_size_t(len(value or b""))


def main() -> None:
    library = _library(Path(sys.argv[1]))
    wanted: dict[str, Any] = json.loads(sys.stdin.readline())
    why = ctypes.create_string_buffer(512)
    config = ctypes.c_void_p(library.rd_kafka_conf_new())
    for name, value in _settings(wanted).items():
        if library.rd_kafka_conf_set(config, name.encode(), value.encode(), why, ctypes.c_size_t(len(why))):
            sys.exit(why.value.decode())

    def told(_: object, message: Any, __: object) -> None:
        it = message[0]
        fate: dict[str, object] = {"partition": it.partition, "offset": it.offset}
        if it.error:
            fate = {"error": library.rd_kafka_err2str(it.error).decode()}
        print(json.dumps({"seq": (it.seq or 0) - 1, **fate}), flush=True)

    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Message), ctypes.c_void_p)(told)
    library.rd_kafka_conf_set_dr_msg_cb(config, callback)
    topics = ctypes.c_void_p(library.rd_kafka_new(PRODUCER, config, why, ctypes.c_size_t(len(why))))
    for seq, record in enumerate(wanted["records"]):
        words: list[Any] = [
            *(ctypes.c_int(TOPIC), ctypes.c_char_p(wanted["topic"].encode())),
            *(ctypes.c_int(PARTITION), ctypes.c_int(record.get("partition", ANY_PARTITION))),
            *(ctypes.c_int(FLAGS), ctypes.c_int(COPIES)),
            *_bytes(KEY, record["key"]),
            *_bytes(VALUE, record["value"]),
            *(ctypes.c_int(SEQ), ctypes.c_void_p(seq + 1)),
        ]
        if "timestamp" in record:
            words += [ctypes.c_int(TIMESTAMP), ctypes.c_int64(record["timestamp"])]
        for name, value in record.get("headers", ()):
            _, data, size = _bytes(HEADER, value)
            words += [ctypes.c_int(HEADER), ctypes.c_char_p(name.encode()), data, size]
        if error := library.rd_kafka_producev(topics, *words, ctypes.c_int(END)):
            print(json.dumps({"seq": seq, "error": library.rd_kafka_err2str(error).decode()}), flush=True)
        library.rd_kafka_poll(topics, int(1000 * wanted.get("pause_s", 0)))
    library.rd_kafka_flush(topics, FLUSH_MS)


main()
