"""Java's .properties files: text → names and values.

In: the text of a file as java.util.Properties reads it: `name=value`, `name: value` or `name value`, comments with # or
!, lines that end in a backslash and go on in the next, escapes. Out: a dictionary; of a name that stands twice the last
value counts. Raises ValueError for an escape that is none, without any of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_NAME: Final = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> dict[str, str]:
    """Every name with its value. Example: `a = 1\\n# b\\nc:x\\\\\\n  y` → {"a": "1", "c": "xy"}."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _NAME.match(line)
        assert match is not None  # it matches the empty text, too
        found[_unescape(match[1])] = _unescape(line[match.end() :])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without the blanks before them; those that go on in the next are joined, comments and empty ones left."""
    begun = ""
    for physical in re.split(r"\r\n|\r|\n", text):
        line = physical.lstrip(" \t\f")
        if not begun and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun += line[:-1]
        else:
            yield begun + line
            begun = ""
    if begun:
        yield begun


def _unescape(text: str) -> str:
    if re.search(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})", text):
        raise ValueError("\\u must be followed by four hexadecimal digits")
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else _CHARACTERS.get(found[2], found[2]), text)
