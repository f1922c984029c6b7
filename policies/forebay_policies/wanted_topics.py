"""Names of topics that are to be asked for, of which a request takes some: nobody's names stand in others' way.

In: names, each with who waits for it, or without; who leaves. Out: the next names. No I/O, no clock.

    nobody in particular: a b     x: c d e f g h …     y: c i     z: j        take 6: a b, then c i j d
    what x has not got yet is behind one name of each other who waits, however many x has named
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable


class WantedTopics:
    """Each name is taken once, unless it is added again. Whoever waits for one that is in here must have added it, so
    that it stays when others leave."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        """What waiters have added and nobody has taken."""
        self._lines: OrderedDict[object, OrderedDict[str, None]] = OrderedDict()
        """By waiter. A name that is not in `_names` has been taken from another's, or discarded."""
        self._first: OrderedDict[str, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._first or self._lines)

    def __contains__(self, name: str) -> bool:
        """Whether a waiter has added it."""
        return name in self._names

    def add(self, name: str, waiter: object) -> None:
        """`waiter` (hashable) waits for it."""
        self._names.add(name)
        line = self._lines.get(waiter)
        if line is None:
            line = self._lines[waiter] = OrderedDict()
        line[name] = None

    def add_first(self, names: Iterable[str]) -> None:
        """They come before what anybody waits for."""
        self._first.update(dict.fromkeys(names))

    def leave(self, waiter: object) -> list[str]:
        """It waits for nothing any more. What it had added is returned: what nobody else has, discard, or add again."""
        line = self._lines.pop(waiter, None)
        return [] if line is None else [name for name in line if name in self._names]

    def discard(self, name: str) -> None:
        """Nobody waits for it."""
        self._names.discard(name)

    def take(self, most: int) -> list[str]:
        """Removes the next names, at most so many, and returns them sorted."""
        names: list[str] = []
        while self._first and len(names) < most:
            name, _ = self._first.popitem(last=False)
            self._names.discard(name)
            names.append(name)
        while self._lines and len(names) < most:
            waiter, line = self._lines.popitem(last=False)
            while line:
                name, _ = line.popitem(last=False)
                if name in self._names:
                    self._names.remove(name)
                    names.append(name)
                    break
            if line:
                self._lines[waiter] = line
        return sorted(names)
