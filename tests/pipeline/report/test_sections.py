"""What stands on the page, without the page."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from forebay_pipeline.advice.facts import Facts, TopicReason
from forebay_pipeline.partitions.summary import NOTHING
from forebay_pipeline.report import plots
from forebay_pipeline.report.sections import MAX_ROWS, Known, covered, headlines, sections, size
from forebay_pipeline.report.svg import Plot
from tests.pipeline.report.known import SECOND, changed, known
from tests.pipeline.rows import START_US


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots take seconds; test_plots.py and test_page.py look at them."""

    def undrawn(name: str, title: str, description: str, *_args: Any, **_kwargs: Any) -> Plot:
        return Plot(name, title, description, "", "")

    monkeypatch.setattr(plots, "plot", undrawn)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (25_953_200, "26.0 MB"), (1e9, "1.0 GB"), (5e15, "5,000.0 TB")],
)
def test_sizes_have_units(count: float, text: str) -> None:
    assert size(count) == text


def test_bad_numbers_are_marked() -> None:
    assert {line.name for line in headlines(known()) if line.bad} == {
        "Not acknowledged",
        "Runaways",
        "Waits for memory",
        "Audit",
    }


def test_without_audit_and_replay_nothing_is_said_of_them() -> None:
    everything = known()
    bare = Known(everything.series, Facts(everything.summary))
    always = ["trends", "partitions", "times", "batches", "memory", "racks"]
    assert [section.name for section in sections(bare)] == always
    assert [section.name for section in sections(everything)] == ["clients", *always, "audit", "replay"]
    assert {line.name for line in headlines(everything)} - {line.name for line in headlines(bare)} == {
        "Audit",
        "Replay",
    }


def test_that_nothing_was_merged_is_said_only_where_it_is_so() -> None:
    everything = known()
    summary = msgspec.structs.replace(everything.summary, total=NOTHING)

    def told(reason: str, left_out: int) -> tuple[str, str]:
        clients = everything.facts.clients._replace(reasons=[TopicReason("t", reason, 9, 0)], left_out=left_out)
        none = changed(everything, summary=summary, clients=clients)
        (found,) = (section for section in sections(none) if section.name == "passed-on")
        return found.text[0], next(iter(headlines(none))).note

    passed_on = "Nothing was merged in this time: whatever clients sent went on as it came."
    assert told("idempotent", 0) == (passed_on, "went on as they came")
    assert told("idempotent", 1) == (passed_on, "went on as they came, of the 3 largest clients")
    assert told("null_key", 0)[0] == "Clients' batches were merged, but the journal has no rows of the merged batches."


def test_the_time_is_that_of_batches_and_of_clients_and_so_is_the_rate_of_all() -> None:
    """A day before the hour in which anything was merged."""
    everything = known()
    assert covered(everything) == (everything.summary.first_us, everything.summary.last_us)
    first_us = START_US - 86_400 * SECOND
    clients = everything.facts.clients._replace(first_us=first_us, last_us=START_US)
    longer = changed(everything, clients=clients)
    assert covered(longer) == (first_us, everything.summary.last_us)
    less = longer._replace(missing_us=43_200 * SECOND)
    notes = [next(headlines(one)).note for one in (everything, longer, less)]
    assert notes == ["7 a second", "0.28 a second", "0.54 a second"]
    (found,) = (section for section in sections(longer) if section.name == "clients")
    rates = dict(zip(found.tables[0].header, found.tables[0].rows[2], strict=True))
    assert (rates["client id"], rates["records/s"]) == ("agent", "10.4")


def test_what_crossed_racks_has_a_price_where_one_is_given() -> None:
    everything = known()
    (racks,) = (section for section in sections(everything) if section.name == "racks")
    assert racks.text == [
        "Racks: 61.0 % of 100.0 GB went to a leader in the client's rack, 39.0 GB crossed. Of 2.0 GB it is not known."
    ]
    (racks,) = (it for it in sections(changed(everything, price_per_gb=0.02)) if it.name == "racks")
    assert racks.text[0].endswith(" At 0.02 a GB that is 0.78, and 561.60 in 30 days like that.")
    unknown = changed(everything, summary=msgspec.structs.replace(everything.summary, racks=None))
    assert "racks" not in {section.name for section in sections(unknown)}


def test_what_crossed_is_told_by_topic_and_costs_what_one_says() -> None:
    everything = known()
    (found,) = (section for section in sections(everything) if section.name == "racks")
    assert found.tables[0].header == ["topic", "same rack", "crossed", "not known", "crossed %"]
    assert found.tables[0].rows == [
        ["orders", "1.0 GB", "30.0 GB", "0 B", "96.8"],
        ["(others)", "60.0 GB", "9.0 GB", "2 B", "13.0"],
    ]
    priced = changed(everything, price_per_gb=0.02)
    (found,) = (section for section in sections(priced) if section.name == "racks")
    assert found.tables[0].rows[0][-2:] == ["0.60", "432.00"]


def test_how_sure_a_replay_is_stands_beside_its_numbers() -> None:
    (found,) = (section for section in sections(known()) if section.name == "replay")
    assert any("for ranking only" in sentence for sentence in found.text)
    assert any("the same recommendation in 97% of the draws" in sentence for sentence in found.text)
    row = dict(zip(found.tables[0].header, found.tables[0].rows[0], strict=True))
    assert row["average ms (95 %)"] == "2.41 (1.90–2.30)"


def test_what_has_changed_is_told() -> None:
    everything = known()
    (found,) = (section for section in sections(everything) if section.name == "trends")
    assert found.text == ["Records a second rose from 495 to 763."]
    assert found.tables[0].rows[0] == ["Records a second", "495", "763", "+54 %", "rose"]
    short = everything._replace(series=everything.series._replace(times=everything.series.times[:3]))
    (found,) = (section for section in sections(short) if section.name == "trends")
    assert (found.text, found.tables) == (["The time is too short to tell trends."], [])


def test_long_tables_are_cut_and_say_so() -> None:
    everything = known()
    groups = everything.summary.groups * 10
    summary = msgspec.structs.replace(everything.summary, groups=groups)
    found = sections(changed(everything, summary=summary))
    (batches,) = (table for one in found for table in one.tables if table.title == "Batches")
    assert len(batches.rows) == MAX_ROWS
    assert batches.left_out == summary.groups_left_out + len(groups) - MAX_ROWS


def test_where_clients_are_served_as_users_the_audit_names_them() -> None:
    everything = known()
    assert everything.audit is not None
    line, finding = everything.audit.clients[0], everything.audit.findings[0]
    audit = msgspec.structs.replace(
        everything.audit,
        clients=[msgspec.structs.replace(line, principal="User:alice")],
        findings=[msgspec.structs.replace(finding, principal="User:alice")],
    )
    for whole, users in ((everything, []), (everything._replace(audit=audit), ["User:alice"])):
        (section,) = (section for section in sections(whole) if section.name == "audit")
        for table in section.tables[:2]:
            assert ("user" in table.header) == bool(users)
            assert [cell for cell in table.rows[0] if cell == "User:alice"] == users
