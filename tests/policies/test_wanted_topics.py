"""Names are taken once, of each who waits one in turn; random lives against a list of who waits for what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay_policies.wanted_topics import WantedTopics

NAMES = "abcdefgh"


def wanted(**names: str) -> WantedTopics:
    """By waiter, a letter a name."""
    topics = WantedTopics()
    for waiter, letters in names.items():
        for name in letters:
            topics.add(name, waiter)
    return topics


def test_of_each_who_waits_one_is_taken_in_turn() -> None:
    topics = wanted(x="cdefgh", y="ci", z="j")
    topics.add_first("ab")
    assert topics.take(6) == [*"abcdij"]
    assert topics.take(3) == [*"efg"]
    assert topics.take(3) == ["h"]
    assert not topics


def test_whoever_had_a_turn_comes_after_the_others() -> None:
    topics = wanted(x="abc", y="def", z="ghi")
    assert [topics.take(1) for _ in range(5)] == [["a"], ["d"], ["g"], ["b"], ["e"]]


def test_a_name_that_several_wait_for_is_taken_once() -> None:
    topics = wanted(x="a", y="ab", z="a")
    topics.add_first("a")
    assert "a" in topics
    assert topics.take(9) == ["a", "b"]
    assert "a" not in topics
    assert topics.take(9) == []


def test_and_stays_when_one_of_them_leaves() -> None:
    topics = wanted(x="a", y="a")
    topics.leave("x")
    assert topics.take(9) == ["a"]
    topics = wanted(x="ab")
    topics.discard("a")
    assert "a" not in topics
    assert topics.take(9) == ["b"]


def test_one_that_was_taken_may_be_added_again() -> None:
    topics = wanted(x="ab", y="b")
    assert topics.take(9) == ["a", "b"]
    topics.add("a", "y")
    topics.add_first("b")
    assert topics.take(9) == ["a", "b"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.sampled_from(NAMES), st.integers(0, 3)),
            st.tuples(st.just("first"), st.sampled_from(NAMES), st.just(0)),
            st.tuples(st.just("leave"), st.just(""), st.integers(0, 3)),
            st.tuples(st.just("take"), st.just(""), st.integers(1, 6)),
        ),
        max_size=40,
    )
)
def test_whatever_happens_all_that_is_waited_for_is_taken_and_of_each_waiter_something(
    steps: list[tuple[str, str, int]],
) -> None:
    topics = WantedTopics()
    waits: dict[int, set[str]] = {number: set() for number in range(4)}
    first: set[str] = set()

    def take(most: int) -> list[str]:
        names = topics.take(most)
        wanted = first.union(*waits.values())
        assert names == sorted(set(names))
        assert set(names) <= wanted
        assert len(names) == min(most, len(wanted))
        assert first <= set(names) or set(names) <= first
        if most >= len(first) + sum(map(bool, waits.values())):
            assert all(not of_one or not of_one.isdisjoint(names) for of_one in waits.values())
        first.difference_update(names)
        for of_one in waits.values():
            of_one.difference_update(names)
        return names

    for what, name, number in steps:
        if what == "add":
            topics.add(name, number)
            waits[number].add(name)
        elif what == "first":
            topics.add_first((name,))
            first.add(name)
        elif what == "leave":
            topics.leave(number)
            left = waits.pop(number)
            for alone in left.difference(*waits.values()):
                topics.discard(alone)
            waits[number] = set()
        else:
            take(number)
        assert {name for name in NAMES if name in topics} == set().union(*waits.values())
    while take(3):
        pass
    assert not topics
