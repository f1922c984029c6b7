"""Logging that a test configures, and that is afterwards as it was."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def own_logs() -> Iterator[None]:
    """Whatever is configured within counts for nobody else."""
    handlers, level = list(logging.root.handlers), logging.root.level
    try:
        yield
    finally:
        structlog.reset_defaults()
        logging.root.handlers = handlers
        logging.root.setLevel(level)
