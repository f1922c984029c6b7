"""The journal as files: a thread appends lines, rolls by size and age, and compresses what is closed.

    <journal.dir>/.<name>.inprogress          lines as they come; locked by its writer
    <journal.dir>/dt=2026-11-21/hour=09/<name>.jsonl.zst        closed: appears complete, never changes

In: lines, from the event loop. Out: closed files. The loop never waits: lines that do not fit into the queue, or that
the disk refuses, are dropped and counted. An `.inprogress` file that nobody has locked was left behind by a crash; the
next process that opens or rolls a file closes it as it is, and readers skip a torn last line.

<name> is host-pid-worker-<hex microseconds since 1970 when it was begun>.
"""

from __future__ import annotations

import asyncio
import datetime
import errno
import fcntl
import os
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import BinaryIO, Final

import zstandard

from forebay_policies.journal_rows import FILE_SUFFIX, MAX_FILES_BEFORE
from forebay_proxy.errors import StartError
from forebay_proxy.logs import RateLimited, get_logger

IN_PROGRESS: Final = ".inprogress"
CLOSE_S: Final = 10.0
"""How long the process waits for a slow disk before it exits."""
LOOK_S: Final = 0.02
"""How often it is looked at meanwhile."""
LEVEL: Final = 1
"""Of zstd: leaves a sixth of the bytes. Higher levels cost several times as much for little gain."""
AT_ONCE: Final = 1 << 18
"""Bytes. Each time the thread wakes up costs the event loop two switches."""
SET_BACK_S: Final = 10.0
"""A clock that was set back by more than this ends a file: it would be open until that time comes again."""
_COPY: Final = 1 << 20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_OPEN_NAME: Final = re.compile(r"\.(?P<name>.+-(?P<began>[0-9a-f]+))" + re.escape(IN_PROGRESS))
_NAME: Final = re.compile(r"(?P<process>.+-[0-9]+)-[0-9]+-(?P<began>[0-9a-f]+)")
_HOURS_BEFORE: Final = 72
"""Of a folder's hours in which anything was written, the last in which files of processes before are looked for."""
_NAMES_BEFORE: Final = 20_000
"""So many names, and what is left of their hour, are looked at."""


