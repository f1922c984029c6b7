"""Ties each output to the one checkpoint that writes it, and each checkpoint to one job.

An output is what `compact` writes, or JSON lines. Spark's file sink numbers its batches, and leaves out each one whose
number it has: how a batch that is done again is written once. A query with another checkpoint begins at 0, so what it
reads first would be left out for good, though its checkpoint has it as read; of JSON lines it would replace those with
its numbers. An older copy of the checkpoint does the same, of tables, too. And a job that goes on from another one's
checkpoint never reads what that one has read. In: an output, a checkpoint, a job. Out: CannotRun where they do not
belong together, or do not say so.

    OUTPUT/_spark_metadata/4                  Spark's: batch 4 is written, in files that it names by their whole paths
    OUTPUT/minutes-000000004.jsonl            ours: its JSON lines
    OUTPUT/_query, OUTPUT/_query-minutes      ours: the id of the query that writes here, Parquet or lines of that name,
                                              as in CHECKPOINT/metadata, and the last batch of its lines
    CHECKPOINT/metadata                       Spark's: the id of its query; ours, where that has to be known before
    CHECKPOINT/offsets/4                      Spark's: batch 4 has begun, which comes first
    CHECKPOINT/_job                           ours: the job, as `watch`
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote
from uuid import uuid4

import msgspec

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.schema import KIND
from forebay_pipeline.storage import Storage

_OWNER: Final = "_query"
_JOB: Final = "_job"
_METADATA: Final = "metadata"
_BEGINNING: Final = 1 << 16
"""Bytes, of what may be many megabytes."""


class _File(msgspec.Struct):
    """A file of Parquet, as Spark names it."""

    path: str


class _Query(msgspec.Struct, omit_defaults=True):
    """What those files hold, Spark's and ours."""

    id: str
    last: int | None = None
    """The last batch of its lines; None in Spark's, and of Parquet."""


def query_id(storage: Storage, checkpoint: str) -> str | None:
    """The checkpoint's own name: another one begins anew, even in its place. None before its query has started."""
    return _id_in(storage, checkpoint, _METADATA)


def named_query(storage: Storage, checkpoint: str) -> str:
    """The same, given to it where it has none: Spark keeps the id that it finds. For what has to be noted before the
    query writes, which it does as soon as it has started."""
    query = query_id(storage, checkpoint)
    if query is None:
        query = str(uuid4())
        storage.write(f"{checkpoint.rstrip('/')}/{_METADATA}", msgspec.json.encode(_Query(query)))
    return query


def check_owner(storage: Storage, output: str, checkpoint: str) -> None:
    """Raises CannotRun if the output has batches that the query with that checkpoint did not write."""
    written = _last_batch(storage, f"{output.rstrip('/')}/_spark_metadata")
    if not _wrote(storage, checkpoint, output, _OWNER, written):
        raise CannotRun(
            f"{output} has batches that were not written with the checkpoint {checkpoint}: what that one reads first "
            "would be left out. Give the checkpoint that they were written with, or another output."
        )


def check_place(storage: Storage, output: str) -> bool:
    """Whether `compact` wrote Parquet there, by Spark's account, whose readers read the files that it names.

    Raises CannotRun if they are not in that folder: a copy would be read from the original's files, if they are there.
    """
    file = _first_file(storage, f"{output.rstrip('/')}/_spark_metadata")
    if file is None or (within := f"/{KIND}=") not in file:
        return False
    above, name = storage.split(output)
    if not file.startswith(f"{above.rstrip('/')}/{name}{within}"):
        raise CannotRun(
            f"{output} was moved or copied: its `_spark_metadata` names files in {file.partition(within)[0]}. "
            "Give that folder, or move it back there."
        )
    return True


def check_lines_owner(storage: Storage, output: str, name: str, checkpoint: str) -> None:
    """Raises CannotRun if the output has JSON lines of that name that the query with that checkpoint did not write."""
    owner = f"{_OWNER}-{name}"
    found = _query_in(storage, output, owner)
    if found is not None and found.id == query_id(storage, checkpoint):
        written = found.last  # without a look at what may be thousands of files
    else:
        written = _last_batch(storage, output, f"{name}-")
    if not _wrote(storage, checkpoint, output, owner, written):
        raise CannotRun(
            f"{output} has lines that were not written with the checkpoint {checkpoint}: that one would replace them. "
            "Give the checkpoint that they were written with, or another output."
        )


