"""Commands configure logging: that is for their tests alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.own_logs import own_logs


@pytest.fixture(autouse=True)
def _with_own_logs() -> Iterator[None]:
    with own_logs():
        yield
