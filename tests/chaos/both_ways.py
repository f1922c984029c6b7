"""One fault under two loads of the same clients at the same time: through Forebay, and directly.

    run_both_ways(stage, ROLLING_RESTART)

For faults that touch every broker, so that nobody can stand by: what Forebay's clients go through is compared with
what the others do. Of the former's records everything holds that `run` asks for; of the latter's it is only told.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from tests.chaos.bystander import Latency
from tests.chaos.fault import Fault
from tests.chaos.load import Clients
from tests.chaos.reconcile import reconcile
from tests.chaos.run import ENOUGH, Spared, account, last
from tests.chaos.stage import RECOVERY_SECONDS, Stage, start_load
from tests.chaos.tally import Tally
from tests.kit.waiting import wait_until


def run_both_ways(stage: Stage, fault: Fault) -> None:
    """The fault's target is asked of the loads themselves: what acknowledged records waited, directly and through."""
    errors_before = stage.forebay_errors()
    topic, topic_directly = stage.new_topic(), stage.new_topic("directly")
    with (
        Clients(stage.timeouts.loaders) as others,
        others.start(stage.cluster.bootstrap, topic_directly) as load_directly,
        start_load(stage, topic) as load,
    ):
        wait_until(lambda: load_directly.acked_since(load.begun) >= ENOUGH, RECOVERY_SECONDS, "both are under way")
        begun = monotonic()
        with fault.during(stage, topic):
            last(load, fault.seconds)
        ended = monotonic()
        for each in (load, load_directly):
            wait_until(lambda: each.acked_since(ended) >= ENOUGH, RECOVERY_SECONDS, f"all go on after {fault}")  # noqa: B023
        tallies, tallies_directly = load.stop(), load_directly.stop()
    findings = reconcile(tallies, stage.read(topic))
    findings_directly = reconcile(tallies_directly, stage.read(topic_directly))
    spared = Spared(_latency(tallies_directly, begun, ended), _latency(tallies, begun, ended))
    timeouts = stage.timeouts.name
    account(f"{fault}, through Forebay", timeouts, tallies, findings, begun, ended, spared=spared)
    account(f"{fault}, directly, at the same time", timeouts, tallies_directly, findings_directly, begun, ended)
    findings.check(fault.name)
    worse = findings.refused + findings.unknown, findings_directly.refused + findings_directly.unknown
    assert worse[0] <= worse[1], f"{fault}: refused or unknown through Forebay and directly: {worse}"
    assert fault.target(spared.direct, spared.through), f"{fault}: {spared}"
    stage.wait_until_settled()
    assert stage.forebay_errors() == errors_before
    stage.delete_topic(topic)
    stage.delete_topic(topic_directly)


def _latency(tallies: Sequence[Tally], begun: float, ended: float) -> Latency:
    waits = [wait for tally in tallies for wait in tally.waits(begun, ended)]
    return Latency.of(waits, sum(len(tally.failures) for tally in tallies))
