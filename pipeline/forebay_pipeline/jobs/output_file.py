"""A job's output, to a file that a person named."""

from __future__ import annotations

from pathlib import Path

from forebay_pipeline.errors import CannotRun


def write(output: Path, data: bytes) -> None:
    """CannotRun, where it cannot be written."""
    try:
        output.write_bytes(data)
    except OSError as error:
        raise CannotRun(f"{output} cannot be written: {error.strerror}.") from error
