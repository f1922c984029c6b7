"""The job `report` as a person runs it: the page of a journal from end to end."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from forebay_policies.journal_rows import Row
from tests.kit.browser import Browser
from tests.pipeline.command_line import run
from tests.pipeline.report.known import known
from tests.pipeline.rollups.made_up import DAY, FIRST, HOUR, SECOND
from tests.pipeline.rows import START_US, batch_row, gauge_row, ledger_row, observed_row, sized_part, write_journal


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    folder = tmp_path / "journal"
    rows: list[Row] = [
        batch_row(time_us=START_US + second * SECOND, partition=partition, bytes=size, upstream_us=upstream_us)
        for second in range(60)
        for partition, size, upstream_us in ((0, 6000, 39_500), (1, 1000, 1500), (2, 1000, 1500))
    ]
    rows += [gauge_row(time_us=START_US + second * SECOND, pool_available_bytes=2_000_000) for second in range(60)]
    rows.append(ledger_row([sized_part(1, 10)]))
    write_journal(folder, rows)
    return folder


def test_a_page_of_a_journal(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    audit, replay, output = tmp_path / "audit.json", tmp_path / "replay.json", tmp_path / "report.html"
    audit.write_bytes(msgspec.json.encode(known().audit))
    replay.write_bytes(msgspec.json.encode(known().facts.replay))
    result = run("report", "--journal", journal, "--audit", audit, "--replay", replay, "--output", output)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{output}: {output.stat().st_size / 1000:,.0f} kB\n"
    with Browser() as browser:
        view = browser.open(output, 1280)
        assert (view.requests, view.complaints) == ([output.as_uri()], [])
        told = view.ask(
            "[...document.querySelectorAll('.headlines div')].map(one => one.innerText.split('\\n\\n').join(' '))"
        )
        assert [one.split("\n")[:2] for one in told] == [
            ["Records", "1,800"],
            ["Bytes", "480.0 kB"],
            ["Linger p99", "0.5 ms"],
            ["Brokers' answers p99", "39.5 ms"],
            ["Not acknowledged", "0"],
            ["Runaways", "1"],
            ["Waits for memory", "0.0 %"],
            ["Audit", "5 findings"],
            ["Replay", "better settings"],
        ]
        assert "producer-1" in view.ask("document.querySelector('section[aria-labelledby=clients]').innerText")
        assert view.ask("document.querySelector('.advice li').id") == "advice-replay"
        assert view.ask("document.querySelectorAll('figure').length") == 8
        shares = view.ask("document.querySelector('#shares-0-desc').textContent")
        assert shares == (
            "Of the bytes sent, over time: partition 0 75.0 to 75.0 %, "
            "partition 1 12.5 to 12.5 %, partition 2 12.5 to 12.5 %."
        )


@pytest.mark.whole  # test_rolled.py has the numbers, rollups/test_command.py the command
def test_a_page_of_rollups(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    """The same numbers; what is missing is said on the page and in the terminal."""
    rollups, output = tmp_path / "rollups", tmp_path / "report.html"
    write_journal(journal, [gauge_row(time_us=START_US + 2 * DAY)], "later")
    assert run("rollup", "--journal", journal, "--output", rollups).exit_code == 0
    span = ("--from", "2026-11-17", "--to", "2026-11-19")
    result = run("report", "--rollups", rollups, *span, "--output", output)
    missing = "Of 1 of 2 days there are no rollups: 2026-11-17."
    assert (result.exit_code, result.stderr) == (0, f"{missing}\n")
    html = output.read_text()
    for part in (missing, "producer-1", "1,800", "480.0 kB", "rollups in"):
        assert part in html


@pytest.mark.whole
def test_a_page_of_a_time_in_which_nothing_was_merged(spark: SparkSession, tmp_path: Path) -> None:
    """As of idempotent clients, and of what is only observed: of rows and of rollups alike."""
    journal, rollups, output = tmp_path / "journal", tmp_path / "rollups", tmp_path / "report.html"
    rows: list[Row] = [
        ledger_row([], time_us=FIRST + number * SECOND, number=number, topic="orders", reason="idempotent", records=7)
        for number in range(40)
    ]
    rows += [
        observed_row(
            received_us=FIRST + number * SECOND, number=number, topic="clicks", records=2, opens=int(number % 3 == 0)
        )
        for number in range(30)
    ]
    write_journal(journal, [*rows, gauge_row(time_us=FIRST)])
    write_journal(journal, [gauge_row(time_us=FIRST + DAY + 2 * HOUR)], name="later")
    assert run("rollup", "--journal", journal, "--output", rollups).stdout == "2026-11-18: 0 batches\n"
    tables = []
    with Browser() as browser:
        for source in (("--journal", journal), ("--rollups", rollups)):
            result = run("report", *source, "--output", output)
            assert (result.exit_code, result.stderr) == (0, "")
            view = browser.open(output, 1280)
            assert view.complaints == []
            told = view.ask("document.querySelector('.headlines div').innerText.split(/\\n+/)")
            assert told == ["Records", "340", "went on as they came"]
            names = "[...document.querySelectorAll('section')].map(one => one.getAttribute('aria-labelledby'))"
            assert view.ask(names)[1:] == ["clients", "passed-on", "memory"]
            cells = "[...document.querySelectorAll('section[aria-labelledby=passed-on] tbody tr')]"
            tables.append(view.ask(f"{cells}.map(row => [...row.children].map(cell => cell.innerText))"))
    assert tables == 2 * [[["orders", "idempotent", "40", ""], ["clicks", "observed", "30", "10"]]]


def test_what_it_cannot_do_is_one_sentence(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.html"

    def sentence(*arguments: object) -> str:
        result = run("report", "--output", output, *arguments)
        assert result.exit_code == 2
        assert not output.exists()
        (line,) = result.stderr.splitlines()
        return line.removeprefix("forebay-pipeline: ")

    missing, foreign = tmp_path / "missing.json", tmp_path / "foreign.json"
    foreign.write_text('{"hello": 1}')
    assert sentence("--journal", journal, "--audit", missing) == f"Cannot read {missing}: no such file."
    assert sentence("--journal", journal, "--replay", foreign).startswith(
        f"{foreign} was not written by `replay --output`: "
    )
    assert sentence("--journal", journal, "--config", missing).startswith(f"Cannot read {missing}: ")
    assert sentence("--rollups", missing) == f"There are no rollups in {missing}."
    assert sentence("--rollups", missing, "--from", "2026-11-18T11:00") == (
        "--from must be the beginning of a day in UTC: rollups are of whole days."
    )
    assert sentence("--journal", missing) == f"There is no journal in {missing}: no such folder."
    assert sentence("--journal", journal, "--to", "2026-11-18T11:00") == (
        f"There are no batches before 2026-11-18T11:00:00Z in {journal}."
    )
