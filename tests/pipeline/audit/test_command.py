"""The command as a user meets it: what it prints, its exit codes, and one sentence where it cannot run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from forebay_pipeline.audit import command as audit
from forebay_pipeline.audit import run as audit_run
from forebay_pipeline.audit import topics as audit_topics
from forebay_pipeline.audit.losses import Losses, losses
from forebay_pipeline.audit.result import AuditResult, Kind
from forebay_pipeline.audit.state import AuditState, ProcessMark
from forebay_pipeline.errors import CLEAN, COULD_NOT_RUN, FINDINGS, INCOMPLETE
from forebay_pipeline.journal import brokers
from tests.kit.ports import LOOPBACK, free_port
from tests.pipeline.audit.world import World
from tests.pipeline.command_line import FEW_SHUFFLES
from tests.pipeline.rows import gauge_row, write_journal


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(audit.command, [*map(str, words), *FEW_SHUFFLES])


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Its topics are those that the command finds at any brokers."""
    world = World(spark, tmp_path / "journal")
    monkeypatch.setattr(audit, "KafkaTopics", lambda brokers: world)
    return world


def test_findings_as_text_and_json_and_where_the_next_audit_begins(world: World, tmp_path: Path) -> None:
    world.send(world.made(5), client_id="loser")
    world.close_files()
    del world.log().records[3]
    output, state = tmp_path / "audit.json", tmp_path / "state.json"
    words = ("--journal", tmp_path / "journal", "--bootstrap-servers", "any:9092", "--state", state, "--output", output)
    result = run(*words, "--to", "2026-12-01")
    assert (result.exit_code, result.stderr) == (FINDINGS, "")
    assert "FINDINGS, in records: 1 missing." in result.stdout
    told = msgspec.json.decode(output.read_bytes(), type=AuditResult)
    assert [(line.client_id, line.acknowledged, line.missing) for line in told.clients] == [("loser", 5, 1)]
    assert [(finding.kind, finding.first_offset) for finding in told.findings] == [(Kind.MISSING, 3)]

    again = run(*words, "--to", "2026-12-01")
    assert (again.exit_code, again.stdout.splitlines()[-1]) == (
        CLEAN,
        "Clean: 0 of 0 acknowledged records are there, once and unchanged.",
    )


@pytest.mark.parametrize("carries_on", [True, False])
def test_young_rows_are_left_to_a_later_audit(world: World, tmp_path: Path, *, carries_on: bool) -> None:
    """Here: of fewer than nine years."""
    world.send(world.made(5))
    world.close_files()
    words = ("--journal", tmp_path / "journal", "--bootstrap-servers", "any:9092", "--settle", "3e8")
    result = run(*words, *(("--state", tmp_path / "state.json") if carries_on else ()))
    assert (result.exit_code, "no ledger rows" in result.stderr) == (COULD_NOT_RUN, True)
    assert not (tmp_path / "state.json").exists()


def test_a_state_stays_as_it_was_where_files_are_deleted_meanwhile(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the files that it knows: what came late is late for the next audit, too."""
    row = world.send(world.made(5))
    world.close_files()

    def then_deleted(*given: Any) -> Losses:
        lost = losses(*given)
        world.file(0).unlink()
        return lost

    monkeypatch.setattr(audit_run, "losses", then_deleted)
    state = tmp_path / "state.json"
    before = msgspec.json.encode(AuditState(processes={"before-0": ProcessMark(row.time_us, [])}))
    state.write_bytes(before)
    words = ("--journal", tmp_path / "journal", "--bootstrap-servers", "any:9092", "--state", state)
    result = run(*words, "--to", "2026-12-01")
    assert (result.exit_code, "Deleted while it was audited: 1 ledger rows." in result.stdout) == (INCOMPLETE, True)
    assert state.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--bootstrap-servers", "any:9092"], "give either --journal or --journal-topic"),
        (["--journal", "."], "audit requires --bootstrap-servers"),
        (["--journal", ".", "--bootstrap-servers", "any:9092", "--settle", "-1"], "--settle"),
        (["--journal", ".", "--bootstrap-servers", "any:9092", "--settle", "nan"], "'nan' is not a finite number"),
        (["--journal", ".", "--bootstrap-servers", "any:9092", "--settle", "inf"], "'inf' is not a finite number"),
        (["--journal", ".", "--bootstrap-servers", "any:9092", "--from", "now"], "--from"),
        (
            ["--journal", ".", "--bootstrap-servers", "any:9092", "--from", "2100-01-01"],
            "--from is younger than --settle",
        ),
        (
            ["--journal", ".", "--bootstrap-servers", "any:9092", "--from", "2026-11-02", "--to", "2026-11-01"],
            "--from must be before --to",
        ),
    ],
)
def test_what_makes_no_sense(words: list[str], why: str) -> None:
    result = run(*words)
    assert (result.exit_code, why in result.stderr, "Traceback" in result.stderr) == (COULD_NOT_RUN, True, False)


def one_sentence(result: Result) -> str:
    assert result.exit_code == COULD_NOT_RUN
    (line,) = result.stderr.splitlines()
    return line


def test_without_a_journal(spark: SparkSession, tmp_path: Path) -> None:
    line = one_sentence(run("--journal", tmp_path / "none", "--bootstrap-servers", "any:9092"))
    assert line == f"forebay-pipeline: There is no journal in {tmp_path / 'none'}: no such folder."


def test_without_a_ledger(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path, [gauge_row()])
    line = one_sentence(run("--journal", tmp_path, "--bootstrap-servers", "any:9092", "--to", "2026-12-01"))
    assert "The journal has no ledger rows in that span: was journal.ledger on? " in line


def test_without_brokers(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "KafkaTopics", audit_topics.KafkaTopics)
    monkeypatch.setattr(brokers, "CONNECT_S", 1)
    world.send(world.made(5))
    world.close_files()
    nobody = f"{LOOPBACK}:{free_port()}"
    line = one_sentence(run("--journal", tmp_path / "journal", "--bootstrap-servers", nobody, "--to", "2026-12-01"))
    assert line.startswith(f"forebay-pipeline: No broker answers at {nobody}: ")


def test_with_a_state_of_something_else(spark: SparkSession, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text("[]")
    line = one_sentence(run("--journal", tmp_path, "--bootstrap-servers", "any:9092", "--state", state))
    assert f"{state} is not the state of an audit" in line


@pytest.mark.whole
def test_where_the_result_cannot_be_written(world: World, tmp_path: Path) -> None:
    world.send(world.made(5))
    world.rows.append(gauge_row(process="here-1", last=True))
    world.close_files()
    words = ("--journal", tmp_path / "journal", "--bootstrap-servers", "any:9092", "--state", tmp_path / "state.json")
    result = run(*words, "--to", "2026-12-01", "--output", tmp_path)
    assert "Clean: 5 of 5" in result.stdout
    assert one_sentence(result) == f"forebay-pipeline: Cannot write {tmp_path}: it is a folder."
    assert not (tmp_path / "state.json").exists()
