"""Tables for the terminal."""

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
    """Columns of the terminal; None if standard output is not one."""
    return os.get_terminal_size().columns if sys.stdout.isatty() else None


def text_table(
    header: Sequence[str], numeric: Sequence[bool], rows: Iterable[Sequence[str]], width: int | None
) -> list[str]:
    """The table's lines, with `numeric` columns aligned right.

    Cells wider than `width` allows are folded; with None every row is one line. Cells are plain text: markup in them
    is printed as it is.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, number in zip(header, numeric, strict=True):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    out = io.StringIO()
    Console(file=out, width=width or _UNFOLDED, color_system=None).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]
