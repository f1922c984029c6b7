"""How far earlier audits have come, in a JSON file, so that the next one looks only at what is new."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.plain_lines import UNREADABLE
from forebay_pipeline.journal.sequence import Numbers
from forebay_pipeline.journal.span import DAY_US
from forebay_pipeline.storage import Storage

VERSION: Final = 1

HORIZON_US: Final = DAY_US
"""Rows this much older than the newest audited one are ignored. Rows may turn up late: a process that crashes leaves an
open file, which the next one on its machine closes. But the journal of a year need not be read."""


MAX_TOLD: Final = 1000
"""Unreadable places, and files that are not there, that are remembered; what was forgotten may be reported again."""


class ProcessMark(msgspec.Struct, frozen=True):
    """Up to where the rows of a process are audited, if they have no numbers: a process writes them in the order of
    their times, but its files may arrive in another."""

    time_us: int
    rows: list[str]
    """The audited rows of that very microsecond: column `row_key` of ledger.parts."""


class Followed(msgspec.Struct, frozen=True):
    """How far the numbered rows of a process were followed, and what is missing among them was reported."""

    numbers: dict[str, int] = {}
    """Kind → the last number that was expected."""
    audited: Numbers = []
    """Of ledger rows: what is not among them is audited when it turns up, however late."""
    last_us: int = 0
    """Time of its newest row."""
    ended: bool = False
    """Nothing more is expected: it had its last row, or was reported to have none."""


class AuditState(msgspec.Struct):
    """What the file holds. Never changed in place: `moved_on` makes the next one."""

    only: list[str] = []
    """The topics audited; empty for all."""
    processes: dict[str, ProcessMark] = {}
    followed: dict[str, Followed] = {}
    """Processes whose rows are numbered."""
    offsets: dict[str, dict[int, int]] = {}
    """Topic → partition → the offset up to which it was audited."""
    topic_ids: dict[str, str] = {}
    """Topic → its id when it was; of those whose brokers have ids."""
    files: list[str] = []
    """Closed files of the journal that were there: all of them for the first audit, then those of the last day."""
    dropped: dict[str, int] = {}
    """Process → journal rows that it had dropped."""
    torn: dict[str, int] = {}
    """What could not be read → how often that was reported."""
    vanished: list[str] = []
    """Files of which nothing was there, as reported."""
    elsewhere: dict[str, int] = {}
    """Process in front of another cluster → the time of its newest row."""
    cluster_id: str = ""
    """Of the audited topics; empty if that was never known."""
    seen: list[str] = []
    """Those of `only` of which there were rows to be audited."""
    v: int = VERSION

    @property
    def newest_us(self) -> int | None:
        """Time of the newest audited row; None if there is none."""
        return max((mark.time_us for mark in self.processes.values()), default=None)

    def moved_on(
        self,
        *,
        marks: Mapping[str, ProcessMark],
        offsets: dict[str, dict[int, int]],
        dropped: Mapping[str, int],
        followed: Mapping[str, Followed],
        torn: Mapping[str, int],
        vanished: Sequence[str],
        elsewhere: Mapping[str, int],
        cluster_id: str,
        topic_ids: Mapping[str, str],
        seen: Collection[str],
    ) -> AuditState:
        """The state after an audit that came this far. Marks never move back."""
        processes = dict(self.processes)
        for process, mark in marks.items():
            known = processes.get(process)
            if known is None or known.time_us < mark.time_us:
                processes[process] = mark
            elif known.time_us == mark.time_us:
                processes[process] = ProcessMark(mark.time_us, sorted({*known.rows, *mark.rows}))
        newest = max((mark.time_us for mark in processes.values()), default=0)
        processes = {name: mark for name, mark in processes.items() if mark.time_us >= newest - HORIZON_US}
        all_followed = {**self.followed, **followed}
        recent = {name: each for name, each in all_followed.items() if each.last_us >= newest - 2 * HORIZON_US}
        all_dropped = {**self.dropped, **dropped}
        others = {**self.elsewhere, **elsewhere}
        ids = {**self.topic_ids, **topic_ids}
        told = {error: count + self.torn.get(error, 0) for error, count in torn.items()}
        return AuditState(
            only=self.only,
            files=self.files,
            processes=processes,
            followed=recent,
            offsets=offsets,
            topic_ids={name: topic_id for name, topic_id in ids.items() if name in offsets and topic_id},
            dropped={name: rows for name, rows in all_dropped.items() if name in processes or name in recent},
            torn=dict(list({**self.torn, **told}.items())[-MAX_TOLD:]),
            vanished=[*self.vanished, *vanished][-MAX_TOLD:],
            elsewhere={name: last_us for name, last_us in others.items() if last_us >= newest - 2 * HORIZON_US},
            cluster_id=cluster_id or self.cluster_id,
            seen=sorted({*self.only} & {*self.seen, *self.offsets, *seen}),
        )


class _Versioned(msgspec.Struct):
    """Of a state of any version. It always has one: other JSON must not be replaced."""

    v: int


def read_state(storage: Storage, path: str, only: list[str]) -> AuditState:
    """The state that an earlier audit of the topics `only` left at `path`; an empty one if there is no file.

    Raises CannotRun if the file cannot be read, is no state, or is that of other topics.
    """
    written = storage.read(path)
    if written is None:
        return AuditState(only=sorted(only))
    try:
        version = msgspec.json.decode(written, type=_Versioned).v
        if version != VERSION:
            raise CannotRun(f"The state in {path} has version {version}, not {VERSION}.")
        state = msgspec.json.decode(written, type=AuditState)
    except UNREADABLE as error:
        raise CannotRun(f"{path} is not the state of an audit: {error}.") from error
    if state.only != sorted(only):
        raise CannotRun(
            f"The state in {path} is for {_topics(state.only)}, not for {_topics(only)}: "
            "each choice of topics needs its own file."
        )
    return state


def _topics(only: list[str]) -> str:
    return ", ".join(sorted(only)) or "all topics"


def write_state(storage: Storage, path: str, state: AuditState) -> None:
    """Replace the file: as a whole or not at all. Raises CannotRun if it cannot be written."""
    storage.write(path, msgspec.json.encode(state))
