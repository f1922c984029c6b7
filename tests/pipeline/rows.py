"""Journal rows for tests: what matters is given, the rest is plausible. And journals on disk made of them."""

from __future__ import annotations

import datetime
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import xxhash
import zstandard

from forebay_policies.journal_rows import (
    FILE_SUFFIX,
    BatchRow,
    ChoiceRow,
    GaugeRow,
    LedgerPart,
    LedgerRow,
    MetadataRow,
    ObservedRow,
    RackRow,
    Row,
)

START_US = 1_795_000_000_000_000
"""A moment in November 2026, where tests begin."""

R = TypeVar("R", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()


def _process(given: dict[str, object]) -> str:
    """Each worker is one, and begins anew where another start is given."""
    return f"here-{given.get('worker', 0)}-{given.get('started_us', START_US)}"


def _row(kind: type[R], given: dict[str, object], **plausible: object) -> R:
    return kind(**{"time_us": START_US, "worker": 0, "process": _process(given), **plausible, **given})


class Numbering:
    """Numbers the rows of each process and kind as the proxy does."""

    def __init__(self) -> None:
        self._last: Counter[tuple[str, type[Row]]] = Counter()

    def of(self, rows: Iterable[Row]) -> list[Row]:
        """The rows with a `seq`, those that have one as they are."""
        return [self._numbered(row) for row in rows]

    def _numbered(self, row: Row) -> Row:
        if row.seq is not None:
            return row
        which = row.process, type(row)
        self._last[which] += 1
        return msgspec.structs.replace(row, seq=self._last[which])


def batch_row(**given: object) -> BatchRow:
    return _row(
        BatchRow,
        given,
        topic="t",
        partition=0,
        leader=0,
        reason="linger",
        records=10,
        bytes=1000,
        runs=2,
        acks=1,
        codec=0,
        movable=True,
        tries=0,
        linger_us=500,
        upstream_us=1500,
        load=1000,
        fate="acknowledged",
        error_code=0,
        base_offset=0,
    )


def choice_row(**given: object) -> ChoiceRow:
    return _row(
        ChoiceRow,
        given,
        topic="t",
        partition=0,
        partitions=3,
        available=3,
        loaded=0,
        loaded_partitions=[],
        loads=[],
    )


def metadata_row(**given: object) -> MetadataRow:
    return _row(
        MetadataRow,
        given,
        topics=1,
        ids=0,
        creates=False,
        took_us=2000,
        request_bytes=40,
        response_bytes=200,
        error="",
    )


def observed_row(**given: object) -> ObservedRow:
    """One that was answered 1.5 ms after it came."""
    received_us = given.get("received_us", START_US)
    assert isinstance(received_us, int)
    return _row(
        ObservedRow,
        {"time_us": received_us + 1500, **given},
        number=1,
        received_us=received_us,
        connection=1,
        client_id="app",
        host="10.0.0.1",
        version=7,
        topic="t",
        partition=0,
        partitions=3,
        leader=0,
        acks=1,
        codec=0,
        records=1,
        bytes=100,
        null_key_records=1,
        null_key_bytes=100,
        chosen=1,
        opens=1,
        took_us=1400,
        error_code=0,
    )


def gauge_row(**given: object) -> GaugeRow:
    return _row(
        GaugeRow,
        given,
        started_us=START_US - 1_000_000,
        pool_bytes=33_554_432,
        pool_available_bytes=33_554_432,
        pool_waiters=0,
        queued_bytes=0,
        queued_batches=0,
        queued_request_bytes=0,
        in_flight_requests=0,
        client_connections=1,
        upstream_connections=3,
        pool_waits_total=0,
        metadata_hits_total=0,
        metadata_misses_total=0,
        metadata_waits_total=0,
        rows_dropped_total=0,
    )


def rack_row(**given: object) -> RackRow:
    return _row(RackRow, given, topic="t", same_bytes=0, other_bytes=0, unknown_bytes=0)


def content_crcs(records: Sequence[tuple[bytes | None, bytes | None]]) -> tuple[int, int, int]:
    """(crc, first_crc, first_xxh64) of (key, value) pairs, from the description in LedgerPart alone."""
    framed = [_framed(key) + _framed(value) for key, value in records]
    each = [zlib.crc32(content) for content in framed]
    first_xxh64 = int.from_bytes(xxhash.xxh64_digest(framed[0], 42), "big", signed=True)
    return zlib.crc32(b"".join(crc.to_bytes(4, "big") for crc in each)), each[0], first_xxh64


def keys_of(records: Sequence[tuple[bytes | None, bytes | None]]) -> dict[str, list[int]]:
    """LedgerPart's `keys` and `tombstones` of (key, value) pairs, from its description alone."""
    keys = [xxhash.xxh64_digest(key or b"", 42) for key, _ in records]
    return {
        "keys": [int.from_bytes(key, "big", signed=True) for key in keys],
        "tombstones": [number for number, (_, value) in enumerate(records) if value is None],
    }


def _framed(field: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if field is None else len(field).to_bytes(4, "big") + field


def ledger_part(records: Sequence[tuple[bytes | None, bytes | None]], **given: object) -> LedgerPart:
    """A part that holds these (key, value) pairs; `partition` and `base_offset` 0 unless given."""
    crc, first_crc, first_xxh64 = content_crcs(records)
    return LedgerPart(
        **{
            "partition": 0,
            "base_offset": 0,
            "records": len(records),
            "bytes": sum(len(key or b"") + len(value or b"") for key, value in records),
            "movable": records[0][0] is None,
            "crc": crc,
            "first_crc": first_crc,
            "first_xxh64": first_xxh64,
            **given,
        }  # type: ignore[arg-type]
    )


def sized_part(
    records: int, size: int, partition: int = 0, *, movable: bool = True, base_offset: int = -1
) -> LedgerPart:
    """A part of so many records and bytes, whose content nobody looks at."""
    return LedgerPart(
        partition=partition,
        base_offset=base_offset,
        records=records,
        bytes=size,
        movable=movable,
        crc=0,
        first_crc=0,
    )


def ledger_row(parts: list[LedgerPart], **given: object) -> LedgerRow:
    return _row(
        LedgerRow,
        given,
        time_us=START_US + 2000,
        process="here-1",
        number=0,
        received_us=START_US,
        connection=0,
        client_id="producer-1",
        host="127.0.0.1",
        version=3,
        topic="t",
        partition=parts[0].partition if parts else 0,
        acks=1,
        reason="null_key",
        records=sum(part.records for part in parts),
        stamped=0,
        parts=parts,
        base_offset=-1,
        error_code=0,
    )


def json_lines(rows: Iterable[Row]) -> bytes:
    return b"".join(_encoder.encode(row) + b"\n" for row in rows)


def write_journal(folder: Path, rows: Iterable[Row], name: str = "a") -> Path:
    """One closed file with these rows, where the first one's time puts it; its path."""
    rows = list(rows)
    return write_lines(folder, json_lines(rows), rows[0].time_us, name)


def write_lines(folder: Path, lines: bytes, time_us: int = START_US, name: str = "a") -> Path:
    """A closed file with just these bytes before compression."""
    at = datetime.datetime.fromtimestamp(time_us / 1e6, datetime.UTC)
    place = folder / f"dt={at:%Y-%m-%d}" / f"hour={at:%H}"
    place.mkdir(parents=True, exist_ok=True)
    path = place / (name + FILE_SUFFIX)
    path.write_bytes(zstandard.compress(lines))
    return path
