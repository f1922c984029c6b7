"""What is asked for is exactly what is given, and what cannot be asked is said."""

from __future__ import annotations

import pytest

from forebay_proxy.console.paging import MOST, Key, Wanted, WrongQuery, number, part, wanted

COLUMNS = ("name", "records")
KEYS: dict[str, Key[tuple[str, int]]] = {"name": lambda row: row[0], "records": lambda row: row[1]}
ROWS = [("b", 1), ("a", 1), ("Till-3", 9), ("d", 5)]


def names(query: dict[str, str]) -> tuple[str, int]:
    rows, total = part(ROWS, wanted(query, COLUMNS, "name"), KEYS, KEYS["name"])
    return " ".join(name for name, _ in rows), total


def test_sorted_filtered_and_paged() -> None:
    assert names({}) == ("Till-3 a b d", 4)
    assert names({"sort": "-records"}) == ("Till-3 d a b", 4)
    assert names({"sort": "records"}) == ("a b d Till-3", 4)
    assert names({"q": "tILL"}) == ("Till-3", 1)
    assert names({"size": "3", "page": "2"}) == ("d", 4)
    assert names({"page": "9"}) == ("", 4)


def test_what_was_not_said() -> None:
    assert wanted({}, COLUMNS, "-records") == Wanted("records", True, "", 1, 50)


@pytest.mark.parametrize(
    "query",
    [
        {"sort": "nothing"},
        {"sort": "--name"},
        {"size": str(MOST + 1)},
        {"size": "0"},
        {"size": "-1"},
        {"size": "１"},
        {"page": "0"},
        {"page": "9" * 99},
        {"q": "x" * 501},
        {"unheard": "of"},
    ],
)
def test_what_cannot_be_asked(query: dict[str, str]) -> None:
    with pytest.raises(WrongQuery, match=next(iter(query))):
        wanted(query, COLUMNS, "name")


def test_numbers_have_bounds() -> None:
    assert number({"n": "5"}, "n", 1, 1, 5) == 5
    with pytest.raises(WrongQuery, match="n=6 must be a number from 1 to 5"):
        number({"n": "6"}, "n", 1, 1, 5)
