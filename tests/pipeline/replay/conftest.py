from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.pipeline.replay.simulated import Journaled, settings, steady, world
from tests.pipeline.rows import write_journal


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 s of KIP-794's scenario, as a proxy with adaptive would have written it."""
    folder = tmp_path_factory.mktemp("journal")
    made = Journaled(settings(), world([0, 1, 2], 20.5, 0.6, 0.6, turn_ms=0.15), Random(7))
    made.run(steady(2048, 10))
    write_journal(folder, made.rows)
    return folder
