"""Java's regular expressions (java.util.regex), as far as Python's mean the same, and Java's way to replace with them.

In: an expression as Java takes it. Out: one of Python's that matches the same. What Python does not have, or has with
another meaning, raises ValueError instead of matching something else: a rule that names people must not name others.
Taken are characters, `.`, `^`, `$`, classes, `\\d \\w \\s` and their opposites, groups (also named, atomic, and those
that look ahead or behind), alternatives, quantifiers of all three kinds, `\\Q…\\E`, and `(?i)` at the beginning.

`.` and `$` know more ends of lines than Python's do; a match of nothing moves on by one, where Python would try again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_LINE_ENDS: Final = "\\n\\r\\u0085\\u2028\\u2029"
_ANY: Final = f"[^{_LINE_ENDS}]"
_END: Final = r"(?:(?=\r\n\Z)|(?<!\r)(?=\n\Z)|(?=[\r\u0085\u2028\u2029]\Z)|\Z)"
_CLASSES: Final = "dDwWsS"
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_LAST_OF_BMP: Final = "\uffff"
"""Beyond it a character is two of Java's."""
_QUANTIFIER: Final = re.compile(r"[*+?]|\{[0-9]{1,4}(?:,(?:[0-9]{1,4})?)?\}")
_GROUP: Final = re.compile(r"\(\?(?:[:=!>]|<[=!]|<([a-zA-Z][a-zA-Z0-9]*)>|i:)")
_LOOKS: Final = ("(?=", "(?!", "(?<=", "(?<!")


def compiled(expression: str) -> re.Pattern[str]:
    """Python's expression for Java's. Raises ValueError."""
    try:
        return re.compile(_Translation(expression).made(), re.ASCII)
    except re.error as error:
        raise ValueError(f"{expression} is no expression, or none that is taken here: {error.msg}") from None


def replaced(pattern: re.Pattern[str], text: str, replacement: str) -> str:
    """As String.replaceAll: each match gives way to `replacement`, in which `$1` and `${name}` stand for groups.

    A backslash takes what follows it as it is. Raises ValueError where a group is not there, or a `$` is none.
    """
    made, copied = [], 0
    for match in _matches(pattern, text):
        made += [text[copied : match.start()], _expanded(match, replacement)]
        copied = match.end()
    return "".join([*made, text[copied:]])


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    at = 0
    while at <= len(text) and (match := pattern.search(text, at)) is not None:
        yield match
        at = match.end()
        if match.start() == at:
            if text[at : at + 1] > _LAST_OF_BMP:
                raise ValueError("Java would cut a character in two")
            at += 1


def _expanded(match: re.Match[str], replacement: str) -> str:
    made, at = [], 0
    while at < len(replacement):
        if replacement[at] == "\\":
            if at + 1 == len(replacement):
                raise ValueError("a backslash with nothing behind it")
            made.append(replacement[at + 1])
            at += 2
        elif replacement[at] == "$":
            group, at = _reference(match, replacement, at + 1)
            made.append(match[group] or "")
        else:
            made.append(replacement[at])
            at += 1
    return "".join(made)


def _reference(match: re.Match[str], replacement: str, at: int) -> tuple[int | str, int]:
    """The group that is named from `at` on, and where its name ends: as many digits as make a group that is there."""
    if named := re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}").match(replacement, at):
        if named[1] not in match.re.groupindex:
            raise ValueError(f"there is no group {named[1]}")
        return named[1], named.end()
    if not replacement[at : at + 1].isascii() or not replacement[at : at + 1].isdigit():
        raise ValueError("a $ with no group behind it")
    group = int(replacement[at])
    if group > match.re.groups:
        raise ValueError(f"there is no group {group}")
    at += 1
    while replacement[at : at + 1].isascii() and replacement[at : at + 1].isdigit():
        if (longer := group * 10 + int(replacement[at])) > match.re.groups:
            break
        group, at = longer, at + 1
    return group, at


class _Group:
    """What is known of a group, or of the whole, up to where the translation stands."""

    __slots__ = ("looks", "some_match_nothing", "takes_something")

    def __init__(self, *, looks: bool = False) -> None:
        self.looks = looks
        self.some_match_nothing = False
        """Some of the alternatives that have ended."""
        self.takes_something = False
        """The present one, without its last part."""


