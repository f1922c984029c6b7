"""No core dumps: what a process knows when it crashes, passwords and clients' records, is written nowhere.

A limit of 0 would keep the kernel from writing a file, but not from handing the dump to a program (systemd-coredump). A
limit of 1 byte does both: files are too small to be written, and core(5)'s programs are not started for it.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from typing import Final

LIMIT: Final = 1
_PR_SET_DUMPABLE: Final = 4


def forbid() -> None:
    """For this process and for those that it starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (LIMIT, hard))
    elif sys.platform == "linux":  # the limit cannot be raised to 1; this also closes /proc/<pid> to its own user
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
