"""Writes a job's output to the file that a user named."""

from __future__ import annotations

from pathlib import Path

from forebay_pipeline.errors import CannotRun


def write(output: Path, data: bytes) -> None:
    """Write `data` to `output`, replacing what is there. Raises CannotRun if that fails."""
    try:
        output.write_bytes(data)
    except OSError as error:
        raise CannotRun(f"Cannot write {output}: {error.strerror}.") from error
