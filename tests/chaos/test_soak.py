"""What a soak comes to and how it is kept; a short one of every test run, over the real thing."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import pytest

from tests.chaos.forebay_faults import FOREBAY_FAULTS
from tests.chaos.reconcile import Findings
from tests.chaos.soak import BEGIN, END, Sample, Soaked, faults, keep, soak, total
from tests.chaos.stage import SHORT

SECONDS = 120.0


def soaked(timeouts: str = "short", grows: int = 0, findings: Findings | None = None) -> Soaked:
    samples = [Sample(at, 50_000_000 + int(grows * at), 40, 12) for at in range(0, 100, 5)]
    return Soaked(timeouts, 100.0, 7, findings or Findings(sent=10, acknowledged=10), 1.5, samples)


def test_each_quarter_has_its_own_samples() -> None:
    assert [[sample.at for sample in samples] for samples in soaked().quarters()] == [
        [0, 5, 10, 15, 20],
        [25, 30, 35, 40, 45],
        [50, 55, 60, 65, 70],
        [75, 80, 85, 90, 95],
    ]


def test_what_does_not_grow_passes() -> None:
    soaked(grows=100_000).check()


def test_what_grows_does_not() -> None:
    with pytest.raises(AssertionError, match="resident memory by quarters"):
        soaked(grows=200_000).check()


def test_what_a_client_was_told_and_is_not_so_does_not() -> None:
    with pytest.raises(AssertionError, match="one is lost"):
        soaked(findings=Findings(violations=["one is lost"])).check()


def test_forebay_is_replaced_first_and_then_no_more() -> None:
    drawn = list(islice(faults(Random(1)), 200))
    assert [fault for (fault,) in drawn[: len(FOREBAY_FAULTS)]] == list(FOREBAY_FAULTS)
    others = [fault for those in drawn[len(FOREBAY_FAULTS) :] for fault in those]
    assert not set(others) & set(FOREBAY_FAULTS)
    assert not any(fault.widens for fault in others)
    assert {len(those) for those in drawn} == {1, 2}


def test_findings_are_summed() -> None:
    one, two = Findings(sent=2, lost=1, violations=["a"]), Findings(sent=3, refused=1, violations=["b"])
    assert total([one, two]) == Findings(sent=5, lost=1, refused=1, violations=["a", "b"])


def test_the_document_keeps_a_row_for_each_kind_of_timeouts(tmp_path: Path) -> None:
    document = tmp_path / "reliability.md"
    document.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    keep(soaked("default"), "1", document)
    keep(soaked("short"), "2", document)
    keep(soaked("default", findings=Findings(sent=77)), "3", document)
    text = document.read_text()
    assert text.startswith(f"before\n{BEGIN}\n| timeouts |")
    assert text.endswith(f"{END}\nafter\n")
    rows = [line for line in text.splitlines() if line.startswith(("| short", "| default"))]
    assert [row.split("|")[1].strip() for row in rows] == ["short", "default"]
    assert "| 77 |" in rows[1]
    assert ("seed 1," in text, "seed 2," in text, "seed 3," in text) == (False, True, True)


@pytest.mark.whole
@pytest.mark.timeout(SECONDS + 400)
def test_two_minutes_of_it() -> None:
    """Memory is judged over hours only: the first minutes fill caches."""
    came_to = soak(SHORT, SECONDS, "1")
    came_to.findings.check("soak")
    assert came_to.findings.acknowledged > 20_000
    assert came_to.faults > len(FOREBAY_FAULTS)
