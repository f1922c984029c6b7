"""Whom Forebay takes a certificate's owner for, beside Kafka's own SslPrincipalMapper and Java's X500Principal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forebay_proxy.config.principal_mapper import NoMatchingRule, PrincipalMapper
from forebay_proxy.security import distinguished_name
from tests.kit.java import JavaClient
from tests.kit.names import NAMES

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def kafka() -> Iterator[JavaClient]:
    with closing(JavaClient("4.3.1")) as client:
        yield client


HALVES = re.compile(rb"\xed[\xa0-\xbf]")
"""Halves of characters beyond the BMP, which no UTF-8 has."""


def written(der: bytes) -> str | None:
    try:
        return distinguished_name.name(der)
    except ValueError:
        return None


@given(ders=st.lists(NAMES, min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_names_are_written_as_java_writes_them(kafka: JavaClient, ders: list[bytes]) -> None:
    theirs = kafka.principal_names("DEFAULT", *ders)
    assert theirs is not None
    for der, (their, _) in zip(ders, theirs, strict=True):
        our = written(der)
        assert our == their or (our is None and HALVES.search(der)), der


def mapped(rules: str, names: list[str]) -> list[str | None] | None:
    """What the owners of names are called; None: that is refused."""
    try:
        mapper = PrincipalMapper(rules)
    except ValueError:
        return None
    found: list[str | None] = []
    for name in names:
        try:
            found.append(mapper.name(name))
        except NoMatchingRule:
            found.append(None)
    return found


def of_kafka(kafka: JavaClient, rules: str, names: list[str]) -> list[str | None] | None:
    theirs = kafka.principal_names(rules, *names)
    return None if theirs is None else [name for _, name in theirs]


CHARACTERS = "abAB,= CNO\\+-.\n\r\u2028é😀"
NAME = st.text(CHARACTERS, max_size=8)

MEMBER = st.sampled_from(
    ["a", "b-c", "A-Z", "0-9", ",", "=", "\\d", "\\w", "\\S", "\\-", "-", ".", "$", "\\\\", "é", " "]
)
CLASS = st.builds(
    lambda no, members: f"[{no}{''.join(members)}]",
    st.sampled_from(["", "^"]),
    st.lists(MEMBER, min_size=1, max_size=3),
)
ATOM = st.one_of(
    st.sampled_from(
        [
            "a",
            "b",
            "A",
            ",",
            "=",
            "CN",
            "O",
            " ",
            "é",
            "😀",
            "-",
            ".",
            "\\.",
            "\\\\",
            "\\d",
            "\\W",
            "\\s",
            "\\n",
            "\\x41",
            "\\u0061",
            "\\Qa.b\\E",
            "}",
        ]
    ),
    CLASS,
)
QUANTIFIER = st.sampled_from(
    ["", "", "", "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,}", "{0,2}", "{1,2}?"]
)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.sampled_from(["(", "(", "(?:", "(?>", "(?i:"])
    looks = st.sampled_from(["(?=", "(?!", "(?<=a", "(?<!b"])
    return st.one_of(
        st.builds(lambda group, body: f"{group}{body})", groups, inner),
        # A group that is repeated must take something: ours are refused otherwise.
        st.builds(lambda group, one, body, repeat: f"{group}{one}(?:{body})){repeat}", groups, ATOM, inner, QUANTIFIER),
        st.builds(lambda look, body: f"{look}{body if '<' not in look else ''})", looks, inner),
        st.builds(lambda one, other: f"{one}|{other}", inner, inner),
        st.builds(lambda one, other: one + other, inner, inner),
    )


PATTERN = st.builds(
    lambda i, begin, body, end: f"{i}{begin}{body}{end}",
    st.sampled_from(["", "", "(?i)"]),
    st.sampled_from(["", "^", "(?<who>"]),
    st.recursive(st.builds(str.__add__, ATOM, QUANTIFIER), grown, max_leaves=6),
    st.sampled_from(["", "$", ".*", ".*$"]),
).map(lambda pattern: pattern.replace("(?<who>", "(?<who>a|.*?)") if "(?<who>" in pattern else pattern)
REPLACEMENT = st.lists(
    st.sampled_from(["a", "Zß", "$1", "$2", "$0", "$12", "$9", "${who}", "\\$", "\\\\", "\\a", "\\/", "É", "-"]),
    max_size=4,
).map("".join)
RULE = st.one_of(
    st.just("DEFAULT"),
    st.builds(
        lambda pattern, made, case: f"RULE:{pattern}/{made}/{case}",
        PATTERN,
        REPLACEMENT,
        st.sampled_from(["", "L", "U"]),
    ),
)
RULES = st.lists(st.tuples(RULE, st.sampled_from([",", " , ", ",\n "])), min_size=1, max_size=3).map(
    lambda parts: "".join(rule + end for rule, end in parts)
)


ENDS = ["a", "a\n", "a\r", "a\r\n", "a\u0085", "a\u2028", "ab", "a\n\n"]


@example(rules="RULE:a./x/", names=ENDS)
@example(rules="RULE:a$[^b]*/x/", names=ENDS)
@example(rules="RULE:[^$]+$[^b]*/x/", names=ENDS)
@example(rules="RULE:a*?b*/-/", names=["ab", "aab", ""])
@given(rules=RULES, names=st.lists(NAME, min_size=1, max_size=6))
@settings(max_examples=300, deadline=None)
def test_rules_give_the_names_that_kafka_gives(kafka: JavaClient, rules: str, names: list[str]) -> None:
    """Or none, where Java replaces a match of nothing in the middle of a character beyond the BMP."""
    ours, theirs = mapped(rules, names), of_kafka(kafka, rules, names)
    if ours is None or theirs is None:
        assert ours is None
        assert theirs is None
        return
    for name, our, their in zip(names, ours, theirs, strict=True):
        assert our == their or (our is None and max(name) > "\uffff"), name


@given(
    rules=st.text("RULE:DEFAULT/,^$.*\\()[]{}?+|abLU1 \n<>=!&-", max_size=24),
    names=st.lists(NAME, min_size=1, max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_rules_that_kafka_refuses_are_refused(kafka: JavaClient, rules: str, names: list[str]) -> None:
    """And more than those: but what is taken means what it means there."""
    ours = mapped(rules, names)
    assert ours is None or ours == of_kafka(kafka, rules, names)
