"""The processes that a process has started, as Linux tells."""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> list[int]:
    """Their pids, those of its main thread."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
