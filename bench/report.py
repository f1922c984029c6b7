"""What a benchmark says: a title, words, tables; printed, and kept in docs/performance.md.

The document holds one section for each benchmark between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`. Running one
benchmark replaces its own section and leaves the rest alone.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "performance.md"


@dataclass(frozen=True, slots=True)
class Table:
    """`rows` are as long as `head`; a number is written as it is given, so round it."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]

    def markdown(self) -> str:
        lines = [self.head, ["---", *["---:"] * (len(self.head) - 1)], *self.rows]
        return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


@dataclass(frozen=True, slots=True)
class Section:
    """`parts` are paragraphs and tables in their order. What was compared, with which load, stands in the first."""

    name: str
    title: str
    parts: Sequence[str | Table]

    def check(self) -> None:
        """ValueError where it has no table, or one of no rows, or of rows that do not fit its head."""
        tables = [part for part in self.parts if isinstance(part, Table)]
        if not tables or not all(table.rows for table in tables):
            raise ValueError(f"{self.name} has no result")
        for table in tables:
            if any(len(row) != len(table.head) for row in table.rows):
                raise ValueError(f"{self.name} has rows that do not fit {table.head}")

    def markdown(self) -> str:
        parts = [part if isinstance(part, str) else part.markdown() for part in self.parts]
        return "\n\n".join([f"## {self.name}. {self.title}", *parts, f"_{machine()}_"])


def machine() -> str:
    """The cores and versions that the numbers stand for."""
    packages = " · ".join(f"{name} {version(name)}" for name in ("uvloop", "msgspec", "librt"))
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {_processor()} · Python {platform.python_version()} · {packages}"


def keep(section: Section, document: Path = DOCUMENT) -> None:
    """Writes the section into the document: over the one of the same name, else at the end."""
    begin, end = f"<!-- bench:{section.name} -->", f"<!-- /bench:{section.name} -->"
    block = f"{begin}\n{section.markdown()}\n{end}"
    text = document.read_text()
    known = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    kept = known.sub(lambda _: block, text)
    document.write_text(kept if block in kept else f"{text.rstrip()}\n\n{block}\n")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