class _Translation:
    """Goes through an expression once, from the left."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self._made: list[str] = []
        self._groups = [_Group()]
        self._can_repeat = False
        """Whether a quantifier may follow the last part."""
        self._takes_something = False
        """Whether the last part never matches nothing."""

    def made(self) -> str:
        if self._text.startswith("(?i)"):
            self._take(4)
        while self._at < len(self._text):
            self._step(self._text[self._at])
        return "".join(self._made)

    def _step(self, char: str) -> None:
        if char == "\\":
            self._escape()
        elif char == "[":
            self._class()
        elif char == "(":
            self._group()
        elif char in "*+?{":
            self._quantifier()
        elif char in "|)":
            self._end(char)
        elif char in "^$":
            self._emit("^" if char == "^" else _END, 1)
        else:
            self._emit(_ANY if char == "." else re.escape(char), 1, repeats=True)

    def _take(self, size: int, *, repeats: bool = False) -> None:
        self._emit(self._text[self._at : self._at + size], size, repeats=repeats)

    def _emit(self, python: str, size: int, *, repeats: bool = False) -> None:
        """`repeats`: it is a character or one of a class, so that it may be repeated, and takes something."""
        self._groups[-1].takes_something |= self._takes_something
        self._made.append(python)
        self._at += size
        self._can_repeat = self._takes_something = repeats

    def _group(self) -> None:
        found = _GROUP.match(self._text, self._at)
        if found is None and self._text.startswith("(?", self._at):
            raise self._not_taken(self._text[self._at : self._at + 4])
        begin = found[0] if found is not None else "("
        self._emit(f"(?P<{found[1]}>" if found is not None and found[1] else begin, len(begin))
        self._groups.append(_Group(looks=begin in _LOOKS))

    def _end(self, char: str) -> None:
        """Of an alternative, or of a group."""
        self._emit(char, 1)
        group = self._groups[-1]
        group.some_match_nothing |= not group.takes_something
        group.takes_something = False
        if char == ")":
            if len(self._groups) == 1:
                raise self._not_taken(char)
            self._groups.pop()
            # Of a group that is repeated and may match nothing both think differently.
            self._can_repeat = self._takes_something = not (group.looks or group.some_match_nothing)

    def _quantifier(self) -> None:
        found = _QUANTIFIER.match(self._text, self._at)
        if found is None or not self._can_repeat:
            raise self._not_taken(self._text[self._at])
        if found[0][0] in "*?" or found[0].startswith("{0"):
            self._takes_something = False
        size = len(found[0])
        size += self._text[self._at + size : self._at + size + 1] in ("?", "+")
        self._take(size)

    def _escape(self) -> None:
        if self._text.startswith("\\Q", self._at):
            self._quoted()
        elif (char := self._text[self._at + 1 : self._at + 2]) and char in _CLASSES:
            self._take(2, repeats=True)
        else:
            char, size = self._escaped()
            self._emit(re.escape(char), size, repeats=True)

    def _quoted(self) -> None:
        begin = self._at + 2
        end = self._text.find("\\E", begin)
        quoted = self._text[begin : end if end >= 0 else len(self._text)]
        self._emit("", 2)
        for char in quoted:
            self._emit(re.escape(char), 1, repeats=True)
        self._at += 2 if end >= 0 else 0

    def _escaped(self) -> tuple[str, int]:
        """The character that a backslash and what follows stand for, and how long both are."""
        char = self._text[self._at + 1 : self._at + 2]
        if char in ("x", "u"):
            digits = self._text[self._at + 2 : self._at + (4 if char == "x" else 6)]
            if re.fullmatch("[0-9a-fA-F]{2}" if char == "x" else "[0-9a-fA-F]{4}", digits):
                return chr(int(digits, 16)), 2 + len(digits)
        elif char in _CONTROLS:
            return _CONTROLS[char], 2
        elif char and not (char.isascii() and char.isalnum()):
            return char, 2
        raise self._not_taken(f"\\{char}")

    def _class(self) -> None:
        self._emit("[", 1)
        if self._text.startswith("^", self._at):
            self._take(1)
        if self._text.startswith("]", self._at):
            raise self._not_taken("[]")
        while not self._text.startswith("]", self._at):
            if self._at >= len(self._text) or self._text[self._at] == "[" or self._text.startswith("&&", self._at):
                raise self._not_taken(self._text[self._at : self._at + 2] or "[")
            if self._text[self._at] == "\\" and self._text[self._at + 1 : self._at + 2] in tuple(_CLASSES):
                self._take(2)
            else:
                self._member()
        self._take(1, repeats=True)

    def _member(self) -> None:
        """A character of a class, or a range."""
        self._emit(re.escape(self._character()), 0)
        if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in ("]", "["):
            self._at += 1
            self._emit("-" + re.escape(self._character()), 0)

    def _character(self) -> str:
        if self._at >= len(self._text):
            raise self._not_taken("[")
        char, size = self._escaped() if self._text[self._at] == "\\" else (self._text[self._at], 1)
        self._at += size
        return char

    def _not_taken(self, part: str) -> ValueError:
        return ValueError(f"{self._text} is no expression, or none that is taken here: {part} at {self._at}")
