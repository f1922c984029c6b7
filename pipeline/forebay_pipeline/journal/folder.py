"""A journal's folder, wherever it is: which hours it has of a span.

    dt=2026-11-21/hour=09/<host>-<pid>-<worker>-<start>.jsonl.zst     what the proxy writes
    kind=batch/dt=2026-11-21/topic=orders/part-….parquet              what `compact` writes
    batch/…                                                           its tables

Raises CannotRun if there is no journal.
"""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.schema import KIND
from forebay_pipeline.journal.span import DAY_US, HOUR_US, Span
from forebay_pipeline.journal.tables import format_of
from forebay_pipeline.storage import Storage
from forebay_policies.journal_rows import FILE_SUFFIX

_FILE: Final = re.compile(r"(?P<writer>.+-\d+-\d+)-(?P<start>[0-9a-f]{12,})" + re.escape(FILE_SUFFIX))
_DAY: Final = re.compile(r"dt=\d{4}-\d{2}-\d{2}")
_WAITS_US: Final = 60 * 1_000_000


class JournalFolder:
    """A folder that has a journal. Raises CannotRun if it has none."""

    def __init__(self, storage: Storage, folder: str) -> None:
        if not storage.is_folder(folder):
            raise CannotRun(f"There is no journal in {folder}: no such folder.")
        self._storage = storage
        self._folder = folder.rstrip("/") or "/"
        self._names = storage.names(folder)
        self.format: Final = format_of(storage, folder, self._names)
        """In which `compact` wrote it; None if a proxy did."""
        if not self._days() and self.format is None:
            raise CannotRun(f"There is no journal in {folder}: it has no closed files yet (dt=…/hour=…).")

    def hours(self, span: Span) -> Iterator[str]:
        """The folders whose files may have rows of the span, in order."""
        for day in self._days():
            if not _may_hold(f"{day[3:]}T00", DAY_US, span):
                continue
            for hour in self._storage.names(f"{self._folder}/{day}"):
                if hour.startswith("hour=") and _may_hold(f"{day[3:]}T{hour[5:]}", HOUR_US, span):
                    yield f"{self._folder}/{day}/{hour}"

    def days(self) -> list[str]:
        """The days, as 2026-11-21, of which it may have rows, in order; not of tables, which say so themselves."""
        found = self._days()
        for kind in self._names:
            if kind.startswith(f"{KIND}="):
                found += self._storage.names(f"{self._folder}/{kind}")
        return sorted({name[3:] for name in found if _DAY.fullmatch(name)})

    def _days(self) -> list[str]:
        return [name for name in self._names if name.startswith("dt=")]


def _may_hold(began: str, length_us: int, span: Span) -> bool:
    """Whether files begun then, or within `length_us`, may have rows of the span.

    With an hour's margin on each side: a file spans some minutes, and a row may wait for the disk.
    """
    try:
        began_us = int(datetime.datetime.fromisoformat(f"{began}:00+00:00").timestamp()) * 1_000_000
    except ValueError:
        return False
    first, last = span
    return (last is None or began_us < last + HOUR_US) and (first is None or began_us + length_us >= first - HOUR_US)


def began_before(names: Iterable[str], time_us: int) -> set[str]:
    """Those of the proxy's files that may have older rows. A foreign name is not among them.

    With a minute's margin: a row may wait for the disk.
    """
    began = ((name, _FILE.fullmatch(name)) for name in names)
    return {name for name, file in began if file is not None and int(file["start"], 16) < time_us + _WAITS_US}


def over_at(names: Iterable[str], time_us: int) -> set[str]:
    """Those of the proxy's files without rows of that time or later: their writer had begun another one by then.

    A foreign name is not among them, nor is the last file of a writer.
    """
    writers: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        if (file := _FILE.fullmatch(name)) is not None:
            writers[file["writer"]].append((int(file["start"], 16), name))
    following = (pair for files in writers.values() for pair in pairwise(sorted(files)))
    return {name for (_, name), (next_us, _) in following if next_us <= time_us}
