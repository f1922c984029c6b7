"""Whose output `compact` writes as Parquet: that of one checkpoint.

Spark's file sink numbers its batches, and leaves out each one whose number it has: how a batch that is done again is
written once. A query with another checkpoint begins at 0, so what it reads first would be left out for good, though its
checkpoint has it as read. In: an output and a checkpoint. Out: CannotRun where they do not belong together.

    OUTPUT/_spark_metadata/4    Spark's: batch 4 is written
    OUTPUT/_query               ours: the id of the query that writes here, as in CHECKPOINT/metadata
    CHECKPOINT/offsets/4        Spark's: batch 4 has begun, which comes first
"""

from __future__ import annotations

from typing import Final

import msgspec

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.storage import Storage

_OWNER: Final = "_query"


def query_id(storage: Storage, checkpoint: str) -> str | None:
    """The checkpoint's own name: another one begins anew, even in its place. None before its query has started."""
    return _id_in(storage, checkpoint, "metadata")


def check_owner(storage: Storage, output: str, checkpoint: str) -> None:
    """Raises CannotRun if the output has batches that the query with that checkpoint did not write."""
    written = _last_batch(storage, f"{output.rstrip('/')}/_spark_metadata")
    if written is None:
        return
    begun = _last_batch(storage, f"{checkpoint.rstrip('/')}/offsets")
    owner = _id_in(storage, output, _OWNER)
    # Outputs of earlier versions do not name theirs.
    if begun is None or begun < written or owner not in (None, query_id(storage, checkpoint)):
        raise CannotRun(
            f"{output} has batches that were not written with the checkpoint {checkpoint}: what that one reads first "
            "would be left out. Give the checkpoint that they were written with, or another output."
        )


def own(storage: Storage, output: str, query: str) -> None:
    """Note that the query of that id writes to the output."""
    if _id_in(storage, output, _OWNER) != query:
        storage.write(f"{output.rstrip('/')}/{_OWNER}", msgspec.json.encode({"id": query}))


def _id_in(storage: Storage, folder: str, name: str) -> str | None:
    """The query's id in that file, Spark's or ours; None if there is none."""
    written = storage.read(f"{folder.rstrip('/')}/{name}")
    return msgspec.json.decode(written, type=dict[str, str])["id"] if written is not None else None


def _last_batch(storage: Storage, folder: str) -> int | None:
    """The highest number among the files of one of Spark's logs, such as 8 or 9.compact; None if there is none."""
    if not storage.is_folder(folder):
        return None
    numbers = [name.partition(".")[0] for name in storage.names(folder)]
    return max((int(number) for number in numbers if number.isdecimal()), default=None)
