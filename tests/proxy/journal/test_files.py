"""Rolling files: what is closed and when, what a crash leaves behind, what a bad disk costs."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import structlog

from forebay_policies.journal_rows import MAX_FILES_BEFORE
from forebay_proxy.errors import StartError
from forebay_proxy.journal import files as journal_files
from forebay_proxy.journal.files import JournalFiles, _Segment
from tests.kit.event_loop import in_loop, until
from tests.kit.journal import closed_files, lines_of

NOON = 1_795_003_200.0
"""12:00 UTC on 18 November 2026."""


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def files(folder: Path, clock: Clock | None = None, **changed: float) -> JournalFiles:
    given = {"segment_bytes": 1 << 20, "roll_s": 300.0, "queue_bytes": 1 << 20, "retention_bytes": -1, **changed}
    return JournalFiles(str(folder), 0, clock=clock or Clock(), **given)  # type: ignore[arg-type]


def _without_memory(*_: object, **__: object) -> None:
    raise MemoryError


def left(folder: Path) -> list[Path]:
    return list(folder.glob(".*.inprogress"))


def closed(folder: Path, hour: int, *names: str) -> None:
    place = folder / f"dt=2026-11-{10 + hour // 24}" / f"hour={hour % 24:02}"
    place.mkdir(parents=True, exist_ok=True)
    for name in names:
        (place / f"{name}.jsonl.zst").touch()


async def files_before(folder: Path) -> list[str] | None:
    sink = files(folder)
    sink.open()
    await sink.close()
    return sink.files_before


@in_loop
async def test_the_newest_file_of_each_process_that_was_there_before(tmp_path: Path) -> None:
    """Open ones, too, and not its own; what is no journal's, empty, or half written is none."""
    assert await files_before(tmp_path) == []
    closed(tmp_path, 50, "a-1-0-10", "a-1-1-30", "b-c-2-0-20", "other", "a-1-0-xyz", ".h-8-0-70")
    closed(tmp_path, 49, "a-1-0-40", "d-4-0-1")
    (tmp_path / ".f-6-0-50.inprogress").write_bytes(b"{")
    (tmp_path / ".g-7-0-60.inprogress").touch()
    assert await files_before(tmp_path) == ["f-6-0-50", "a-1-0-40", "b-c-2-0-20", "d-4-0-1"]


@in_loop
async def test_of_many_processes_before_only_the_last_are_looked_for(tmp_path: Path) -> None:
    for hour in range(100):
        closed(tmp_path, hour, f"p-{hour}-0-{hour:x}")
    assert await files_before(tmp_path) == [f"p-{hour}-0-{hour:x}" for hour in range(99, 99 - MAX_FILES_BEFORE, -1)]
    for hour in range(29, 100):
        closed(tmp_path, hour, "one-1-0-1")
        (
            tmp_path / f"dt=2026-11-{10 + hour // 24}" / f"hour={hour % 24:02}" / f"p-{hour}-0-{hour:x}.jsonl.zst"
        ).unlink()
    assert await files_before(tmp_path) == ["p-28-0-1c", "one-1-0-1"]


