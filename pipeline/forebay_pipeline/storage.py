"""Files and folders wherever Spark reaches them: on a local disk, in HDFS, in an object store.

In: paths as Spark takes them, with a scheme (`s3a://bucket/folder`) or without one, in the default file system
(`fs.defaultFS`: the local disk, unless a cluster says otherwise). All goes through Hadoop's FileSystem in the driver's
JVM, with the session's settings. Raises CannotRun, one sentence, where the file system does.

A file is written as a whole or not at all. In an object store it appears when it is closed. Elsewhere it is written
beside its place, under a hidden name, and renamed.
"""

from __future__ import annotations

import fcntl
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun

_APPEARS_WHEN_CLOSED: Final = "fs.capability.outputstream.abortable"
"""What Hadoop calls it: an output that can be aborted shows nothing before it is closed."""

_ALONE: Final = False
"""Not with what is in it."""


class Storage:
    """The files that a session reaches. Contents are bytes in the driver's memory: for results, not for data."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway: Any = spark.sparkContext._gateway
        self._hadoop: Any = spark._jvm.org.apache.hadoop  # type: ignore[union-attr]
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()

    def is_folder(self, path: str) -> bool:
        """Whether there is one; false for a file."""
        with _or_cannot_run("read", path):
            place, files = self._at(path)
            return bool(files.isDirectory(place))

    def names(self, folder: str) -> list[str]:
        """Of all that is in the folder, in order. Raises CannotRun if there is no folder.

        A millisecond each: for folders, not for thousands of files.
        """
        with _or_cannot_run("read", folder):
            place, files = self._at(folder)
            return sorted(str(each.getPath().getName()) for each in files.listStatus(place))

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of each file in the folder. Raises CannotRun if there is no folder."""
        with _or_cannot_run("read", folder):
            place, files = self._at(folder)
            return {str(each.getPath().getName()): int(each.getLen()) for each in files.listStatus(place)}

    def split(self, folder: str) -> tuple[str, str]:
        """The folder above it, with its scheme, and its last name. Raises CannotRun for the root of a file system."""
        with _or_cannot_run("read", folder):
            place, files = self._at(folder)
            whole = files.makeQualified(place)
        if whole.getParent() is None:
            raise CannotRun(f"{folder} is all of a file system: name a folder in it.")
        return str(whole.getParent()), str(whole.getName())

    def local(self, path: str) -> Path | None:
        """Where that is on the local disk; None if it is elsewhere."""
        with _or_cannot_run("read", path):
            return self._local(path)

    def _local(self, path: str) -> Path | None:
        place, files = self._at(path)
        local = is_instance_of(self._gateway, files, "org.apache.hadoop.fs.RawLocalFileSystem")
        return Path(files.pathToFile(place).getPath()) if local else None

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """While it lasts, no other process has a lock by that path; on a local disk, elsewhere nothing is locked.

        For what relies on files that appear only where none is, which a local disk does not warrant. Says on stderr
        where it has to wait.
        """
        with _or_cannot_run("write", path):
            lock = self._local(path)
        if lock is None:
            yield
            return
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            held = lock.open("ab")
        except OSError as error:
            raise CannotRun(f"Cannot write {lock}: {error.strerror}.") from error
        with held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                click.echo(f"Waiting for another process, which has locked {lock}.", err=True)
                fcntl.flock(held, fcntl.LOCK_EX)
            yield

    def read(self, path: str, most: int | None = None) -> bytes | None:
        """The file, or so many bytes of it; None if there is none. Raises CannotRun if it is a folder."""
        with _or_cannot_run("read", path):
            place, files = self._at(path)
            if not files.exists(place):
                return None
            stream = files.open(place)
            try:
                return bytes(stream.readAllBytes() if most is None else stream.readNBytes(most))
            finally:
                stream.close()

    def write(self, path: str, data: bytes) -> None:
        """Make, or replace, the file. Folders above it are made where the file system has any."""
        with _or_cannot_run("write", path):
            place, files = self._at(path)
            if files.hasPathCapability(place, _APPEARS_WHEN_CLOSED):
                _fill(files.create(place), data, whole=True)
                return
            if files.isDirectory(place):
                raise CannotRun(f"Cannot write {path}: it is a folder.")
            beside = self._hadoop.fs.Path(place.getParent(), f".{place.getName()}-{uuid.uuid4().hex}")
            try:
                _fill(files.create(beside), data, whole=False)
                if not self._replaced(files, beside, place):
                    raise CannotRun(f"Cannot write {path}: it could not be renamed from {beside.getName()}.")
            except BaseException:
                files.delete(beside, _ALONE)
                raise

    def _at(self, path: str) -> tuple[Any, Any]:
        """Hadoop's Path and its FileSystem; of local files without the checksums that would lie beside each."""
        place = self._hadoop.fs.Path(path)
        files = place.getFileSystem(self._conf)
        if is_instance_of(self._gateway, files, "org.apache.hadoop.fs.LocalFileSystem"):
            files = files.getRaw()
        return place, files

    def _replaced(self, files: Any, source: Any, target: Any) -> bool:
        if is_instance_of(self._gateway, files, "org.apache.hadoop.fs.RawLocalFileSystem"):
            return bool(files.rename(source, target))  # as POSIX does it: over what is there
        options = self._gateway.new_array(getattr(self._hadoop.fs, "Options$Rename"), 1)
        options[0] = getattr(self._hadoop.fs, "Options$Rename").OVERWRITE
        self._hadoop.fs.FileContext.getFileContext(target.toUri(), self._conf).rename(source, target, options)
        return True


def _fill(stream: Any, data: bytes, *, whole: bool) -> None:
    """Write and close. With `whole`, what was closed is there: an output that failed must not be."""
    try:
        stream.write(data)
        if not whole:
            stream.hsync()
    except BaseException:
        if whole:
            stream.abort()
        else:
            stream.close()
        raise
    stream.close()


@contextmanager
def _or_cannot_run(what: str, path: str) -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        raise CannotRun(f"Cannot {what} {path}: {_reason(error.java_exception)}.") from error
    except PySparkException as error:
        raise CannotRun(f"Cannot {what} {path}: {_first_line(str(error))}.") from error


def _reason(thrown: Any) -> str:
    """The first line of its message, else its kind."""
    said = thrown.getMessage()
    return _first_line(str(said)) if said else str(thrown.getClass().getSimpleName())


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given").rstrip(".")
