"""The audit of a real journal against a real Kafka, with connections cut and answers delayed in between.

What it should say is counted independently, from the topic itself: which record is there, and how often. Upstream
Forebay sends at least once, so that answers which are lost are told as such, and exactly once.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, Message, Producer
from pyspark.sql import SparkSession

from forebay_pipeline.audit import command as audit
from forebay_pipeline.audit.result import AuditResult, Finding, Kind
from forebay_pipeline.errors import CLEAN, FINDINGS, INCOMPLETE
from forebay_policies.journal_rows import FILE_SUFFIX, BatchRow, LedgerPart, LedgerRow, Row
from tests.kit.forebay import ForebayProcess
from tests.kit.journal import closed_files, lines_of, of, rows_in
from tests.kit.kafka import KafkaCluster
from tests.kit.paths import JARS
from tests.kit.ports import free_ports
from tests.kit.spec import ConsumedRecord
from tests.kit.topic_log import TopicLog
from tests.kit.toxiproxy import ToxiproxyServer
from tests.pipeline.rows import write_journal

pytestmark = [pytest.mark.integration, pytest.mark.whole]  # tests/pipeline/audit has each fault

TOPIC = "audited"
PARTITIONS = 3
LATENCY_MS = 150
STATE = "state.json"
WHOLE = ("--to", "2100-01-01")
"""Options: what is younger than --settle, too."""


@dataclass
class Stage:
    """Brokers behind toxiproxy, and a folder for journals. Forebay comes and goes."""

    toxiproxy: ToxiproxyServer
    cluster: KafkaCluster
    log: TopicLog
    folder: Path
    exactly_once: bool
    sent: int = 0
    acknowledged: list[bytes] = field(default_factory=list)

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    @property
    def state(self) -> tuple[str, ...]:
        """Options: each audit carries on from the one before."""
        return "--state", str(self.folder / STATE), "--settle", "0"

    def forebay(self) -> ForebayProcess:
        settings = {
            "journal.dir": str(self.journal),
            "journal.ledger": "true",
            "journal.roll.ms": "1000",
            "request.timeout.ms": "2000",
            "socket.connection.setup.timeout.ms": "1000",
            "enable.idempotence": str(self.exactly_once).lower(),
        }
        return ForebayProcess(self.cluster.bootstrap, self.cluster.nodes, settings=settings)

    def hops(self) -> list[str]:
        return [f"broker-{node}" for node in self.cluster.nodes]

    def found(self) -> list[ConsumedRecord]:
        return self.log.read(TOPIC, dict.fromkeys(range(PARTITIONS), 0))


@pytest.fixture(
    scope="module",
    params=[False, True],
    ids=["at least once", "exactly once"],
)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with ExitStack() as stack:
        toxiproxy = stack.enter_context(ToxiproxyServer())
        ports = dict(enumerate(free_ports(3)))
        advertised = {node: toxiproxy.proxy(f"broker-{node}", port) for node, port in ports.items()}
        cluster = stack.enter_context(KafkaCluster("4.3.1", ports=ports, advertised=advertised))
        cluster.create_topic(TOPIC, PARTITIONS)
        log = stack.enter_context(TopicLog(cluster.internal))
        yield Stage(toxiproxy, cluster, log, tmp_path_factory.mktemp("audit"), request.param)


class Load:
    """A producer that sends again what was answered with an error, whatever may be there: librdkafka's default."""

    def __init__(self, stage: Stage, bootstrap: str) -> None:
        self._stage = stage
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "load",
                "linger.ms": 5,
                "batch.num.messages": 20,
                "message.timeout.ms": 60_000,
                "retry.backoff.ms": 100,
                "log_level": 0,
            }
        )

    def send(self, partition: int | None = None) -> None:
        """One record that is like no other: with a key, or, to no partition in particular, without one."""
        number, self._stage.sent = self._stage.sent, self._stage.sent + 1
        optional = {} if partition is None else {"partition": partition, "key": b"key"}
        self._producer.produce(TOPIC, b"value %d" % number, on_delivery=self._delivered, **optional)  # type: ignore[arg-type]
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is None and value is not None:
            self._stage.acknowledged.append(value)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    def everywhere(self) -> None:
        """A record to each partition, acknowledged before this returns: a fixed point in each log."""
        for partition in range(PARTITIONS):
            self.send(partition)
        self.flush()

    def run(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for partition in (None, 0, None, 1, None, 2):
                self.send(partition)
            time.sleep(0.005)


def produce_under_faults(stage: Stage) -> None:
    with stage.forebay() as forebay:
        load = Load(stage, forebay.bootstrap)
        load.everywhere()
        load.run(1)
        for hop in stage.hops():
            stage.toxiproxy.add_latency(hop, LATENCY_MS)
        load.run(1)
        for hop in stage.hops():  # answers are under way: what they would tell is not known
            stage.toxiproxy.cut(hop)
            load.run(0.5)
            stage.toxiproxy.mend(hop)
            load.run(1)
        for hop in stage.hops():
            stage.toxiproxy.remove_latency(hop)
        load.flush()
        load.everywhere()


def run_audit(stage: Stage, spark: SparkSession, journal: Path, *words: str) -> AuditResult:
    output = stage.folder / "audit.json"
    output.unlink(missing_ok=True)
    where = ["--journal", str(journal), "--bootstrap-servers", stage.cluster.internal]
    spark_words = ["--jars", str(JARS / "spark-kafka"), "--master", "local[2]"]
    done = CliRunner().invoke(audit.command, [*where, *spark_words, "--output", str(output), *words])
    assert output.exists(), done.output
    result = msgspec.json.decode(output.read_bytes(), type=AuditResult)
    assert done.exit_code == result.exit_code, done.output
    return result


def of_kind(result: AuditResult, kind: Kind) -> list[Finding]:
    return [finding for finding in result.findings if finding.kind is kind]


def repeated(found: list[ConsumedRecord]) -> int:
    """Records beyond the first of their content."""
    return sum(times - 1 for times in Counter(record.value for record in found).values())


def test_an_audit_of_faults(stage: Stage, spark: SparkSession) -> None:
    produce_under_faults(stage)
    found = stage.found()
    # The fault was one: something was answered with an error, or sent again. And nothing that was acknowledged is gone.
    result = run_audit(stage, spark, stage.journal, *stage.state)
    totals = result.totals
    if stage.exactly_once:
        assert any(row.tries for row in of(BatchRow, rows_in(stage.journal)))
        assert (totals.unacknowledged, totals.duplicated, result.exit_code) == (0, 0, CLEAN)
    else:
        assert totals.unacknowledged > 0
    assert {record.value for record in found} >= set(stage.acknowledged)
    assert totals.acknowledged == totals.present >= len(stage.acknowledged) == stage.sent
    assert {finding.kind for finding in result.findings} <= {Kind.DUPLICATED}
    assert totals.duplicated == repeated(found)
    assert all(finding.note.endswith("retried by the client") for finding in result.findings)
    assert totals.present + totals.duplicated + totals.unconfirmed == len(found)
    assert [(topic.topic, topic.unclaimed, topic.later) for topic in result.topics] == [(TOPIC, 0, 0)]
    assert (result.rows_dropped, result.lines_torn, result.rows_missing, result.incomplete) == (0, 0, 0, [])


def test_an_audit_that_carries_on_finds_what_was_planted_since(stage: Stage, spark: SparkSession) -> None:
    if not (stage.folder / STATE).exists():
        produce_under_faults(stage)
        run_audit(stage, spark, stage.journal, *stage.state)
    row, part = a_part(stage)
    send_again(stage, part)
    with stage.forebay() as forebay:
        Load(stage, forebay.bootstrap).everywhere()
    result = run_audit(stage, spark, stage.journal, *stage.state)
    assert (result.rows, result.totals.acknowledged, result.totals.present) == (PARTITIONS, PARTITIONS, PARTITIONS)
    (finding,) = result.findings
    assert (finding.kind, finding.records, finding.number) == (Kind.DUPLICATED, part.records, row.number)
    assert finding.note == f"also at offset {part.base_offset} of partition {part.partition}, unexplained"
    assert result.topics[0].unclaimed == 0


def test_an_audit_of_a_journal_of_which_a_file_is_gone(stage: Stage, spark: SparkSession) -> None:
    """What it told of is not known any more, and that is noticed."""
    produce_under_faults(stage)
    lacking = stage.folder / "lacking"
    shutil.copytree(stage.journal, lacking)
    files = closed_files(lacking)
    gone = files[1]  # not the last one of a process, of which no numbers are known
    rows = len(lines_of(gone))
    gone.unlink()
    result = run_audit(stage, spark, lacking, *WHOLE)
    assert (result.rows_missing, result.exit_code) == (rows, FINDINGS if result.findings else INCOMPLETE)
    assert result.incomplete[0].startswith(f"Not there: {rows:,} journal rows, by their numbers: ")


def test_an_audit_of_a_journal_of_which_a_process_is_gone(stage: Stage, spark: SparkSession) -> None:
    """The one that came after it knows."""
    for _ in range(2):
        with stage.forebay() as forebay:
            Load(stage, forebay.bootstrap).everywhere()
    lacking = stage.folder / "process"
    shutil.copytree(stage.journal, lacking)
    written = sorted(
        closed_files(lacking), key=lambda path: int(path.name.removesuffix(FILE_SUFFIX).rpartition("-")[2], 16)
    )
    writers = list(dict.fromkeys(path.name.rsplit("-", 2)[0] for path in written))
    files = [path for path in written if path.name.startswith(f"{writers[-2]}-")]
    for path in files:
        path.unlink()
    result = run_audit(stage, spark, lacking, "--settle", "0")
    assert (result.rows_missing, result.exit_code) == (0, FINDINGS if result.findings else INCOMPLETE)
    name = files[-1].name.removesuffix(FILE_SUFFIX)
    assert f"Not there: all files of processes that others knew when they began: {name}." in result.incomplete


def test_an_audit_of_a_falsified_journal_then_of_nothing_new(stage: Stage, spark: SparkSession) -> None:
    produce_under_faults(stage)
    row, part = a_part(stage)
    ends = stage.log.ends(TOPIC)
    lost, other = falsified(stage, row, part, ends[0])
    result = run_audit(stage, spark, stage.folder / "falsified", *WHOLE)
    assert result.totals.missing == lost.records
    assert [(each.partition, each.first_offset, each.last_offset) for each in of_kind(result, Kind.MISSING)] == [
        (0, ends[0], ends[0] + lost.records - 1)
    ]
    (changed,) = of_kind(result, Kind.ALTERED)
    assert (changed.number, changed.first_offset, changed.records) == (other.number, part.base_offset, part.records)
    found = stage.found()
    changed_values = {record.value for record in found if is_in(part, record)}
    assert result.totals.duplicated >= repeated([record for record in found if record.value not in changed_values])
    state = ("--state", str(stage.folder / "again.json"), "--settle", "0")
    assert run_audit(stage, spark, stage.journal, *state).rows > 0
    assert run_audit(stage, spark, stage.journal, *state).rows == 0


def test_faults_that_are_planted_together_are_all_found(stage: Stage, spark: SparkSession) -> None:
    """A claim of what is not there, another content, records that are there once more, and a row that is gone."""
    produce_under_faults(stage)
    newest = {(row.process, row.number): (row, part) for row, part in parts(stage)}  # others planted in the first ones
    (row, part), (once_more, again), (gone, _) = list(newest.values())[-3:]
    send_again(stage, again)
    with stage.forebay() as forebay:  # what is behind the last claim is not looked at
        Load(stage, forebay.bootstrap).everywhere()
    lost, _ = falsified(stage, row, part, stage.log.ends(TOPIC)[0], without=gone)
    result = run_audit(stage, spark, stage.folder / "falsified", *WHOLE)
    assert (result.exit_code, result.rows_missing) == (FINDINGS, 1)
    assert [each.records for each in of_kind(result, Kind.MISSING)] == [lost.records]
    assert [(each.number, each.records) for each in of_kind(result, Kind.ALTERED)] == [(row.number, part.records)]
    assert result.totals.duplicated >= again.records
    if stage.exactly_once:  # else it is among hundreds, of which the result names some
        unexplained = [each for each in of_kind(result, Kind.DUPLICATED) if each.note.endswith("unexplained")]
        assert (once_more.number, again.records) in [(each.number, each.records) for each in unexplained]


def a_part(stage: Stage) -> tuple[LedgerRow, LedgerPart]:
    """One of several records that was acknowledged, and no client of which ever sent again."""
    return next(parts(stage))


def parts(stage: Stage) -> Iterator[tuple[LedgerRow, LedgerPart]]:
    """All such."""
    rows = of(LedgerRow, rows_in(stage.journal))
    refused = {part.crc for row in rows if row.error_code != 0 for part in row.parts}
    for row in rows:
        for part in row.parts:
            whole = row.error_code == 0 and part.records > 3 and part.base_offset >= 0
            if whole and part.crc not in refused:
                yield row, part


def is_in(part: LedgerPart, record: ConsumedRecord) -> bool:
    end = part.base_offset + part.records
    return record.partition == part.partition and part.base_offset <= record.offset < end


def send_again(stage: Stage, part: LedgerPart) -> None:
    """Its records once more, past Forebay, to a partition that is not theirs."""
    mine = [record for record in stage.found() if is_in(part, record)]
    producer = Producer({"bootstrap.servers": stage.cluster.internal, "linger.ms": 100, "log_level": 0})
    for record in sorted(mine, key=lambda record: record.offset):
        elsewhere = (part.partition + 1) % PARTITIONS
        producer.produce(TOPIC, record.value, record.key, partition=elsewhere)
    assert producer.flush(60) == 0


def falsified(
    stage: Stage, row: LedgerRow, part: LedgerPart, end: int, without: LedgerRow | None = None
) -> tuple[LedgerPart, LedgerRow]:
    """A journal that claims what is beyond the log's end, and another content: what was claimed, and the row."""
    rows: list[Row] = [each for each in rows_in(stage.journal) if each != without]
    lost = msgspec.structs.replace(part, partition=0, base_offset=end)
    claim = msgspec.structs.replace(row, partition=0, number=row.number + 1_000_000, parts=[lost])
    wrong = [msgspec.structs.replace(each, crc=each.crc ^ 1) if each == part else each for each in row.parts]
    rows = [msgspec.structs.replace(row, parts=wrong) if each == row else each for each in rows]
    write_journal(stage.folder / "falsified", [*rows, claim])
    return lost, row
