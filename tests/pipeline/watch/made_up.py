"""Minutes, and what brokers say of topics, made up: what matters is given, the rest is plausible."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from forebay_pipeline.audit.ranges import Ends, TopicNow
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.watch.verdict import Minute
from forebay_policies.journal_rows import LedgerRow
from tests.pipeline.rows import START_US, ledger_row, sized_part

SECOND = 1_000_000
MINUTE = 60 * SECOND
FIRST = START_US + 80 * SECOND
"""A minute begins: 2026-11-18T11:08:00Z."""

QUIET = Minute("2026-11-18T11:08:00Z", "c", "t", "i", 400, 0, 0, 1.5, 20.0, 0, 0, [])


def minute(**given: object) -> Minute:
    return msgspec.structs.replace(QUIET, **given)


def sent(second: float, base_offset: int = 0, records: int = 10, **given: object) -> LedgerRow:
    """Acknowledged so many seconds after FIRST, 2 ms after they had come; `partition` is where they were put."""
    partition = given.pop("partition", 0)
    assert isinstance(partition, int)
    at = FIRST + int(second * SECOND)
    part = sized_part(records, 100 * records, partition, base_offset=base_offset)
    return ledger_row([part], **{"time_us": at, "received_us": at - 2000, "process": "here-0", **given})


class Topics:
    """A cluster's topics as brokers tell of them, but for the `untold`; `silent`: they do not."""

    def __init__(self, now: Mapping[str, TopicNow], cluster_id: str = "c", *, silent: bool = False) -> None:
        self._now = now
        self._cluster_id = cluster_id
        self.silent = silent
        self.untold: dict[str, CannotRun] = {}
        self.asked: list[set[str]] = []

    def cluster_id(self) -> str:
        if self.silent:
            raise CannotRun("No broker answers at a:1: no answer in time.")
        return self._cluster_id

    def told(self, names: Collection[str], *, policies: bool) -> tuple[dict[str, TopicNow], dict[str, CannotRun]]:
        assert not policies, "a user who may not ask for them could watch nothing"
        self.asked.append(set(names))
        untold = {name: error for name, error in self.untold.items() if name in names}
        return {name: self._now[name] for name in names if name in self._now and name not in untold}, untold


def topic(latest: int, *, earliest: int = 0, topic_id: str = "") -> TopicNow:
    """With one partition."""
    return TopicNow({0: Ends(earliest, latest)}, topic_id=topic_id)