class JournalFiles:
    """A Sink (see recorder.py): whole lines, in files that are complete once visible, or counted as dropped.

    `worker` is this worker's number. Sizes are in bytes, `roll_s` in seconds; `retention_bytes` -1: nothing is deleted.
    `clock` is the time of day, in seconds since 1970.
    """

    def __init__(
        self,
        folder: str,
        worker: int,
        segment_bytes: int,
        roll_s: float,
        queue_bytes: int,
        retention_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = Path(folder)
        self._prefix = f"{socket.gethostname()}-{os.getpid()}-{worker}"
        self._segment_bytes = segment_bytes
        self._roll_s = roll_s
        self._queue_bytes = queue_bytes
        self._retention_bytes = retention_bytes
        self._clock = clock
        self._log = RateLimited(get_logger())
        self._queue: queue.SimpleQueue[tuple[bytes, int] | None] = queue.SimpleQueue()
        # Each number is written by one thread only: the loop's, or this one's own.
        self._put = 0
        self._taken = 0
        self._dropped_by_loop = 0
        self._dropped_by_disk = 0
        self.files_before: list[str] | None = None
        self._segment: _Segment | None = None
        self._is_made = False
        """The folder, by this process or before."""
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    @property
    def at_once(self) -> int:
        return min(AT_ONCE, self._queue_bytes // 4)

    @property
    def crowded(self) -> bool:
        return self._put - self._taken > self._queue_bytes // 2

    @property
    def dropped(self) -> int:
        return self._dropped_by_loop + self._dropped_by_disk

    def open(self) -> None:
        """Make the folder and the first file, and start the thread. Raises StartError if that fails.

        A disk that is full keeps nobody from serving: rows are dropped until there is room.
        """
        try:
            self.files_before = _newest_of_each_process(self._folder)
            self._segment = self._begun()
        except OSError as error:
            if error.errno not in _FULL:
                raise StartError(f"journal.dir = {self._folder}: {error.strerror or error}") from error
            self._log.warning("the journal's disk is full: rows are dropped until there is room", error=str(error))
        self._thread.start()

    def _begun(self) -> _Segment:
        if not self._is_made:  # later it is not made anew: its disk may have been taken away, and another is beneath
            self._folder.mkdir(parents=True, exist_ok=True)
        segment = _Segment(self._folder, self._prefix, self._clock())
        self._is_made = True
        return segment

    def put(self, lines: bytes, rows: int) -> None:
        if self._put - self._taken + len(lines) > self._queue_bytes:
            self._dropped_by_loop += rows
            self._log.warning("journal rows dropped, the disk is too slow", rows=rows)
            return
        self._put += len(lines)
        self._queue.put((lines, rows))

    async def close(self) -> None:
        if not self._thread.is_alive():
            return
        self._queue.put(None)
        until = monotonic() + CLOSE_S
        # Not in a thread that joins this one: the process would not end before that did, though nobody waits any more.
        while self._thread.is_alive() and monotonic() < until:  # noqa: ASYNC110 - a thread sets no event
            await asyncio.sleep(LOOK_S)
        if self._thread.is_alive():
            get_logger().warning("journal not written in time, the disk is too slow", waited_s=CLOSE_S)

    # The thread

    def _run(self) -> None:
        self._tidy()
        while True:
            try:
                item = self._queue.get(timeout=self._until_roll())
            except queue.Empty:
                item = (b"", 0)
            if item is None:
                break
            lines, rows = item
            if lines:
                self._write(lines, rows)
                self._taken += len(lines)
            if self._segment is not None and self._segment.over(self._clock(), self._segment_bytes, self._roll_s):
                self._guarded(self._roll)
        self._guarded(self._roll)

    def _until_roll(self) -> float:
        return 60.0 if self._segment is None else max(0.0, self._segment.ends_at(self._roll_s) - self._clock())

    def _write(self, lines: bytes, rows: int) -> None:
        try:
            if self._segment is None:
                self._segment = self._begun()
            self._segment.append(lines)
        except OSError as error:
            self._dropped_by_disk += rows
            self._log.warning("journal rows dropped, the disk refuses them", rows=rows, error=str(error))
        except Exception as error:  # no memory: the thread goes on, or all that comes later were dropped
            self._dropped_by_disk += rows
            self._log.error("journal rows dropped, they could not be written", rows=rows, exc_info=error)

    def _guarded(self, work: Callable[[], None]) -> None:
        """What fails now is retried with the next roll, or at the next start."""
        try:
            work()
        except OSError as error:
            self._log.warning("cannot close a journal file yet", error=str(error))
        except Exception as error:  # as in `_write`
            self._log.error("cannot close a journal file yet, for no reason of the disk's", exc_info=error)

    def _roll(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.close()
        self._tidy()

    def _tidy(self) -> None:
        """What cannot be closed, on a full disk perhaps, does not keep the oldest from making room."""
        self._guarded(self._adopt)
        self._guarded(self._forget_oldest)

    def _adopt(self) -> None:
        """Close every file that nobody writes any more: the one just rolled, and those that crashes left behind."""
        for path in self._folder.glob(f".*{IN_PROGRESS}"):
            if _OPEN_NAME.fullmatch(path.name):
                self._guarded(partial(_close_left_behind, path))

    def _forget_oldest(self) -> None:
        if self._retention_bytes < 0:
            return
        sizes = {path: _size(path) for path in sorted(_closed_files(self._folder), key=_began_us)}
        excess = sum(sizes.values()) - self._retention_bytes
        for path, size in sizes.items():
            if excess <= 0:
                return
            excess -= size  # of one that cannot be deleted, too: else no later one would be kept
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self._log.warning("an old journal file cannot be deleted", file=path.name, error=str(error))
            else:
                self._log.warning("oldest journal file deleted, journal.retention.bytes exceeded", file=path.name)


class _Segment:
    """The file being written; locked, so that no other process takes it for left behind."""

    def __init__(self, folder: Path, prefix: str, now: float) -> None:
        self._began = now
        self._size = 0
        self._path = folder / f".{prefix}-{int(now * 1_000_000):x}{IN_PROGRESS}"
        self._file = self._opened()

    def _opened(self) -> BinaryIO:
        while True:
            file: BinaryIO = self._path.open("xb", buffering=0)
            fcntl.flock(file, fcntl.LOCK_EX)
            if self._path.exists():
                return file
            file.close()  # another process closed it before it was locked

    def append(self, lines: bytes) -> None:
        """Append all lines; none if OSError is raised."""
        try:
            view = memoryview(lines)
            while view:
                view = view[self._file.write(view) :]
        except OSError:
            with suppress(OSError):
                self._file.truncate(self._size)
                self._file.seek(self._size)
            raise
        self._size += len(lines)

    def ends_at(self, roll_s: float) -> float:
        """When it is `roll_s` old, or its hour ends."""
        return min(self._began + roll_s, (self._began // 3600 + 1) * 3600)

    def over(self, now: float, segment_bytes: int, roll_s: float) -> bool:
        set_back = now < self._began - SET_BACK_S
        return self._size >= segment_bytes or now >= self.ends_at(roll_s) or set_back

    def close(self) -> None:
        """Leave it to `_close_left_behind`; an empty one is deleted."""
        if not self._size:
            self._path.unlink(missing_ok=True)
        self._file.close()


def _close_left_behind(path: Path) -> None:
    """Compress it to its final place, unless it is being written or another process is closing it."""
    with suppress(FileNotFoundError), _lockable(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not path.exists():
            return  # another process was faster
        match = _OPEN_NAME.fullmatch(path.name)
        assert match is not None
        if os.fstat(file.fileno()).st_size:
            began = datetime.datetime.fromtimestamp(int(match["began"], 16) / 1_000_000, datetime.UTC)
            place = path.parent / f"dt={began:%Y-%m-%d}" / f"hour={began:%H}"
            target = place / (match["name"] + FILE_SUFFIX)
            if not target.exists():  # else the power failed before the disk forgot this one, of which less may be left
                place.mkdir(parents=True, exist_ok=True)
                _compress(file, target)
        path.unlink()


def _lockable(path: Path) -> BinaryIO:
    """For writing, too, though nothing is written: NFS gives no other the lock. Another user's as it may be read."""
    try:
        return path.open("r+b")
    except PermissionError:
        return path.open("rb")


def _compress(source: BinaryIO, target: Path) -> None:
    unfinished = target.with_name(f".{target.name}")
    try:
        with unfinished.open("wb") as out:
            zstandard.ZstdCompressor(LEVEL).copy_stream(source, out, read_size=_COPY, write_size=_COPY)
            out.flush()
            os.fsync(out.fileno())
        unfinished.rename(target)
    except Exception:
        unfinished.unlink(missing_ok=True)
        raise


def _closed_files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob(f"dt=*/hour=*/*{FILE_SUFFIX}") if not path.name.startswith("."))


def _newest_of_each_process(folder: Path) -> list[str]:
    """The names without suffixes, newest first, of files that are open or of the last hours, as far as it may see."""
    # In this order none is missed that is closed meanwhile: it is in its place before it is no more open.
    names = [path.name[1:].removesuffix(IN_PROGRESS) for path in folder.glob(f".*{IN_PROGRESS}") if _size(path)]
    with suppress(OSError):
        for hour in sorted(folder.glob("dt=*/hour=*"), reverse=True)[:_HOURS_BEFORE]:
            names += [path.name.removesuffix(FILE_SUFFIX) for path in hour.glob(f"[!.]*{FILE_SUFFIX}")]
            if len(names) >= _NAMES_BEFORE:
                break
    found = [match for name in names if (match := _NAME.fullmatch(name))]
    newest = {match["process"]: match for match in sorted(found, key=_began)}
    return [match[0] for match in sorted(newest.values(), key=_began, reverse=True)[:MAX_FILES_BEFORE]]


def _size(path: Path) -> int:
    """Of what is gone, or cannot be looked at: 0."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _began(match: re.Match[str]) -> int:
    return int(match["began"], 16)


def _began_us(path: Path) -> int:
    """When it was begun, according to its name; a foreign file counts as the newest."""
    with suppress(ValueError):
        return int(path.name.removesuffix(FILE_SUFFIX).rpartition("-")[2], 16)
    return 1 << 63
