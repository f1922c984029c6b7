"""Topics, and a journal that tells of them, for tests of the audit: what they hold agrees until a test plants
something."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession

from forebay_pipeline.audit.ledger import AuditScope
from forebay_pipeline.audit.ranges import Ends, Range, TopicNow
from forebay_pipeline.audit.result import AuditResult, Counts
from forebay_pipeline.audit.run import audit
from forebay_pipeline.audit.state import AuditState
from forebay_pipeline.audit.topics import RECORD_COLUMNS
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.source import JournalPlace, Kinds, reader
from forebay_policies.journal_rows import LedgerPart, LedgerRow, Row
from tests.pipeline.rows import START_US, Numbering, keys_of, ledger_part, ledger_row, write_journal

Record = tuple[bytes | None, bytes | None]

STEP_US = 1_000_000
"""Between two answers."""


@dataclass
class Log:
    """A partition."""

    records: dict[int, Record] = field(default_factory=dict)
    earliest: int = 0
    latest: int = 0


class World:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.logs: dict[str, dict[int, Log]] = defaultdict(lambda: defaultdict(Log))
        self.rows: list[Row] = []
        self.compacted: set[str] = set()
        self.ids: dict[str, str] = {}
        """Topic ids now."""
        self.read: list[Range] = []
        """The ranges of the last audit."""
        self.asked: list[tuple[Kinds, Sequence[str]]] = []
        """Which rows, and which columns of them, it read of the journal."""
        self.now_us = START_US
        self.topic = "t"
        """Where everything happens, unless another one is named."""
        self._spark = spark
        self._folder = folder
        self._records = 0
        self._written = 0
        self._numbering = Numbering()

    # --- what happens ---

    def made(self, count: int, key: bytes | None = None) -> list[Record]:
        """Records that nobody has seen before."""
        first, self._records = self._records, self._records + count
        return [(key, b"value %d" % number) for number in range(first, self._records)]

    def log(self, partition: int = 0) -> Log:
        return self.logs[self.topic][partition]

    def append(self, records: Sequence[Record], partition: int = 0) -> int:
        """To the topic, past the proxy; the offset of the first."""
        log = self.log(partition)
        base = log.latest
        log.records.update(enumerate(records, base))
        log.latest += len(records)
        return base

    def part(self, records: Sequence[Record], partition: int = 0) -> LedgerPart:
        """Appended, and told so."""
        return ledger_part(records, partition=partition, base_offset=self.append(records, partition))

    def keyed(self, records: Sequence[Record]) -> LedgerPart:
        """The same of a proxy with journal.ledger.keys."""
        return msgspec.structs.replace(self.part(records), **keys_of(records))

    def answer(self, parts: list[LedgerPart], **given: object) -> LedgerRow:
        """The next request of its connection is answered."""
        self.now_us += STEP_US
        row = ledger_row(parts, **{"topic": self.topic, "number": len(self.rows), "time_us": self.now_us, **given})
        self.rows.append(row)
        return row

    def send(self, records: Sequence[Record], partition: int = 0, **given: object) -> LedgerRow:
        """Appended where the client wanted, and acknowledged."""
        return self.answer([self.part(records, partition)], **given)

    def refuse(self, records: Sequence[Record], **given: object) -> LedgerRow:
        """The client is told that nobody knows (REQUEST_TIMED_OUT)."""
        return self.answer([ledger_part(records, base_offset=-1)], error_code=7, **given)

    def time_out(self, records: Sequence[Record], **given: object) -> None:
        """Appended, but the client is told that nobody knows."""
        self.append(records)
        self.refuse(records, **given)

    def expire(self, before: int, partition: int = 0) -> None:
        log = self.log(partition)
        log.earliest = before
        log.records = {offset: record for offset, record in log.records.items() if offset >= before}

    def cut(self, end: int, partition: int = 0) -> None:
        """As after an election that lost records."""
        log = self.log(partition)
        log.latest = end
        log.records = {offset: record for offset, record in log.records.items() if offset < end}

    # --- topics, as audit_topics.Topics ---

    def cluster_id(self) -> str:
        return "here"

    def now(self, names: Collection[str]) -> dict[str, TopicNow]:
        return {
            name: TopicNow(
                {partition: Ends(log.earliest, log.latest) for partition, log in self.logs[name].items()},
                name in self.compacted,
                self.ids.get(name, ""),
            )
            for name in names
            if name in self.logs
        }

    def told(self, names: Collection[str], *, policies: bool) -> tuple[dict[str, TopicNow], dict[str, CannotRun]]:
        return self.now(names), {}

    def records(self, spark: SparkSession, ranges: Sequence[Range]) -> DataFrame:
        self.read = list(ranges)
        held = [
            (each.topic, each.partition, offset, *record)
            for each in ranges
            for offset, record in self.logs[each.topic][each.partition].records.items()
            if each.first <= offset < each.last_end
        ]
        return spark.createDataFrame(held, RECORD_COLUMNS)

    # --- audits ---

    def close_files(self) -> None:
        """The rows until here are in files that an audit reads."""
        if new := self.rows[self._written :]:
            write_journal(self._folder, self._numbering.of(new), f"rows-{self._written}")
            self._written = len(self.rows)

    def file(self, number: int) -> Path:
        """A closed file, the first one with 0."""
        files = self._folder.glob("dt=*/hour=*/rows-*")
        return sorted(files, key=lambda path: int(path.name.split(".")[0][5:]))[number]

    def audit_on(self, scope: AuditScope) -> tuple[AuditResult, AuditState]:
        self.close_files()
        read = reader(self._spark, JournalPlace(str(self._folder)))
        self.asked.clear()

        def journal(kinds: Kinds = (), columns: Sequence[str] = ()) -> DataFrame:
            self.asked.append((kinds, columns))
            return read(kinds, columns)

        return audit(self._spark, journal, self, scope)

    def audit(self, scope: AuditScope | None = None) -> AuditResult:
        return self.audit_on(scope or AuditScope())[0]


def counted(*lines: Counts) -> dict[str, int]:
    """Their sums, without those that are 0."""
    sums = {name: sum(getattr(line, name) for line in lines) for name in Counts.__struct_fields__}
    return {name: count for name, count in sums.items() if count}
