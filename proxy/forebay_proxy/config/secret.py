"""A value that nobody is shown: passwords, keys, tokens.

Whatever prints one prints `[hidden]`: logs, errors, tracebacks, `forebay config`. Encoders that do not know it refuse
it, so that it leaves the process only where somebody wrote `reveal()`.
"""

from __future__ import annotations

import hmac
from typing import Final, NoReturn

HIDDEN: Final = "[hidden]"


class Secret:
    """Text that only `reveal` gives away. Two are equal if their texts are; an empty one is false."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for whoever has to present it."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")
