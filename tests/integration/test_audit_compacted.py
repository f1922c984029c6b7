"""The audit of a topic that real brokers compact: what the cleaner took is no loss, and a loss is found beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from forebay_pipeline.audit import command as audit
from forebay_pipeline.audit.result import AuditResult, Kind
from forebay_pipeline.errors import CLEAN, FINDINGS
from forebay_policies.journal_rows import LedgerRow, Row
from tests.kit.forebay import ForebayProcess
from tests.kit.journal import of, rows_in
from tests.kit.kafka import KafkaCluster
from tests.kit.spark import KAFKA_JARS
from tests.kit.spec import ConsumedRecord
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until
from tests.pipeline.rows import write_journal

pytestmark = [pytest.mark.integration, pytest.mark.whole]

TOPIC = "compacted"
KEYS = 20
ROUNDS = 30
CLEANER = {"log.cleaner.backoff.ms": "500", "log.cleaner.min.cleanable.ratio": "0.01"}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1048576", "max.compaction.lag.ms": "1000"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster("4.3.1", 1, settings=CLEANER) as cluster:
        yield cluster


def produce(bootstrap: str) -> None:
    """Each key once a round, in batches of a few, each of which is acknowledged before the next."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "load", "acks": "all", "log_level": 0})
    for round_ in range(ROUNDS):
        for key in range(KEYS):
            producer.produce(TOPIC, b"%d " % round_ + b"x" * 10_000, b"key %d" % key)
        assert producer.flush(20) == 0


def audited(folder: Path, cluster: KafkaCluster, output: Path) -> AuditResult:
    words = ["--journal", str(folder), "--bootstrap-servers", cluster.internal, "--output", str(output)]
    words += ["--to", "2100-01-01"]  # younger than --settle, too
    done = CliRunner().invoke(audit.command, [*words, "--jars", str(KAFKA_JARS), "--master", "local[2]"])
    assert output.exists(), done.output
    result = msgspec.json.decode(output.read_bytes(), type=AuditResult)
    assert done.exit_code == result.exit_code, done.output
    return result


@pytest.mark.usefixtures("spark")
def test_what_a_cleaner_took_is_no_loss_and_a_loss_is_found(cluster: KafkaCluster, tmp_path: Path) -> None:
    cluster.create_topic(TOPIC, 1, config=COMPACTED)
    settings = {"journal.dir": str(tmp_path / "journal"), "journal.ledger": "true", "journal.ledger.keys": "true"}
    with ForebayProcess(cluster.bootstrap, cluster.nodes, settings=settings) as forebay:
        produce(forebay.bootstrap)
    with ExitStack() as stack:
        log = stack.enter_context(TopicLog(cluster.internal))

        def there() -> list[ConsumedRecord]:
            return log.read(TOPIC, {0: 0})

        wait_until(lambda: len(there()) < KEYS * ROUNDS // 2, 60, "the cleaner")
        result = audited(tmp_path / "journal", cluster, tmp_path / "clean.json")
        found = {record.offset for record in there()}
    # The cleaner may have gone on after the audit.
    assert (result.exit_code, result.totals.acknowledged) == (CLEAN, KEYS * ROUNDS)
    assert result.totals.present + result.totals.compacted == KEYS * ROUNDS
    assert result.totals.present >= len(found)
    assert result.totals.compacted >= KEYS * ROUNDS // 2
    # A ledger that tells of keys at offsets that are gone now, and of which nothing is left: these were lost.
    rows: list[Row] = rows_in(tmp_path / "journal")
    planted: Counter[int] = Counter()
    for at, row in enumerate(rows):
        if isinstance(row, LedgerRow) and len(planted) < 5:
            (part,) = row.parts
            first = next((n for n in range(part.records) if part.base_offset + n not in found), None)
            if first is not None and part.keys is not None:
                keys = [*part.keys[:first], 4711 + len(planted), *part.keys[first + 1 :]]
                rows[at] = msgspec.structs.replace(row, parts=[msgspec.structs.replace(part, keys=keys)])
                planted[part.base_offset + first] += 1
    write_journal(tmp_path / "planted", rows)
    result = audited(tmp_path / "planted", cluster, tmp_path / "planted.json")
    missing = [each for each in result.findings if each.kind is Kind.MISSING]
    assert (result.exit_code, result.totals.missing, len(missing)) == (FINDINGS, 5, 5)
    assert {each.first_offset for each in missing} == set(planted)
    assert len(of(LedgerRow, rows)) == ROUNDS
