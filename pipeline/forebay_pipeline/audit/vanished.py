"""Processes of which the journal has nothing at all: those that began later in the same folder have named their files.

In: the names of files that were there (GaugeRow.files_before), and when the known processes lived. Out: the files of
which no known process can be the writer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from forebay_pipeline.audit.ledger import AuditScope

_CLOSE_US: Final = 10 * 1_000_000
"""Rows reach their file within less of their time."""


class Life(NamedTuple):
    """When a process lived, by its name and its rows, in microseconds since 1970."""

    first_us: int
    last_us: int
    ended: bool
    """It had its last row; else it may have lived on."""

    def holds(self, time_us: int) -> bool:
        """Whether it may have begun a file at that time."""
        return self.first_us <= time_us + _CLOSE_US and (not self.ended or time_us - _CLOSE_US <= self.last_us)


class _File(NamedTuple):
    """What the name of a journal's file says: host-pid-worker-time."""

    name: str
    writer: str
    """Host and pid, with which the name of a process begins, before the time when it began."""
    began_us: int


def vanished(named: Iterable[str], lives: Mapping[str, Life], scope: AuditScope) -> Iterator[str]:
    """The files, in order, that belong to what is audited and were begun by none of the processes in `lives`."""
    of_writer: dict[str, list[Life]] = defaultdict(list)
    for process, life in lives.items():
        of_writer[process.rpartition("-")[0]].append(life)
    first, last = scope.to_be_checked
    for file in _files(named):
        due = scope.due_us is not None and file.began_us < scope.due_us
        within = (first is None or file.began_us >= first) and (last is None or file.began_us < last)
        if due and within and not any(life.holds(file.began_us) for life in of_writer[file.writer]):
            yield file.name


def _files(named: Iterable[str]) -> Iterator[_File]:
    for name in sorted(set(named)):
        writer, _, began = name.rpartition("-")
        try:
            yield _File(name, writer.rpartition("-")[0], int(began, 16))
        except ValueError:
            continue  # not a name of the proxy's
