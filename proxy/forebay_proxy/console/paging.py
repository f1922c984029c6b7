"""Which part of a table is asked for: sorted, filtered and paged here, so that no page ever loads all of it.

In: a query's parameters. Out: a Wanted, or WrongQuery, which says what is wrong with which parameter. `part` takes that
part of any rows.

    ?sort=-records&q=till&page=2&size=50     those with "till" in their name, the busiest first, the second fifty
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

MOST: Final = 200
"""Rows of one answer."""
USUAL: Final = 50
LONGEST: Final = 500
"""Characters of what is searched for."""

Key = Callable[[T], Any]


class WrongQuery(Exception):
    """A person or program asked for what there is not; the message says so."""


class Wanted(NamedTuple):
    """`sort` is a column's name; `text`: what names hold, in any case; `page` from 1."""

    sort: str
    descending: bool
    text: str
    page: int
    size: int


def wanted(query: Mapping[str, str], columns: Iterable[str], usual: str, more: Iterable[str] = ()) -> Wanted:
    """What is asked for. `columns` can be sorted by, `usual` (perhaps "-name") if nothing is said; `more`: parameters
    that the caller reads. Raises WrongQuery."""
    columns = list(columns)
    known = {"sort", "q", "page", "size", *more}
    if unknown := sorted(set(query) - known):
        raise WrongQuery(f"unknown parameter {unknown[0]}; there are {', '.join(sorted(known))}")
    sort = query.get("sort", usual)
    name = sort.removeprefix("-")
    if name not in columns:
        raise WrongQuery(f"sort={sort} must be one of {', '.join(columns)}, with - before it for the greatest first")
    text = query.get("q", "").casefold()
    if len(text) > LONGEST:
        raise WrongQuery(f"q must have at most {LONGEST} characters")
    page, size = number(query, "page", 1, 1, 1_000_000), number(query, "size", USUAL, 1, MOST)
    return Wanted(name, sort.startswith("-"), text, page, size)


def number(query: Mapping[str, str], name: str, usual: int, least: int, most: int) -> int:
    """A parameter that is a number from `least` to `most`. Raises WrongQuery."""
    written = query.get(name)
    if written is None:
        return usual
    if not (written.isascii() and written.isdigit() and len(written) <= 12 and least <= int(written) <= most):
        raise WrongQuery(f"{name}={written[:20]} must be a number from {least} to {most}")
    return int(written)


def part(rows: Iterable[T], asked: Wanted, keys: Mapping[str, Key[T]], name: Key[T]) -> tuple[list[T], int]:
    """(the rows of that page, how many there are on all pages). `keys` by column; equal ones stand by `name`."""
    found = [row for row in rows if asked.text in name(row).casefold()] if asked.text else list(rows)
    found.sort(key=name)
    found.sort(key=keys[asked.sort], reverse=asked.descending)
    begin = (asked.page - 1) * asked.size
    return found[begin : begin + asked.size], len(found)
