"""`python -m bench [NAME …] [--short] [--keep]`: runs benchmarks, prints their tables.

Each benchmark is a module `bench/NAME_words.py` with `run(short) -> Section`. `--short` shows that it works, in
seconds, and measures little; `--keep` writes the section into docs/performance.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

import click

from bench.report import Section, keep


def benchmarks() -> dict[str, str]:
    """`a` → `bench.a_slow_broker`, in the alphabet's order."""
    files = sorted(Path(__file__).parent.glob("[a-z]_*.py"))
    return {file.name[0]: f"bench.{file.stem}" for file in files}


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", nargs=-1, type=click.Choice(list(benchmarks())))
@click.option("--short", is_flag=True, help="seconds instead of minutes: shows that it works, measures little")
@click.option("--keep", "kept", is_flag=True, help="write the tables into docs/performance.md")
def main(names: Sequence[str], short: bool, kept: bool) -> None:
    modules = benchmarks()
    for name in names or modules:
        section: Section = importlib.import_module(modules[name]).run(short)
        section.check()
        print(f"\n{section.markdown()}\n", flush=True)
        if kept:
            keep(section)


if __name__ == "__main__":
    main()
