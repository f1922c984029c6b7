"""Client batches to simulate with: of a given size and number of records, with nothing in them.

One record stands for all of a run's: what batches do with records is then done once a run, and their sizes are right
to the few bytes by which numbers grow. Such a batch counts as many records as it is said to have, and is never encoded.
"""

from __future__ import annotations

from functools import lru_cache

from librt.strings import BytesWriter

from forebay_codecs import compression
from forebay_codecs.record_batch import ClientBatch
from forebay_codecs.records import append_record


@lru_cache(maxsize=128)
def records_of(size: int, count: int) -> ClientBatch:
    """Records without a key, `size` bytes of them, or a byte less where no record has that length. At least 7."""
    section = _record(size)
    return ClientBatch(b"", section, section, compression.NONE, count, count, 0, 0)


def _record(size: int) -> bytes:
    value = max(0, size)
    while True:
        out = BytesWriter()
        append_record(out, 0, 0, bytes(value), 0, -1, 0, value)
        record = out.getvalue()
        if len(record) <= size or not value:
            return record
        value = max(0, value - (len(record) - size))
