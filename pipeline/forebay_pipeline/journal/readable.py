"""Whether Spark may read the proxy's files: those that it may not open it leaves out without a word, as if retention
had deleted them, and a stream counts them as read.

In: folders of a journal. Out: CannotRun, which names a file; or, with a cluster, a host that has no such folder. Only
where files are on local disks: what other users may read of the files on other hosts, nobody here can tell.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.storage import Storage
from forebay_policies.journal_rows import FILE_SUFFIX


def check_everywhere(spark: SparkSession, storage: Storage, folder: str) -> None:
    """Raises CannotRun if the folder is one of a local disk, and an executor's host has none of that name.

    A few tasks ask the executors that there are by now: one that comes later is not asked.
    """
    local = None if _alone(spark) else storage.local(folder)
    if local is None:
        return
    tasks = spark.sparkContext.defaultParallelism
    found = spark.sparkContext.parallelize(range(tasks), tasks).map(partial(_host_without, str(local))).collect()
    if hosts := sorted({host for host in found if host is not None}):
        raise CannotRun(
            f"{hosts[0]}, where an executor is, has no folder {local}: a cluster's journal must be where all of its "
            "hosts reach it."
        )


def _alone(spark: SparkSession) -> bool:
    """Whether this process, and those that it started, are all there is."""
    return str(spark.sparkContext.master).startswith("local")


def _host_without(folder: str, _: int) -> str | None:
    return None if os.path.isdir(folder) else socket.gethostname()


def check_readable(spark: SparkSession, storage: Storage, folders: Iterable[str]) -> None:
    """Raises CannotRun if one of the folders has a closed file that may not be read."""
    if not _alone(spark):
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
