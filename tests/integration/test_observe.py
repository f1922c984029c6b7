"""Real clients on a real cluster while Forebay only observes, and then, without a restart, while it merges.

What it said that it would do, it does: records move, and fewer batches and requests reach the brokers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

import pytest

from forebay_policies.journal_rows import ObservedRow
from tests.chaos.load import Carriers, Clients
from tests.chaos.reconcile import reconcile
from tests.integration.checks import of_spec, seq_of
from tests.kit.forebay import ForebayProcess
from tests.kit.java import JavaClient
from tests.kit.journal import of, rows_in
from tests.kit.kafka import KafkaCluster
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

PARTITIONS = 6
SOON = 60.0
CLIENTS_SECONDS = 280.0
SOME = 50
"""Acknowledgements of each client: it flows."""
TOPIC = "observed"


def counted(metrics: dict[str, float], name: str, label: str, *values: str) -> list[float]:
    return [metrics[f'forebay_{name}{{{label}="{value}"}}'] for value in values]


def test_nothing_is_touched_until_it_is_no_longer_only_observed(
    cluster: KafkaCluster, jvms: Mapping[str, JavaClient], tmp_path: Path
) -> None:
    cluster.create_topic(TOPIC, PARTITIONS)
    path, journal = tmp_path / "forebay.toml", tmp_path / "journal"
    path.write_text('"moves" = "observe"\n')
    with Clients(jvms=jvms) as clients, TopicLog(cluster.internal) as log:
        tallies = [loader.tally(TOPIC) for loader in clients.loaders]
        accounts = list(zip(clients.loaders, tallies, strict=True))
        forebay = ForebayProcess(
            cluster.bootstrap, cluster.nodes, settings={"journal.dir": str(journal)}, options=["--config", str(path)]
        )
        with forebay, Carriers(forebay.bootstrap, accounts, CLIENTS_SECONDS) as load:
            wait_until(lambda: load.acked_since(load.begun) >= SOME, SOON, "every client is acknowledged")
            before, only_observed = forebay.metrics(), monotonic()
            path.write_text('"moves" = "on"\n')
            os.kill(forebay.pid, signal.SIGHUP)
            wait_until(lambda: "settings reloaded" in forebay.log.read_text(), SOON, "the reload")
            changed = monotonic()
            wait_until(lambda: load.acked_since(changed) >= SOME, SOON, "every client is acknowledged again")
            load.end()
            found = log.read(TOPIC, dict.fromkeys(range(PARTITIONS), 0))
            after, said = forebay.metrics(), forebay.log.read_text()
    findings = reconcile(tallies, found)
    findings.check("observe")
    assert findings.refused == findings.unknown == 0
    assert "Traceback" not in said

    for tally in tallies:
        there = {seq_of(tally.spec, record): record.partition for record in of_spec(tally.spec, found)}
        earlier = [ack for seq, ack in tally.acks.items() if tally.acked_at[seq] < only_observed]
        assert [ack for ack in earlier if there[ack.seq] != ack.partition] == []
    assert counted(before, "records_total", "fate", "moved", "kept") == [0, 0]
    would_move, would_stay = counted(before, "observed_records_total", "fate", "moved", "kept")
    assert would_move > 0
    assert would_stay > 0
    for name in ("observed_batches_total", "observed_requests_total"):
        came, instead = counted(before, name, "side", "client", "upstream")
        assert 0 < instead <= came
    moved, kept = counted(after, "records_total", "fate", "moved", "kept")
    assert moved > 0
    assert kept > 0

    rows = of(ObservedRow, rows_in(journal))
    assert sum(row.records for row in rows) >= would_move + would_stay
    assert any(row.took_us > 0 for row in rows)
    assert {row.leader for row in rows if row.partitions} <= set(cluster.nodes)
    assert {row.error_code for row in rows} <= {0, None}
