"""A job's output in a file that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from forebay_pipeline.errors import CannotRun

output_option: Final = click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the result as JSON to this file."
)


def write(output: Path, data: bytes) -> None:
    """Write `data` to `output`, replacing what is there. Raises CannotRun if that fails."""
    try:
        output.write_bytes(data)
    except OSError as error:
        raise CannotRun(f"Cannot write {output}: {error.strerror}.") from error
