"""What becomes of a drain that does not end in time."""

from __future__ import annotations

import asyncio
import signal
from typing import cast

import pytest
import structlog

from forebay_proxy.process import lifecycle
from forebay_proxy.process.lifecycle import FAILED, App, Stop
from tests.kit.event_loop import in_loop, soon


class Stuck:
    """An App that neither drains nor, unless `closes`, gets its journal written."""

    def __init__(self, *, closes: bool) -> None:
        self._closes = closes
        self.cutting = asyncio.Event()

    async def drain(self, *, succeeded: bool = False) -> None:
        await asyncio.Event().wait()

    async def cut_off(self) -> None:
        self.cutting.set()
        if not self._closes:
            await asyncio.Event().wait()


@pytest.mark.parametrize("closes", [True, False])
@in_loop
async def test_its_journal_is_closed_in_a_bounded_time(closes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "CUT_OFF_S", 0.01)
    app, stop = Stuck(closes=closes), Stop()
    with structlog.testing.capture_logs() as logs:
        assert await soon(lifecycle._drain(cast(App, app), stop, 0.01)) == FAILED
    assert app.cutting.is_set()
    assert [line["event"] for line in logs][2:] == (
        [] if closes else ["the journal is left open: it could not be written in time"]
    )


@in_loop
async def test_a_second_signal_does_not_wait_for_it() -> None:
    app, stop = Stuck(closes=False), Stop()
    stop.request(signal.SIGTERM)
    draining = asyncio.get_running_loop().create_task(lifecycle._drain(cast(App, app), stop, 0.01))
    await soon(app.cutting.wait())
    stop.request(signal.SIGTERM)
    assert await soon(draining) == 128 + signal.SIGTERM


@in_loop
async def test_a_first_signal_to_one_whose_place_is_taken_lets_it_drain() -> None:
    stop = Stop()
    stop.draining.set()
    stop.request(signal.SIGTERM)
    assert not stop.now.is_set()
    stop.request(signal.SIGINT)
    assert (stop.now.is_set(), stop.exit_code) == (True, 128 + signal.SIGINT)
