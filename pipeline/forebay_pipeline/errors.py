"""What ends a job before it has an answer."""

from __future__ import annotations

from typing import Final

CLEAN: Final = 0
FINDINGS: Final = 1
COULD_NOT_RUN: Final = 2


class CannotRun(Exception):
    """One clear sentence for a person; the job leaves with COULD_NOT_RUN."""
