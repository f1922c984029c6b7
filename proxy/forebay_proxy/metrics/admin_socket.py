"""A Unix socket for whoever may use its file, which is its owner: mode 0600.

In: a path. Out: a listening socket there, and nothing there once it is closed. Three things can be in the way: a socket
on which somebody answers, which refuses the start; one that a dead process has left, which is replaced; anything else,
which is not touched. What a person must mend is raised as StartError.
"""

from __future__ import annotations

import os
import socket
import stat
from typing import Final

from forebay_proxy.errors import StartError
from forebay_proxy.inherited import Inherited

MODE: Final = 0o600
TRY_S: Final = 1.0
"""Somebody who does not take a connection within this time is there, and busy."""


class AdminSocket:
    """Listens at `path` from the beginning to `close`, or to `leave`, which leaves the file to a successor.

    One that was `inherited` is the predecessor's until `own`: so long its file is not removed.
    """

    def __init__(self, path: str, inherited: Inherited | None = None) -> None:
        self._path = path
        self._ours: tuple[int, int] | None = None
        try:
            found = inherited.take(socket.AF_UNIX, path) if inherited is not None else []
            if found:
                (self.socket,) = found
            else:
                _make_room(path)
                self.socket = _bound(path)
                self.own()
        except OSError as error:
            raise StartError(f"admin.socket = {path}: cannot listen: {error.strerror or error}") from None

    def own(self) -> None:
        """From now on the file is this process's to remove. Raises OSError where it is gone."""
        self._ours = _identity(self._path)

    def leave(self) -> None:
        """Listen no more; the file stays."""
        self._ours = None
        self.socket.close()

    def close(self) -> None:
        """Remove the file, if it is still the one that was made here."""
        self.socket.close()
        try:
            if self._ours is not None and _identity(self._path) == self._ours:
                os.unlink(self._path)
        except OSError:
            pass  # somebody else has removed it


def _bound(path: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.settimeout(0)
        listening.bind(path)
        os.chmod(path, MODE)  # before it listens, so that nobody else ever gets in
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


def _make_room(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise StartError(f"admin.socket = {path}: something else is there, not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        trying.settimeout(TRY_S)
        try:
            trying.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except (TimeoutError, BlockingIOError):
            pass  # its queue is full
    raise StartError(f"admin.socket = {path}: a process that runs listens there, is it another Forebay?")


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino
