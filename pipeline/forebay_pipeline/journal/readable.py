"""Whether Spark may read the proxy's files: those that it may not open it leaves out without a word, as if retention
had deleted them, and a stream counts them as read.

In: folders of a journal. Out: CannotRun, which names a file. Only where files are on the local disk, and read by this
process's user: what other users and hosts may read, nobody here can tell.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.storage import Storage
from forebay_policies.journal_rows import FILE_SUFFIX


def check_readable(spark: SparkSession, storage: Storage, folders: Iterable[str]) -> None:
    """Raises CannotRun if one of the folders has a closed file that may not be read."""
    if not str(spark.sparkContext.master).startswith("local"):
        return
    for folder in folders:
        local = storage.local(folder)
        if local is None:
            return
        for file in _closed(local):
            # One that is gone by now may not be read either.
            if not os.access(file, os.R_OK) and file.exists():
                raise CannotRun(f"Cannot read {file}: run the job as a user who may read all files of the journal.")


def _closed(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(folder) as files:
        for file in files:
            if file.name.endswith(FILE_SUFFIX) and not file.name.startswith((".", "_")):
                yield Path(file.path)
