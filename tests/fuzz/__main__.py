"""Fuzz every decoder and the whole proxy, and print what it came to.

    python -m tests.fuzz [--seconds 600] [--jobs 2] [--seed N] [--only NAME] [--guided]
    python -m tests.fuzz --replay FILE --only NAME

Each target runs in a process of its own, as many as there are jobs, for its share of the time. Mutants are chosen by
what was accepted before; with --guided by the coverage that they reach (atheris, dependency group `fuzz`), where the
whole proxy stays with the former: its coroutines cost more to instrument than they tell.
Findings are kept in .cache/fuzz, one file each. Exit status 1 where there are some.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.fuzz.jobs import KEPT, run
from tests.fuzz.registry import targets
from tests.fuzz.target import Tally


def keep(tally: Tally) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    for finding in tally.findings:
        path = KEPT / f"{finding.target}-{hashlib.sha256(finding.data).hexdigest()[:12]}"
        path.write_bytes(finding.data)
        print(f"{path}: {finding}\n{finding.why}", file=sys.stderr)


def table(tallies: list[Tally]) -> Table:
    made = Table(title="inputs that were fed, none of which may do harm")
    made.add_column("target")
    for column in ("inputs", "accepted", "seconds", "inputs/s", "slowest ms", "grown MiB", "coverage", "findings"):
        made.add_column(column, justify="right")
    total = Tally("all")
    for tally in tallies:
        total.add(tally)
    for tally in (*tallies, total):
        made.add_row(
            tally.target,
            f"{tally.inputs:,}",
            f"{tally.accepted / max(1, tally.inputs):.0%}" if tally.accepted else "",
            f"{tally.seconds:.0f}",
            f"{tally.inputs / max(0.001, tally.seconds):,.0f}",
            f"{tally.slowest * 1000:.0f}" if tally.slowest else "",
            f"{tally.grown >> 20}",
            f"{tally.coverage:,}" if tally.coverage else "",
            str(len(tally.findings)),
            end_section=tally is tallies[-1],
        )
    return made


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFF)
    parser.add_argument("--only", default="", help="targets with this in their name")
    parser.add_argument("--guided", action="store_true", help="by coverage, where atheris is installed")
    parser.add_argument("--replay", type=Path, help="feed this file to the one target")
    options = parser.parse_args()
    chosen = [target for name, target in targets().items() if options.only in name]
    if options.replay is not None:
        for target in chosen:
            print(target.name, target.check(options.replay.read_bytes()))
        return 0
    print(f"seed {options.seed}, {options.jobs} at a time")
    all_shares = sum(target.share for target in chosen)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=1) as pool:
        runs = [
            pool.submit(
                run,
                target.name,
                options.seed,
                options.seconds * options.jobs * target.share / all_shares,
                by_coverage=options.guided,
            )
            for target in sorted(chosen, key=lambda target: -target.share)
        ]
        tallies = [done.result() for done in runs]
    for tally in tallies:
        keep(tally)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table(tallies))
    return 1 if any(tally.findings for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
