"""Forebay itself leaves, dies, or loses a worker under load, and another takes its place."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace

from tests.chaos.fault import FOREBAY, Fault, Place
from tests.chaos.footprint import Footprint, descriptors
from tests.chaos.stage import RECOVERY_SECONDS, Stage
from tests.kit.children import children
from tests.kit.forebay import ForebayProcess
from tests.kit.waiting import wait_until

RESTARTS = "forebay_worker_restarts_total"


@contextmanager
def replaced(stage: Stage, topic: str) -> Iterator[None]:
    """SIGTERM; it drains and ends well (anything else raises), and a new one takes its place."""
    stage.forebay.stop()
    stage.forebay.start()
    yield


@contextmanager
def killed(stage: Stage, topic: str) -> Iterator[None]:
    stage.forebay.kill()
    stage.forebay.start()
    yield


@contextmanager
def worker_killed(stage: Stage, topic: str) -> Iterator[None]:
    """One of two, which the supervisor replaces."""
    before = stage.forebay.metrics()[RESTARTS]
    os.kill(children(stage.forebay.pid)[0], signal.SIGKILL)
    yield
    wait_until(lambda: stage.forebay.metrics()[RESTARTS] > before, RECOVERY_SECONDS, "the worker is replaced")
    wait_until(stage.forebay.ready, RECOVERY_SECONDS, "both workers serve")


@contextmanager
def two_workers(stage: Stage) -> Iterator[None]:
    """The stage's Forebay in two processes, on the same ports. Both may hold what one held, beside what starts them."""
    one, settled = stage.forebay, stage.settled
    two = ForebayProcess(
        stage.cluster.bootstrap, stage.nodes, settings=stage.forebay_settings, options=["--workers", "2"]
    )
    two.port, two.admin_port = one.port, one.admin_port
    one.stop()
    try:
        with two:
            both = Footprint(*(2 * value for value in astuple(settled)))
            opened = both.file_descriptors + descriptors(two.pid)
            stage.forebay, stage.settled = two, replace(both, file_descriptors=opened)
            yield
            assert not stage.forebay_errors()  # its log goes with it
    finally:
        stage.forebay, stage.settled = one, settled
        one.start()


_TOUCHES = frozenset[Place]({FOREBAY})

FOREBAY_FAULTS = (
    Fault("Forebay replaced (SIGTERM)", _TOUCHES, replaced, seconds=1.0),
    Fault("Forebay killed and started again", _TOUCHES, killed, seconds=1.0),
    Fault("one of two workers killed", _TOUCHES, worker_killed, seconds=1.0, around=two_workers),
)
