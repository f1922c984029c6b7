from __future__ import annotations

from itertools import product

from tests.kit.matrix import choose, pairs, part_of, values

CASES = list(product("abc", range(4), (True, False)))


def test_every_pair_is_there_in_fewer_cases() -> None:
    chosen = choose(CASES, pairs)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert {(case[first], case[second]) for case in chosen} == {(case[first], case[second]) for case in CASES}
    assert 12 <= len(chosen) < len(CASES) * 2 / 3


def test_every_value_is_there() -> None:
    assert len(choose(CASES, values)) == 4


def test_no_case_is_lost_and_the_choice_is_the_same_each_time() -> None:
    part = part_of(CASES, pairs)
    assert [param.values for param in part] == CASES
    assert {param.values for param in part if not param.marks} == choose(CASES, pairs)
    assert part == part_of(CASES, pairs)
