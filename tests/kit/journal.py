"""Reads a journal as the proxy wrote it, without the pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar

import msgspec
import zstandard

from forebay_policies.journal_rows import FILE_SUFFIX, Row

R = TypeVar("R")

_DECODER: Final = msgspec.json.Decoder(Row)


def closed_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob(f"dt=*/hour=*/*{FILE_SUFFIX}") if not path.name.startswith("."))


def lines_of(path: Path) -> list[bytes]:
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().splitlines()


def rows_in(folder: Path) -> list[Row]:
    """Of all closed files, every line of which must be a row."""
    return [_DECODER.decode(line) for path in closed_files(folder) for line in lines_of(path)]


def of(kind: type[R], rows: list[Row]) -> list[R]:
    return [row for row in rows if isinstance(row, kind)]


def decoded(lines: bytes) -> list[Row]:
    return [_DECODER.decode(line) for line in lines.splitlines()]
