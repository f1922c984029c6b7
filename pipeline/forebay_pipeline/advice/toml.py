"""Settings as lines of TOML, and exact names as the proxy's glob patterns.

In: names and values, which may hold whatever a client called itself. Out: text that `forebay run --config` reads back
as the same values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

TomlValue = str | bool | int | float | tuple[str, ...]

WIDTH: Final = 40
"""Characters of a line in a list that does not fit on one."""

_SPECIAL = re.compile(r"""[*?\[]|^\s|["'\s]$""")
_BYTE = re.compile(r"\\x[89a-f][0-9a-f]")
"""What the journal has for a byte of a client's id that is not UTF-8."""
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile(r'[\\"\x00-\x1f\x7f-\x9f\u2028\u2029]')


def as_toml(settings: Mapping[str, TomlValue]) -> str:
    """A line for each setting."""
    return "\n".join(f'"{name}" = {_value(value)}' for name, value in settings.items())


def exactly(name: str) -> str:
    """The pattern that matches `name` and nothing else: till[*]7 for till*7. The empty name has none: empty.

    No text can hold bytes that are not UTF-8. Any character stands in: till? for till\\xe4.
    """
    return _BYTE.sub("?", _SPECIAL.sub(lambda found: f"[{found[0]}]", name))


def _value(value: TomlValue) -> str:
    if isinstance(value, tuple):
        return _list([_string(each) for each in value])
    if isinstance(value, str):
        return _string(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _list(values: Sequence[str]) -> str:
    """On one line if it fits, else as many on each as fit."""
    lines = [""]
    for value in values:
        if lines[-1] and len(lines[-1]) + len(value) > WIDTH:
            lines.append("")
        lines[-1] += f"{value}, "
    if len(lines) == 1:
        return f"[{lines[0].removesuffix(', ')}]"
    return "[\n" + "".join(f"  {line.rstrip()}\n" for line in lines) + "]"


def _string(text: str) -> str:
    return '"' + _ESCAPED.sub(lambda found: _ESCAPES.get(found[0], f"\\u{ord(found[0]):04x}"), text) + '"'
