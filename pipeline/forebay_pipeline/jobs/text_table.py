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


def printable(text: str) -> str:
    """With escapes for what a terminal may take for something else, such as what a client has put into its id."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def text_table(
    header: Sequence[str], numeric: Sequence[bool], rows: Iterable[Sequence[str]], width: int | None
) -> list[str]:
    """The table's lines, with `numeric` columns aligned right.

    Cells wider than `width` allows are folded; with None every row is one line. Cells are plain text: markup in them
    is printed as it is, what is not printable escaped.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, number in zip(header, numeric, strict=True):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    out = io.StringIO()
    Console(file=out, width=width or _UNFOLDED, color_system=None).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]