class TestClosing:
    @in_loop
    async def test_lines_are_in_a_file_of_the_hour_in_which_it_was_begun(self, tmp_path: Path) -> None:
        sink = files(tmp_path)
        sink.open()
        sink.put(b'{"a":1}\n{"a":2}\n', 2)
        sink.put(b'{"a":3}\n', 1)
        await sink.close()
        (path,) = closed_files(tmp_path)
        assert path.parent == tmp_path / "dt=2026-11-18" / "hour=12"
        assert lines_of(path) == [b'{"a":1}', b'{"a":2}', b'{"a":3}']
        assert left(tmp_path) == []
        assert sink.dropped == 0

    @in_loop
    async def test_nothing_is_visible_before_it_is_closed(self, tmp_path: Path) -> None:
        sink = files(tmp_path)
        sink.open()
        sink.put(b"1\n", 1)
        await until(lambda: left(tmp_path) and left(tmp_path)[0].stat().st_size)
        assert closed_files(tmp_path) == []
        await sink.close()

    @in_loop
    async def test_it_is_on_the_disk_before_it_is_visible_and_no_more_open(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[tuple[int, int]] = []

        def fsync(descriptor: int) -> None:
            assert os.fstat(descriptor).st_size
            synced.append((len(closed_files(tmp_path)), len(left(tmp_path))))

        monkeypatch.setattr(os, "fsync", fsync)
        sink = files(tmp_path)
        sink.open()
        sink.put(b"1\n", 1)
        await sink.close()
        assert len(closed_files(tmp_path)) == 1
        assert synced == [(0, 1)]

    @in_loop
    async def test_without_lines_there_is_no_file(self, tmp_path: Path) -> None:
        sink = files(tmp_path)
        sink.open()
        await sink.close()
        assert closed_files(tmp_path) == left(tmp_path) == []

    @in_loop
    async def test_it_rolls_by_size(self, tmp_path: Path) -> None:
        clock = Clock()
        sink = files(tmp_path, clock, segment_bytes=10)
        sink.open()
        for number in range(3):
            sink.put(b"123456789%d\n" % number, 1)
            await until(lambda number=number: len(closed_files(tmp_path)) == number + 1)  # type: ignore[misc]
            clock.now += 1
        await sink.close()
        assert [lines_of(path) for path in closed_files(tmp_path)] == [[b"123456789%d" % number] for number in range(3)]

    @in_loop
    async def test_it_rolls_by_age(self, tmp_path: Path) -> None:
        clock = Clock()
        sink = files(tmp_path, clock, roll_s=0.05)
        sink.open()
        sink.put(b"1\n", 1)
        await until(lambda: left(tmp_path) and left(tmp_path)[0].stat().st_size)
        clock.now += 1
        await until(lambda: closed_files(tmp_path))
        await sink.close()

    @in_loop
    async def test_it_rolls_when_the_hour_is_over(self, tmp_path: Path) -> None:
        clock = Clock(NOON + 3599.9)
        sink = files(tmp_path, clock)
        sink.open()
        sink.put(b"1\n", 1)
        await until(lambda: left(tmp_path) and left(tmp_path)[0].stat().st_size)
        clock.now += 1
        sink.put(b"2\n", 1)
        await until(lambda: closed_files(tmp_path))
        clock.now += 1
        sink.put(b"3\n", 1)
        await sink.close()
        assert [path.parent.name for path in closed_files(tmp_path)] == ["hour=12", "hour=13"]
        assert [line for path in closed_files(tmp_path) for line in lines_of(path)] == [b"1", b"2", b"3"]

    @in_loop
    async def test_a_clock_that_is_set_back_ends_a_file_that_would_stay_open(self, tmp_path: Path) -> None:
        clock = Clock()
        sink = files(tmp_path, clock)
        sink.open()
        sink.put(b"1\n", 1)
        await until(lambda: left(tmp_path)[0].stat().st_size)
        clock.now -= 7200
        sink.put(b"2\n", 1)
        await until(lambda: closed_files(tmp_path))
        sink.put(b"3\n", 1)
        await sink.close()
        later, first = (lines_of(path) for path in closed_files(tmp_path))
        # The thread may look at the clock once more before the second row comes.
        assert (first, later) in (([b"1", b"2"], [b"3"]), ([b"1"], [b"2", b"3"]))


class TestLeftBehind:
    def crashed(self, folder: Path, lines: bytes, name: str = "host-7-0") -> Path:
        path = folder / f".{name}-{int(NOON * 1_000_000):x}.inprogress"
        path.write_bytes(lines)
        return path

    @in_loop
    async def test_another_users_that_may_only_be_read_is_closed_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = files(tmp_path)
        sink.open()
        sink.put(b"row\n", 1)
        opened = Path.open

        def guarded(self: Path, mode: str = "r", *more: Any, **named: Any) -> Any:
            if mode == "r+b":
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return opened(self, mode, *more, **named)

        monkeypatch.setattr(Path, "open", guarded)
        await sink.close()
        assert [lines_of(path) for path in closed_files(tmp_path)] == [[b"row"]]

    @in_loop
    async def test_the_next_start_closes_it_with_its_torn_line(self, tmp_path: Path) -> None:
        path = self.crashed(tmp_path, b'{"a":1}\n{"a":')
        sink = files(tmp_path, Clock(NOON + 7200))
        sink.open()
        await until(lambda: closed_files(tmp_path))
        (closed,) = closed_files(tmp_path)
        assert closed.parent == tmp_path / "dt=2026-11-18" / "hour=12"
        assert lines_of(closed) == [b'{"a":1}', b'{"a":']
        assert not path.exists()
        await sink.close()

    @in_loop
    async def test_what_another_process_writes_is_left_alone(self, tmp_path: Path) -> None:
        path = self.crashed(tmp_path, b"1\n")
        with path.open("ab") as writer:
            fcntl.flock(writer, fcntl.LOCK_EX)
            sink = files(tmp_path)
            sink.open()
            sink.put(b"2\n", 1)
            await sink.close()
            assert path.exists()
        assert [lines_of(closed) for closed in closed_files(tmp_path)] == [[b"2"]]

    @in_loop
    async def test_foreign_files_are_left_alone(self, tmp_path: Path) -> None:
        foreign = tmp_path / ".notes.inprogress"
        foreign.write_text("mine")
        sink = files(tmp_path)
        sink.open()
        await sink.close()
        assert foreign.read_text() == "mine"

    @in_loop
    async def test_on_nfs_it_is_closed_like_anywhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """There a file is locked only by who may write to it (flock(2), "NFS details")."""
        lock = fcntl.flock

        def nfs(file: BinaryIO, how: int) -> None:
            if how & fcntl.LOCK_EX and fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            lock(file, how)

        monkeypatch.setattr(fcntl, "flock", nfs)
        self.crashed(tmp_path, b"1\n")
        sink = files(tmp_path, Clock(NOON + 60))
        sink.open()
        sink.put(b"2\n", 1)
        await sink.close()
        assert [lines_of(closed) for closed in closed_files(tmp_path)] == [[b"1"], [b"2"]]
        assert left(tmp_path) == []

    @in_loop
    async def test_a_crash_while_compressing_loses_nothing(self, tmp_path: Path) -> None:
        path = self.crashed(tmp_path, b"1\n2\n")
        place = tmp_path / "dt=2026-11-18" / "hour=12"
        place.mkdir(parents=True)
        name = path.name.removeprefix(".").removesuffix(".inprogress")
        (place / f".{name}.jsonl.zst").write_bytes(b"half of it")
        sink = files(tmp_path, Clock(NOON + 60))
        sink.open()
        await sink.close()
        (closed,) = closed_files(tmp_path)
        assert lines_of(closed) == [b"1", b"2"]
        assert len(list(place.iterdir())) == 1

    @in_loop
    async def test_what_is_closed_stays_when_the_disk_has_kept_a_part_of_it_as_open(self, tmp_path: Path) -> None:
        """As after a power failure: that it is deleted, and its last lines, had not reached the disk."""
        for lines in (b"1\n2\n", b"1\n"):
            path = self.crashed(tmp_path, lines)
            sink = files(tmp_path, Clock(NOON + 60))
            sink.open()
            await sink.close()
            assert not path.exists()
        (closed,) = closed_files(tmp_path)
        assert lines_of(closed) == [b"1", b"2"]


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk that takes nothing until the event is set."""
    moving = threading.Event()
    append = journal_files._Segment.append

    def slow(self: journal_files._Segment, lines: bytes) -> None:
        moving.wait(20)
        append(self, lines)

    monkeypatch.setattr(journal_files._Segment, "append", slow)
    yield moving
    moving.set()


class TestBadDisks:
    @in_loop
    async def test_what_does_not_fit_the_queue_is_dropped_and_counted(
        self, tmp_path: Path, stuck: threading.Event
    ) -> None:
        sink = files(tmp_path, queue_bytes=10)
        sink.open()
        with structlog.testing.capture_logs() as logs:
            for number in range(8):
                sink.put(b"%d\n" % number, 1)
        assert sink.dropped == 3
        assert {log["event"] for log in logs} == {"journal rows dropped, the disk is too slow"}
        stuck.set()
        await sink.close()
        assert [lines_of(path) for path in closed_files(tmp_path)] == [[b"0", b"1", b"2", b"3", b"4"]]

    @in_loop
    async def test_what_is_no_fault_of_the_disk_ends_nothing_either(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = files(tmp_path)
        sink.open()
        with structlog.testing.capture_logs() as logs, monkeypatch.context() as patched:
            patched.setattr(_Segment, "append", _without_memory)
            sink.put(b"lost\n", 1)
            await until(lambda: sink.dropped == 1)
        sink.put(b"kept\n", 1)
        await sink.close()
        assert [log["event"] for log in logs] == ["journal rows dropped, they could not be written"]
        assert [lines_of(path) for path in closed_files(tmp_path)] == [[b"kept"]]

    @in_loop
    async def test_a_file_that_cannot_be_compressed_for_want_of_memory_is_compressed_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = files(tmp_path)
        sink.open()
        sink.put(b"row\n", 1)
        with structlog.testing.capture_logs() as logs, monkeypatch.context() as patched:
            patched.setattr("zstandard.ZstdCompressor", _without_memory)
            await sink.close()
        assert "cannot close a journal file yet, for no reason of the disk's" in [log["event"] for log in logs]
        assert not [path for path in closed_files(tmp_path) if path.name.startswith(".")]
        after = files(tmp_path, Clock(NOON + 1))
        after.open()
        await after.close()
        assert [lines_of(path) for path in closed_files(tmp_path)] == [[b"row"]]

    @in_loop
    async def test_a_full_disk_tears_no_line_and_recovers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = files(tmp_path)
        sink.open()
        sink.put(b"before\n", 1)
        await until(lambda: left(tmp_path)[0].stat().st_size)
        assert sink._segment is not None
        file = sink._segment._file

        class Full:
            """Takes some bytes, then none."""

            def write(self, data: memoryview) -> int:
                file.write(data[:20])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            def __getattr__(self, name: str) -> object:
                return getattr(file, name)

        monkeypatch.setattr(sink._segment, "_file", Full())
        with structlog.testing.capture_logs() as logs:
            sink.put(b"lost, and longer than after\n", 2)
            await until(lambda: sink.dropped)
        assert sink.dropped == 2
        assert logs[0]["event"] == "journal rows dropped, the disk refuses them"
        monkeypatch.undo()
        sink.put(b"after\n", 1)
        await sink.close()
        (path,) = closed_files(tmp_path)
        assert lines_of(path) == [b"before", b"after"]

    @in_loop
    async def test_one_that_is_full_from_the_start_keeps_nobody_from_serving(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "journal"
        sink = files(folder)

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
            patch.setattr(Path, "mkdir", full)
            sink.open()
            sink.put(b"lost\n", 2)
            await until(lambda: sink.dropped == 2)
        assert [log["event"] for log in logs] == [
            "the journal's disk is full: rows are dropped until there is room",
            "journal rows dropped, the disk refuses them",
        ]
        sink.put(b"after\n", 1)
        await sink.close()
        (path,) = closed_files(folder)
        assert lines_of(path) == [b"after"]

    @in_loop
    async def test_a_folder_whose_disk_is_taken_away_is_not_made_on_the_one_beneath(self, tmp_path: Path) -> None:
        folder = tmp_path / "journal"
        sink = files(folder, segment_bytes=1)
        sink.open()
        sink.put(b"before\n", 1)
        await until(lambda: closed_files(folder))
        folder.rename(tmp_path / "elsewhere")
        sink.put(b"lost\n", 1)
        await until(lambda: sink.dropped == 1)
        await sink.close()
        assert not folder.exists()

    @in_loop
    async def test_a_file_that_cannot_be_closed_is_closed_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "no space")

        clock = Clock()
        sink = files(tmp_path, clock, segment_bytes=1)
        sink.open()
        with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
            patch.setattr(journal_files, "_compress", full)
            sink.put(b"1\n", 1)
            await until(lambda: logs)
        assert logs[0]["event"] == "cannot close a journal file yet"
        clock.now += 1
        sink.put(b"2\n", 1)
        await sink.close()
        assert [lines_of(path) for path in closed_files(tmp_path)] == [[b"1"], [b"2"]]
        assert sink.dropped == 0

    @in_loop
    async def test_a_file_that_cannot_be_closed_keeps_no_other_open(self, tmp_path: Path) -> None:
        for name in ("a-1-0-10", "z-1-0-10"):  # whichever the folder tells first
            (tmp_path / f".{name}.inprogress").mkdir()
        sink = files(tmp_path)
        sink.open()
        sink.put(b"1\n", 1)
        with structlog.testing.capture_logs() as logs:
            await sink.close()
        assert {log["event"] for log in logs} == {"cannot close a journal file yet"}
        assert [lines_of(path) for path in closed_files(tmp_path)] == [[b"1"]]

    @in_loop
    async def test_where_nothing_can_be_closed_the_oldest_files_go_all_the_same(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "no space")

        monkeypatch.setattr(journal_files, "_compress", full)
        (tmp_path / ".a-1-0-20.inprogress").write_bytes(b"1\n")
        closed(tmp_path, 0, "a-1-0-10")
        (oldest,) = closed_files(tmp_path)
        oldest.write_bytes(bytes(100))
        sink = files(tmp_path, retention_bytes=60)
        sink.open()
        await until(lambda: not oldest.exists())
        await sink.close()
        assert len(left(tmp_path)) == 1

    def test_a_folder_that_cannot_be_written_stops_the_start(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StartError, match=r"journal\.dir = .*/file: "):
            files(tmp_path / "file").open()

    @in_loop
    async def test_an_end_before_a_hanging_disk_is_bounded(
        self, tmp_path: Path, stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal_files, "CLOSE_S", 0.05)
        sink = files(tmp_path)
        sink.open()
        sink.put(b"1\n", 1)
        with structlog.testing.capture_logs() as logs:
            await sink.close()
        assert [log["event"] for log in logs] == ["journal not written in time, the disk is too slow"]

    @in_loop
    async def test_an_end_that_nobody_waits_for_any_more_holds_up_nothing(
        self, tmp_path: Path, stuck: threading.Event
    ) -> None:
        """As where a drain has been cut off, or told again to stop: the loop does not end before its threads do."""
        sink = files(tmp_path)
        sink.open()
        sink.put(b"1\n", 1)
        before = set(threading.enumerate())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sink.close(), 0.01)
        assert set(threading.enumerate()) <= before
        stuck.set()
        await asyncio.to_thread(sink._thread.join)


class TestRetention:
    @in_loop
    async def test_the_oldest_files_go(self, tmp_path: Path) -> None:
        clock = Clock()
        sink = files(tmp_path, clock, segment_bytes=1, retention_bytes=60)
        sink.open()
        with structlog.testing.capture_logs() as logs:
            for number in range(6):
                clock.now += 1
                sink.put(b"%d\n" % number, 1)
                await until(lambda: sink._taken == sink._put and not left(tmp_path))
            await sink.close()
        kept = [lines_of(path)[0] for path in closed_files(tmp_path)]
        assert kept == [b"%d" % number for number in range(6)][-len(kept) :]
        assert 0 < sum(path.stat().st_size for path in closed_files(tmp_path)) <= 60
        assert {log["event"] for log in logs} == {"oldest journal file deleted, journal.retention.bytes exceeded"}

    @in_loop
    async def test_one_that_cannot_be_deleted_stays_and_costs_the_newer_ones_nothing(self, tmp_path: Path) -> None:
        closed(tmp_path, 0, "a-1-0-20", "a-1-0-30")
        older, newer = closed_files(tmp_path)
        for path in (older, newer):
            path.write_bytes(bytes(50))
        oldest = older.with_name("a-1-0-10.jsonl.zst")
        oldest.mkdir()
        sink = files(tmp_path, retention_bytes=60)
        with structlog.testing.capture_logs() as logs:
            sink.open()
            await until(lambda: not older.exists())
            await sink.close()
        assert closed_files(tmp_path) == [oldest, newer]
        assert [log["event"] for log in logs][:2] == [
            "an old journal file cannot be deleted",
            "oldest journal file deleted, journal.retention.bytes exceeded",
        ]
