"""What a replay recommends becomes a change, with its own numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay_pipeline.advice.replayed import replayed
from tests.pipeline.advice.made_up import as_forebay_reads, facts
from tests.pipeline.replay.reports import report


@pytest.mark.parametrize("recommended", range(1, len(report(0).results)))
def test_what_a_replay_recommends_can_be_pasted(recommended: int, tmp_path: Path) -> None:
    found = report(recommended)
    change = replayed(facts(replay=found))
    assert change is not None
    assert change.effect.ms == pytest.approx(-recommended / 10)
    assert change.effect.of_ms == 8.0
    settings = as_forebay_reads(tmp_path, change)
    old, new = found.results[0].settings, found.results[recommended].settings
    assert set(change.settings) == {name for name in new if new[name] != old[name]}
    for name in change.settings:
        written = getattr(settings, name.replace(".", "_"))
        assert (str(written).lower() if isinstance(written, bool) else str(written)) == new[name]


def test_where_settings_stay_or_nothing_was_replayed_nothing_is_said() -> None:
    assert replayed(facts()) is None
    assert replayed(facts(replay=report(0))) is None
