"""What jobs do with a journal, and with what they keep, that is not on a local disk: the same wherever it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from forebay_pipeline.audit import command as audit
from forebay_pipeline.storage import Storage
from forebay_pipeline.watch import command as watch
from tests.pipeline import rows as make
from tests.pipeline.audit.world import World
from tests.pipeline.command_line import run
from tests.pipeline.rows import write_journal
from tests.pipeline.watch.made_up import FIRST, SECOND, Topics, sent, topic


class Elsewhere:
    """`at` makes an address of a name there; `put` brings a folder there, and tells its address."""

    def __init__(self, spark: SparkSession, at: Callable[[str], str], put: Callable[[Path], str]) -> None:
        self._storage = Storage(spark)
        self._spark = spark
        self._at = at
        self._put = put

    def jobs_find_the_same(self, folder: Path, jobs: Iterable[str], written: Iterable[str]) -> tuple[str, str]:
        """As on the local disk, where `folder` is; both places. `{0}` in a job is the one, and then the other.

        `written`: names of what is the same in both then: files, or folders of lines.
        """
        here, there = str(folder), self._put(folder)
        for job in jobs:
            of_here, of_there = (run(*job.format(place).split()) for place in (here, there))
            assert (of_there.exit_code, of_there.stderr) == (0, of_here.stderr.replace(here, there)), job
            assert of_there.stdout == of_here.stdout.replace(here, there), job
        for name in written:
            content = self._content(f"{here}/{name}")
            assert content, name
            assert self._content(f"{there}/{name}") == content.replace(here.encode(), there.encode()), name
        return here, there

    def _content(self, place: str) -> bytes:
        """Of a folder: all its visible files, one after the other."""
        if not self._storage.is_folder(place):
            return self._storage.read(place) or b""
        names = (name for name in self._storage.names(place) if not name.startswith(("_", ".")))
        return b"".join(self._storage.read(f"{place}/{name}") or b"" for name in names)

    def audit_carries_on(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """From the state that it has written."""
        world = World(self._spark, folder / "audited")
        monkeypatch.setattr(audit, "KafkaTopics", lambda brokers: world)
        world.send(world.made(5))
        world.rows.append(make.gauge_row(process="here-1", last=True))
        world.close_files()
        words = ["--journal", self._put(folder / "audited"), "--bootstrap-servers", "any:9092", "--to", "2026-12-01"]
        words += ["--state", self._at("state/audit.state"), "--output", self._at("audit.json")]
        for checked in (5, 0):
            done = CliRunner().invoke(audit.command, words)
            assert (done.exit_code, done.stderr) == (0, "")
            assert f"Clean: {checked} of {checked}" in done.stdout
        assert self._storage.names(self._at("state")) == ["audit.state"]

    def watch_tells_a_minute_once(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Though it runs twice: the second time goes on from the checkpoint, and the state in it."""
        monkeypatch.setattr(watch, "KafkaTopics", lambda brokers: Topics({"t": topic(15, topic_id="i")}))
        later = make.gauge_row(time_us=FIRST + 95 * SECOND, cluster_id="c")
        write_journal(folder / "watched", [sent(5, 10, topic_id="i"), later])
        words = ["--journal", self._put(folder / "watched"), "--bootstrap-servers", "a:1", "--once", "--late", 30]
        words += ["--output", self._at("told"), "--prometheus", self._at("forebay.prom")]
        for exit_code in (1, 0):
            done = run("watch", *words)
            assert (done.exit_code, done.stdout, done.stderr) == (exit_code, "", "")
        (name,) = (name for name in self._storage.names(self._at("told")) if name.endswith(".jsonl"))
        line = self._storage.read(self._at(f"told/{name}"))
        assert line is not None
        assert msgspec.json.decode(line)["lost"] == 5
        metrics = self._storage.read(self._at("forebay.prom"))
        assert metrics is not None
        assert b"forebay_watch_lost_records_total" in metrics

    def what_is_not_there_is_one_sentence(self, nobody: str) -> None:
        """`nobody`: a journal's address where nobody answers."""
        assert self._storage.read(self._at("none")) is None
        for journal in (self._at("none"), nobody):
            done = run("compact", "--journal", journal, "--output", self._at("p"))
            assert done.exit_code == 2
            (line,) = done.stderr.splitlines()
            assert line.startswith("forebay-pipeline: ")
            assert journal in line
