"""How commands print: tables for people, JSON for machines."""

from __future__ import annotations

import io
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

UNFOLDED: Final = 1000
"""Wider than any line: not on a terminal a row is one line, whatever its length."""


def table_text(table: Table, width: int | None) -> str:
    """With a width, that of a terminal, long values are folded into it."""
    out = io.StringIO()
    Console(file=out, width=width or UNFOLDED, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def json_text(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
