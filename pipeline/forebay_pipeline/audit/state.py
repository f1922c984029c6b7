"""How far the audits before came, in a JSON file: what the next one need not look at again.

`read_state` raises CannotRun where the file is something else. `write_state` replaces it as a whole or not at all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from forebay_pipeline.errors import CannotRun

VERSION: Final = 1

HORIZON_US: Final = 24 * 3600 * 1_000_000
"""Rows so much older than the newest audited one are not looked for any more. A process that crashed leaves a file
open that the next one on its machine closes, so rows may turn up late; but the journal of a year need not be read."""


class ProcessMark(msgspec.Struct, frozen=True):
    """The last rows of a process that were audited: a process writes its rows in the order of their times."""

    time_us: int
    rows: list[str]
    """Of that very microsecond, by ledger.row_key."""


class AuditState(msgspec.Struct):
    only: list[str] = []
    """The topics that are audited; empty: all."""
    processes: dict[str, ProcessMark] = {}
    offsets: dict[str, dict[int, int]] = {}
    """Topic → partition → the offset up to which it was audited."""
    dropped: dict[str, int] = {}
    """Process → rows that it had dropped."""
    v: int = VERSION

    @property
    def newest_us(self) -> int | None:
        return max((mark.time_us for mark in self.processes.values()), default=None)

    def moved_on(
        self, marks: Mapping[str, ProcessMark], offsets: dict[str, dict[int, int]], dropped: Mapping[str, int]
    ) -> AuditState:
        """This, and what was audited now. It moves forward only."""
        processes = dict(self.processes)
        for process, mark in marks.items():
            known = processes.get(process)
            if known is None or known.time_us < mark.time_us:
                processes[process] = mark
            elif known.time_us == mark.time_us:
                processes[process] = ProcessMark(mark.time_us, sorted({*known.rows, *mark.rows}))
        newest = max((mark.time_us for mark in processes.values()), default=0)
        return AuditState(
            only=self.only,
            processes={name: mark for name, mark in processes.items() if mark.time_us >= newest - HORIZON_US},
            offsets=offsets,
            dropped=dict(dropped),
        )


def read_state(path: Path, only: list[str]) -> AuditState:
    """What an earlier audit of these topics left there; where there is nothing, a state that knows nothing."""
    try:
        state = msgspec.json.decode(path.read_bytes(), type=AuditState)
    except FileNotFoundError:
        return AuditState(only=sorted(only))
    except OSError as error:
        raise CannotRun(f"The state in {path} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise CannotRun(f"{path} is not the state of an audit: {error}.") from error
    if state.v != VERSION:
        raise CannotRun(f"The state in {path} is of version {state.v}, not {VERSION}.")
    if state.only != sorted(only):
        raise CannotRun(
            f"The state in {path} is that of auditing {_topics(state.only)}, not {_topics(only)}: "
            "each choice of topics needs a file of its own."
        )
    return state


def _topics(only: list[str]) -> str:
    return ", ".join(sorted(only)) or "all topics"


def write_state(path: Path, state: AuditState) -> None:
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
            try:
                file.write(msgspec.json.encode(state))
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except OSError:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise CannotRun(f"The state cannot be written to {path}: {error.strerror}.") from error
