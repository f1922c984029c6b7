"""Client batches for the simulation: of a given size and number of records, with no content.

One record stands for all records of a run, so a simulated batch does its work once per run; sizes are right to the few
bytes by which varints grow. Such a batch counts the records that it is said to have, and is never encoded.
"""

from __future__ import annotations

from functools import lru_cache

from librt.strings import BytesWriter

from forebay_codecs import compression
from forebay_codecs.record_batch import ClientBatch
from forebay_codecs.records import append_record


@lru_cache(maxsize=128)
def records_of(size: int, count: int) -> ClientBatch:
    """`count` records without a key, `size` bytes together (at least 7), or a byte less if no record has that size."""
    section = _record(size)
    return ClientBatch(
        header=b"",
        records=section,
        section=section,
        codec=compression.NONE,
        record_count=count,
        null_keys=count,
        base_timestamp=0,
        max_timestamp=0,
    )


def _record(size: int) -> bytes:
    value = max(0, size)
    while True:
        out = BytesWriter()
        append_record(out, 0, 0, bytes(value), 0, -1, 0, value)
        record = out.getvalue()
        if len(record) <= size or not value:
            return record
        value = max(0, value - (len(record) - size))
