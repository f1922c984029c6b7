"""Exit codes, and the errors that end a job without a result."""

from __future__ import annotations

from typing import Final

CLEAN: Final = 0
FINDINGS: Final = 1
COULD_NOT_RUN: Final = 2
INCOMPLETE: Final = 3


class CannotRun(Exception):
    """The job cannot run. Its text is printed as it is, so it is one sentence for people; exit code COULD_NOT_RUN."""


class Stopped(Exception):
    """A signal, of that `number`, ended the job before it had done what there was to do."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
