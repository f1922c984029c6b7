"""One run: a load, faults in the midst of it, the reconciliation, and Forebay as good as before.

    result = run(stage, [fault, …])        # AssertionError where anything that must hold does not

What must hold stands in reconcile.py; further: every client is acknowledged again once the fault is over, a fresh
client can write to every partition, Forebay holds what it held at rest, and has logged no fault of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic

from tests.chaos.fault import Fault
from tests.chaos.load import Load
from tests.chaos.reconcile import Findings, reconcile
from tests.chaos.stage import RECOVERY_SECONDS, Stage, start_load
from tests.chaos.waiting import wait_until

_ENOUGH = 20
"""Acknowledgements of each client after the fault: it is not a single one that got through."""


@dataclass(frozen=True, slots=True)
class Result:
    """Of one run. `silence`: the longest that any client waited for its next acknowledgement, fault included.

    `recovery`: seconds from the end of the fault until every client was acknowledged again; `probe`: until a fresh
    client had written to every partition.
    """

    fault: str
    faults: int
    """How many at once."""
    seconds: float
    findings: Findings
    silence: float
    recovery: float
    probe: float


RESULTS: list[Result] = []
"""Of all runs so far, for the table at the end."""


def run(stage: Stage, faults: Sequence[Fault]) -> Result:
    with ExitStack() as stack:
        for fault in faults:
            stack.enter_context(fault.around(stage))
        return _run(stage, faults)


def _run(stage: Stage, faults: Sequence[Fault]) -> Result:
    name = " + ".join(fault.name for fault in faults) or "none"
    errors_before = stage.forebay_errors()
    topic = stage.new_topic()
    load = start_load(stage, topic)
    try:
        begun = monotonic()
        with ExitStack() as stack:
            for fault in faults:
                stack.enter_context(fault.during(stage, topic))
            _last(load, max((fault.seconds for fault in faults), default=2.0))
        ended = monotonic()
        probe = stage.probe(topic)
        wait_until(lambda: load.acked_since(ended) >= _ENOUGH, RECOVERY_SECONDS, f"all clients go on after {name}")
    finally:
        tallies = load.stop()
    findings = reconcile(tallies, stage.read(topic), widened=any(fault.widens for fault in faults))
    recovery = max(min(at for at in tally.acked_at.values() if at > ended) for tally in tallies) - ended
    silence = max(tally.longest_silence() for tally in tallies)
    result = Result(name, len(faults), ended - begun, findings, silence, recovery, probe)
    RESULTS.append(result)
    findings.check(name)
    stage.wait_until_settled()
    assert stage.forebay_errors() == errors_before, name
    stage.delete_topic(topic)
    return result


def _last(load: Load, seconds: float) -> None:
    """Lets the fault last, and looks after the clients meanwhile: none may have ended."""
    until = monotonic() + seconds
    wait_until(lambda: load.acked_since(until) >= 0 and monotonic() >= until, seconds + 30, "the fault lasts")
