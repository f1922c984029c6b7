"""The job `watch` as a person runs it, beside brokers that are none; tests/integration/test_watch.py has real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from pyspark.sql import SparkSession

from forebay_pipeline.watch import command
from tests.pipeline.command_line import run
from tests.pipeline.rows import gauge_row, write_journal
from tests.pipeline.watch.made_up import FIRST, SECOND, Topics, sent, topic


class Job:
    """A journal in files, a cluster with `t`, of 15 records, and what the job makes of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.journal, self.output = folder / "journal", folder / "told"
        self.topics = Topics({"t": topic(15, topic_id="i")})
        monkeypatch.setattr(command, "KafkaTopics", lambda brokers: self.topics)
        self._files = 0

    def write(self, *rows: Any) -> None:
        self._files += 1
        write_journal(self.journal, rows, name=f"{self._files:03}")

    def quiet(self, second: float) -> None:
        """Nothing but time goes on."""
        self.write(gauge_row(time_us=FIRST + int(second * SECOND), cluster_id="c"))

    def once(self, *words: object) -> Result:
        where = ["--journal", self.journal, "--bootstrap-servers", "a:1", "--once", "--late", 30]
        return run("watch", *where, *words)

    def told(self) -> list[tuple[str, str, int | None]]:
        """(minute, topic id, lost)"""
        lines = b"".join(path.read_bytes() for path in sorted(self.output.glob("*.jsonl"))).splitlines()
        return [(told["minute"], told["topic_id"], told["lost"]) for told in map(json.loads, lines)]


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(tmp_path, monkeypatch)


def test_each_minute_is_told_once_over_restarts_and_what_a_crash_left(job: Job, tmp_path: Path) -> None:
    """A batch whose minutes were written, and which was not committed, is done again."""
    metrics = tmp_path / "forebay.prom"
    words = ("--output", job.output, "--prometheus", metrics)
    job.write(sent(5, topic_id="i"), sent(95, topic_id="i"))
    done = job.once(*words)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert job.told() == [("2026-11-18T11:08:00Z", "i", 0)]
    job.write(sent(100, base_offset=10, topic_id="i"))
    job.quiet(200)
    assert job.once(*words).exit_code == 1
    both = [("2026-11-18T11:08:00Z", "i", 0), ("2026-11-18T11:09:00Z", "i", 5)]
    assert job.told() == both
    assert 'forebay_watch_lost_records_total{cluster_id="",topic="t",topic_id="i"} 5\n' in metrics.read_text()
    for last in max_commits(job.output / "_checkpoint" / "commits", 2):
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    assert job.once(*words).exit_code == 1
    assert job.told() == both


def max_commits(folder: Path, count: int) -> list[Path]:
    return sorted(folder.glob("[0-9]*"), key=lambda path: int(path.name))[-count:]


def test_another_jobs_checkpoint_is_refused(job: Job) -> None:
    """That of one that has told nothing, too: what it has read would not be told of by others that share its output."""
    job.write(sent(5, topic_id="i"), sent(95, topic_id="i"))
    done = run("runaways", "--journal", job.journal, "--once", "--late", 30, "--output", job.output)
    assert (done.exit_code, done.stderr) == (0, "")
    for name, refused in (
        ("watch", job.once("--output", job.output)),
        ("compact", run("compact", "--journal", job.journal, "--output", job.output)),
    ):
        assert (refused.exit_code, refused.stdout, refused.stderr) == (
            2,
            "",
            f"forebay-pipeline: The checkpoint {job.output}/_checkpoint is that of `runaways`: `{name}` would leave "
            "out what that one has read. Give another checkpoint, or another output.\n",
        )


def test_sentences_and_what_could_not_be_checked(job: Job) -> None:
    job.topics.silent = True
    job.write(sent(5))
    job.quiet(95)
    done = job.once("--slow", 3)
    assert done.exit_code == 3
    assert done.stdout == (
        "2026-11-18T11:08:00Z t: 10 records acknowledged (p50 2.0 ms, p99 2.0 ms), loss not checked\n"
    )
    assert "1 minutes of topics are not checked for loss" in done.stderr
    job.topics.silent = False
    assert job.once("--slow", 1).exit_code == 1


def test_where_no_minute_was_judged_that_is_said(job: Job) -> None:
    """Once one was, there need not be a new one each time; it may be one in which nothing was sent."""
    checkpoint = ("--checkpoint", job.output / "checkpoint")
    job.write(sent(5))
    job.quiet(70)
    for _ in range(2):
        done = job.once(*checkpoint)
        assert (done.exit_code, done.stdout) == (3, "")
        assert done.stderr == "No minute was judged: the journal has no rows that are 30 s later than one's end.\n"
    job.quiet(95)
    assert job.once(*checkpoint).exit_code == 0
    done = job.once(*checkpoint)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


def test_without_a_ledger_nothing_is_watched(job: Job) -> None:
    for second in (5, 10, 95):
        told = {"batch_rows_total": 100, "ledger_rows_total": 0}
        job.write(gauge_row(time_us=FIRST + second * SECOND, process="here-0", cluster_id="c", **told))
    done = job.once()
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr == "Nothing that here-0 sends is watched: it needs journal.ledger=true.\n"


def test_what_it_cannot_write_is_one_sentence(job: Job, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    job.write(sent(5))
    job.quiet(95)
    done = job.once("--prometheus", tmp_path / "file" / "forebay.prom")
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"forebay-pipeline: Cannot write {tmp_path}/file/forebay.prom: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--journal", "j", "--slow", "nan"], "'nan' is not a finite number"),
        (["--journal", "j"], "watch requires --bootstrap-servers: it asks the brokers where topics end"),
        (
            ["--journal", "j", "--bootstrap-servers", "a:1", "--webhook", "http://a"],
            "--to-topic and --webhook require --checkpoint: else all would be told again",
        ),
        (
            ["--journal", "j", "--bootstrap-servers", "a:1", "--webhook", "a", "--checkpoint", "c"],
            "The webhook must be a URL that begins with http:// or https://.",
        ),
    ],
)
def test_what_it_cannot_do_is_one_sentence(words: list[str], said: str) -> None:
    done = run("watch", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].endswith(said)


def test_what_compact_wrote_is_not_watched(job: Job) -> None:
    (job.journal / "kind=batch").mkdir(parents=True)
    done = job.once()
    assert done.stderr == (
        f"forebay-pipeline: {job.journal} was written by `compact`; watch reads what the proxy writes (dt=…/hour=…).\n"
    )