def check_begun(storage: Storage, output: str, checkpoint: str, last: int) -> None:
    """Raises CannotRun if the query with that checkpoint has yet to begin the batch `last` of its tables (-1: none)."""
    if not _has_begun(storage, checkpoint, last):
        raise CannotRun(
            f"{output} has batches that the checkpoint {checkpoint} does not know, as if it were an older copy: what "
            "it reads next would be left out. Give the checkpoint as it was last, or another one and another output."
        )


def claim(storage: Storage, checkpoint: str, job: str) -> None:
    """Note, before the query starts, that the checkpoint is that of `job`.

    Raises CannotRun if the query of another job has begun with it: this one would leave out what that one has read.
    """
    place = f"{checkpoint.rstrip('/')}/{_JOB}"
    if query_id(storage, checkpoint) is not None:
        owner = (storage.read(place) or job.encode()).decode(errors="replace")
        if owner != job:
            raise CannotRun(
                f"The checkpoint {checkpoint} is that of `{owner}`: `{job}` would leave out what that one has "
                "read. Give another checkpoint, or another output."
            )
    storage.write(place, job.encode())


def own(storage: Storage, output: str, query: str, name: str | None = None, batch: int | None = None) -> None:
    """Note that the query of that id writes to the output: that batch of JSON lines of that name, else Parquet."""
    owner, writing = _OWNER if name is None else f"{_OWNER}-{name}", _Query(query, batch)
    if _query_in(storage, output, owner) != writing:
        storage.write(f"{output.rstrip('/')}/{owner}", msgspec.json.encode(writing))


def _wrote(storage: Storage, checkpoint: str, output: str, owner: str, last: int | None) -> bool:
    """Whether the output's batches, up to `last`, are of the query with that checkpoint, as its file `owner` says."""
    if last is None:
        return True
    query = query_id(storage, checkpoint)
    return query is not None and query == _id_in(storage, output, owner) and _has_begun(storage, checkpoint, last)


def _has_begun(storage: Storage, checkpoint: str, batch: int) -> bool:
    begun = _last_batch(storage, f"{checkpoint.rstrip('/')}/offsets")
    return batch <= (-1 if begun is None else begun)


def _first_file(storage: Storage, log: str) -> str | None:
    """The oldest that Spark's account names, as a path; None if there is none."""
    if not storage.is_folder(log):
        return None
    names = [name for name in storage.names(log) if name.partition(".")[0].isdecimal()]
    for name in sorted(names, key=_age):
        _, _, files = (storage.read(f"{log}/{name}", _BEGINNING) or b"").partition(b"\n")
        if files:
            try:
                named = msgspec.json.decode(files.partition(b"\n")[0], type=_File).path
            except msgspec.DecodeError as error:
                raise CannotRun(f"{log}/{name} does not say which files there are: {error}.") from error
            return unquote(named).replace(":///", ":/", 1)
    return None


def _age(name: str) -> int:
    """Of files such as 8, or 9.compact, which has all that was before it: the newest of those, then the oldest."""
    number, _, compact = name.partition(".")
    return -1 - int(number) if compact else int(number)


def _id_in(storage: Storage, folder: str, name: str) -> str | None:
    found = _query_in(storage, folder, name)
    return found.id if found is not None else None


def _query_in(storage: Storage, folder: str, name: str) -> _Query | None:
    """What that file holds, Spark's or ours; None if there is none."""
    path = f"{folder.rstrip('/')}/{name}"
    written = storage.read(path)
    try:
        return msgspec.json.decode(written, type=_Query) if written is not None else None
    except msgspec.DecodeError as error:
        raise CannotRun(f"{path} does not say which query it is of: {error}.") from error


def _last_batch(storage: Storage, folder: str, before: str = "") -> int | None:
    """The highest number among files such as 8 or 9.compact, with `before` in front of it; None if there is none."""
    if not storage.is_folder(folder):
        return None
    names = storage.names(folder)
    numbers = [name.removeprefix(before).partition(".")[0] for name in names if name.startswith(before)]
    return max((int(number) for number in numbers if number.isdecimal()), default=None)
