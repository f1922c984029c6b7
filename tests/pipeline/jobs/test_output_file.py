"""Output goes to the file that was named, or it is said why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.jobs.output_file import write


def test_what_was_there_is_replaced(tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    write(output, b"a long first one")
    write(output, b"second")
    assert output.read_bytes() == b"second"


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(CannotRun) as wrong:
        write(tmp_path, b"")
    assert str(wrong.value) == f"Cannot write {tmp_path}: Is a directory."
