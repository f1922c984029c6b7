"""A job's tables for people, and how wide they may be."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNFOLDED: Final = 1000


def terminal_width() -> int | None:
    """None: not a terminal, where a row is one line."""
    return os.get_terminal_size().columns if sys.stdout.isatty() else None


def text_table(
    header: Sequence[str], numeric: Sequence[bool], rows: Iterable[Sequence[str]], width: int | None
) -> list[str]:
    """Its lines; numbers stand on the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, number in zip(header, numeric, strict=True):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    out = io.StringIO()
    Console(file=out, width=width or _UNFOLDED, color_system=None).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]
