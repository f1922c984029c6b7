"""How commands print: wrapped text and tables for people, JSON for machines."""

from __future__ import annotations

import io
import shutil
import textwrap
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

UNFOLDED: Final = 1000
"""Wider than any line of a table: off a terminal a row is one line, whatever its length."""

NO_TERMINAL_COLUMNS: Final = 100
MIN_COLUMNS: Final = 40
"""What the longest setting's name needs; a narrower terminal breaks lines itself."""


def columns() -> int:
    """How wide text may be: $COLUMNS, the terminal's width, or NO_TERMINAL_COLUMNS if stdout is not a terminal."""
    return max(MIN_COLUMNS, shutil.get_terminal_size((NO_TERMINAL_COLUMNS, 24)).columns)


def wrapped(text: str, width: int, first: str = "", following: str | None = None) -> str:
    """`text` in lines of at most `width` columns that begin with `first`, from the second on with `following`.

    Broken at blanks; a word that is longer than a line is broken anywhere. Without `following` all begin with `first`.
    """
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=first if following is None else following,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def table_text(table: Table, width: int | None) -> str:
    """`table` as plain text. Long values are folded into `width` columns; None: each row is one line."""
    out = io.StringIO()
    Console(file=out, width=width or UNFOLDED, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def json_text(value: object) -> str:
    """`value` as indented JSON; bytes and structs as msgspec writes them."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
