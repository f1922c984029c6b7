"""What a process takes."""

from __future__ import annotations

import resource
from pathlib import Path


def resident(pid: int) -> int:
    """Bytes of a process that are in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
