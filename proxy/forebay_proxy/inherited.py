"""Listening sockets that a process was given by the one whose place it takes.

Who closes a socket that listens resets the connections that wait in it. So a successor accepts from the sockets
themselves: nobody who connects meets a closed port, however the two overlap. Each is known by the address that it is
bound to; there may be several of one address, where workers shared it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable


class Inherited:
    """Each socket is taken once, or closed."""

    def __init__(self, sockets: Iterable[socket.socket] = ()) -> None:
        self._left = list(sockets)

    def __len__(self) -> int:
        return len(self._left)

    def take(self, family: int, address: object) -> list[socket.socket]:
        """All that are bound to the address, as getsockname has it; empty: none is left."""
        found = [each for each in self._left if (each.family, each.getsockname()) == (family, address)]
        self._left = [each for each in self._left if each not in found]
        return found

    def shares(self, parties: int) -> list[list[socket.socket]]:
        """All that are left, for so many: of each address the first, the second … in turn."""
        shares: list[list[socket.socket]] = [[] for _ in range(parties)]
        given: dict[object, int] = {}
        for each in self._left:
            address = each.family, each.getsockname()
            given[address] = given.get(address, -1) + 1
            shares[given[address] % parties].append(each)
        self._left = []
        return shares

    def close(self) -> None:
        """Those that nobody took."""
        for each in self._left:
            each.close()
        self._left = []
