"""Hours of a load under one fault after the other, every record accounted for, and Forebay no larger at the end.

    python -m tests.chaos.soak SECONDS [short | default]       (`make soak SOAK_SECONDS=3600`)

Clients live as long as the soak, and so does Forebay but for the first faults, each of which replaces it once: its
memory, descriptors and tasks are sampled after each fault from then on, once every client is acknowledged again. The
other faults are drawn from a seed, one time in four two at once. Lost, duplicated, changed and disordered records are
those of reconcile.py. A soak of an hour and more is kept in docs/reliability.md, in the row of its timeouts.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from time import monotonic
from typing import Final

from bench.report import Table, machine
from tests.chaos.fault import Fault
from tests.chaos.faults import FAULTS, pair
from tests.chaos.follower import Follower
from tests.chaos.footprint import footprint
from tests.chaos.forebay_faults import FOREBAY_FAULTS
from tests.chaos.load import Carriers
from tests.chaos.long_account import LongAccount
from tests.chaos.reconcile import Findings
from tests.chaos.run import ENOUGH, last
from tests.chaos.seed import SEED
from tests.chaos.stage import DEFAULTS, SHORT, Stage, Timeouts
from tests.kit.memory import resident
from tests.kit.waiting import wait_until

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- soak -->", "<!-- /soak -->"
TIMEOUTS: Final = {timeouts.name: timeouts for timeouts in (SHORT, DEFAULTS)}

RATE: Final = 300
"""Records a second of each client."""
RECOVERY_SECONDS: Final = 150
"""A client's own timeout of 120 s, and then some."""
QUARTERS: Final = 4
PAIRS: Final = 0.25
LONG_ENOUGH: Final = 3600
"""Seconds of a soak that is kept."""
GROWN: Final = 1.1
SLACK: Final = 8 << 20
"""Bytes of resident memory: what an allocator keeps differs by so much."""

HEAD: Final = (
    "timeouts",
    "seconds",
    "faults",
    "records",
    "acknowledged",
    "refused",
    "unknown",
    "lost",
    "duplicated",
    "sent again by clients",
    "longest silence s",
    "resident MB, in each quarter",
    "descriptors",
    "tasks",
)


@dataclass(frozen=True, slots=True)
class Sample:
    """Of Forebay, after a fault. `at`: seconds since the soak began; `resident` in bytes."""

    at: float
    resident: int
    descriptors: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Soaked:
    """What a soak came to. `silence`: the longest that any client waited for its next acknowledgement."""

    timeouts: str
    seconds: float
    faults: int
    findings: Findings
    silence: float
    samples: Sequence[Sample]

    def quarters(self) -> Iterator[Sequence[Sample]]:
        """Samples by when they were taken; a quarter that has none is left out."""
        for number in range(QUARTERS):
            begins, ends = (self.seconds * edge / QUARTERS for edge in (number, number + 1))
            if taken := [sample for sample in self.samples if begins <= sample.at < ends]:
                yield taken

    def check(self) -> None:
        """AssertionError where a record is not where it must be, or Forebay has grown."""
        self.findings.check("soak")
        sizes = [median(sample.resident for sample in samples) for samples in self.quarters()]
        assert sizes[-1] <= GROWN * sizes[0] + SLACK, f"resident memory by quarters: {sizes}"
        for name in ("descriptors", "tasks"):
            counts = [median(getattr(sample, name) for sample in samples) for samples in self.quarters()]
            assert counts[-1] <= GROWN * counts[0] + 10, f"{name} by quarters: {counts}"

    @property
    def row(self) -> tuple[object, ...]:
        found = self.findings
        return (
            self.timeouts,
            f"{self.seconds:,.0f}",
            f"{self.faults:,}",
            f"{found.sent:,}",
            f"{found.acknowledged:,}",
            f"{found.refused:,}",
            f"{found.unknown:,}",
            found.lost,
            f"{found.duplicated:,}",
            f"{found.retried:,}",
            f"{self.silence:.1f}",
            " · ".join(f"{median(it.resident for it in samples) / 1e6:.1f}" for samples in self.quarters()),
            " · ".join(f"{median(it.descriptors for it in samples):.0f}" for samples in self.quarters()),
            " · ".join(f"{median(it.tasks for it in samples):.0f}" for samples in self.quarters()),
        )


def soak(timeouts: Timeouts, seconds: float, seed: str) -> Soaked:
    """AssertionError where a client ends, or does not go on after a fault, or Forebay logs a fault of its own."""
    rng = Random(seed)
    with ExitStack() as stack:
        stage = stack.enter_context(Stage(timeouts))
        topic = stage.new_topic("soak")
        loaders = stage.clients.loaders
        count = int(2 * RATE * seconds)
        accounts = {it.name: LongAccount(it.spec(topic, RATE, count), it.promise) for it in loaders}
        follower = Follower(stage.cluster.internal, topic, stage.partitions(topic), accounts)
        stack.enter_context(follower)
        jobs = [(loader, accounts[loader.name]) for loader in loaders]
        load = stack.enter_context(Carriers(stage.bootstrap, jobs, seconds=2 * seconds + RECOVERY_SECONDS))
        wait_until(lambda: load.acked_since(load.begun) >= ENOUGH, RECOVERY_SECONDS, "the load is under way")
        samples: list[Sample] = []
        suffered = 0
        for drawn in faults(rng):
            if monotonic() >= load.begun + seconds:
                break
            print(f"{monotonic() - load.begun:6.0f} s: {' + '.join(map(str, drawn))}", flush=True)
            _suffer(stage, topic, load, drawn)
            follower.check()
            suffered += len(drawn)
            if drawn[0] not in FOREBAY_FAULTS:
                samples.append(_sample(stage, monotonic() - load.begun))
        lasted = monotonic() - load.begun
        errors = stage.forebay_errors()
        load.end()
        follower.read_to(stage.log.ends(topic))
        assert not errors, errors
    findings = [account.findings() for account in accounts.values()]
    silence = max(account.longest_silence for account in accounts.values())
    return Soaked(timeouts.name, lasted, suffered, total(findings), silence, samples)


def faults(rng: Random) -> Iterator[Sequence[Fault]]:
    """First what replaces Forebay, then the others without end; none adds partitions, so that keys stay in theirs."""
    yield from ([fault] for fault in FOREBAY_FAULTS)
    others = [fault for fault in FAULTS if fault not in FOREBAY_FAULTS and not fault.widens]
    while True:
        drawn = pair(rng) if rng.random() < PAIRS else [rng.choice(others)]
        if all(fault in others for fault in drawn):
            yield drawn


def _suffer(stage: Stage, topic: str, load: Carriers, faults: Sequence[Fault]) -> None:
    """Until every client is acknowledged again."""
    with ExitStack() as around:
        for fault in faults:
            around.enter_context(fault.around(stage))
        with ExitStack() as during:
            for fault in faults:
                during.enter_context(fault.during(stage, topic))
            last(load, max(fault.seconds for fault in faults))
        ended = monotonic()
        wait_until(lambda: load.acked_since(ended) >= ENOUGH, RECOVERY_SECONDS, f"all clients go on after {faults}")


def _sample(stage: Stage, at: float) -> Sample:
    held = footprint(stage.forebay)
    return Sample(at, resident(stage.forebay.pid), held.file_descriptors, held.tasks)


def total(findings: Sequence[Findings]) -> Findings:
    """Of all clients together."""
    counts = ("sent", "acknowledged", "refused", "unknown", "lost", "duplicated", "retried")
    violations = [violation for found in findings for violation in found.violations]
    return Findings(violations=violations, **{name: sum(getattr(it, name) for it in findings) for name in counts})


def table(soaked: Sequence[Soaked]) -> Table:
    return Table(HEAD, [it.row for it in soaked])


def keep(soaked: Soaked, seed: str, document: Path = DOCUMENT) -> None:
    """In the row of its timeouts, between the document's marks; other rows stay."""
    text = document.read_text()
    block = re.compile(re.escape(BEGIN) + "(.*?)" + re.escape(END), re.DOTALL)
    match = block.search(text)
    known = match.group(1) if match is not None else ""
    names = [name for name in TIMEOUTS if name != soaked.timeouts]
    others = [line for line in known.splitlines() if line.startswith(tuple(f"| {name} |" for name in names))]
    words = [line for line in known.splitlines() if line.startswith(tuple(f"{name}: " for name in names))]
    rows = sorted([*others, table([soaked]).markdown().splitlines()[-1]], reverse=True)
    words = sorted([*words, f"{soaked.timeouts}: seed {seed}, _{machine()}_"], reverse=True)
    head = table([soaked]).markdown().splitlines()[:2]
    kept = "\n".join([BEGIN, *head, *rows, "", "\\\n".join(words), END])
    document.write_text(block.sub(lambda _: kept, text))


def main(arguments: Sequence[str]) -> None:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # kafka-python tells of every fault, at length
    seconds = float(arguments[0])
    for name in arguments[1:] or TIMEOUTS:
        print(f"FOREBAY_TEST_SEED={SEED}, {name} timeouts", flush=True)
        soaked = soak(TIMEOUTS[name], seconds, SEED)
        print(f"\n{table([soaked]).markdown()}\n", flush=True)
        soaked.check()
        if seconds >= LONG_ENOUGH:
            keep(soaked, SEED)


if __name__ == "__main__":
    main(sys.argv[1:])
