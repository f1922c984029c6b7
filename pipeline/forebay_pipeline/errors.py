"""Exit codes, and the error that ends a job without a result."""

from __future__ import annotations

from typing import Final

CLEAN: Final = 0
FINDINGS: Final = 1
COULD_NOT_RUN: Final = 2
INCOMPLETE: Final = 3


class CannotRun(Exception):
    """The job cannot run. Its text is printed as it is, so it is one sentence for people; exit code COULD_NOT_RUN."""
