"""Whether Spark may read the proxy's files: those that it may not open it leaves out without a word, as if retention
had deleted them, and a stream counts them as read.

In: folders of a journal. Out: CannotRun, which names a file; or, with a cluster, a host that has no such folder. Only
where files are on local disks: what other users may read of the files on other hosts, nobody here can tell.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.storage import Storage
from forebay_policies.journal_rows import FILE_SUFFIX


def on_hosts(spark: SparkSession, storage: Storage, journal: str) -> bool:
    """Whether the journal is on the local disks of several hosts, so that what one does not find need not be deleted.

    Raises CannotRun if an executor's host has no such folder: of those executors that there are by now. Those that come
    later find no file, which then is an error.
    """
    local = storage.local(journal)
    if local is None or not _has_hosts(spark):
        return False
    _check_everywhere(spark, local)
    # Else many folders or files are listed by executors, who take what they do not have for deleted.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", str(2**31 - 1))
    return True


def check_files(storage: Storage, folders: Iterable[str]) -> None:
    """Raises CannotRun if one of a journal's `folders` has a closed file that may not be read, on a local disk."""
    for folder in folders:
        local = storage.local(folder)
        if local is None:
            return
        for file in _closed(local):
            if not _may_read(file):
                raise CannotRun(f"Cannot read {file}: run the job as a user who may read all files of the journal.")


def _has_hosts(spark: SparkSession) -> bool:
    """Whether it reads on others than this one."""
    return not str(spark.sparkContext.master).startswith("local")


def _check_everywhere(spark: SparkSession, journal: Path) -> None:
    tasks = spark.sparkContext.defaultParallelism
    found = spark.sparkContext.parallelize(range(tasks), tasks).map(partial(_host_without, str(journal))).collect()
    if hosts := sorted({host for host in found if host is not None}):
        raise CannotRun(
            f"{hosts[0]}, where an executor is, has no folder {journal}: a cluster's journal must be where all of its "
            "hosts reach it."
        )


def _host_without(folder: str, _: int) -> str | None:
    return None if os.path.isdir(folder) else socket.gethostname()


def _closed(folder: Path) -> list[Path]:
    """None of a folder that has been deleted."""
    try:
        with os.scandir(folder) as files:
            names = [file.name for file in files]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CannotRun(f"Cannot read {folder}: {error.strerror}.") from error
    return [folder / name for name in names if name.endswith(FILE_SUFFIX) and not name.startswith((".", "_"))]


def _may_read(file: Path) -> bool:
    """Or it has been deleted."""
    if os.access(file, os.R_OK):
        return True
    try:
        file.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
