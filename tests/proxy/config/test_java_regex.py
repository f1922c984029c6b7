"""Java's regular expressions. What is expected is what Java said (tests/integration/test_principal_mapping.py)."""

from __future__ import annotations

import pytest

from forebay_proxy.config.java_regex import compiled, replaced


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        ("a.c", ["abc", "aéc"], ["a\nc", "a\rc", "a\u2028c", "a\u0085c"]),
        ("a$", ["a"], ["ab"]),
        ("[a-c,-]+", ["a-,c"], ["d", ""]),
        ("[^a]", ["b", "\n"], ["a"]),
        ("[.$(]", [".", "$", "("], ["a"]),
        ("\\d\\w\\s", ["1a ", "9_\t"], ["٣a ", "1é "]),
        ("\\.\\/\\-\\\\", ["./-\\"], ["a/-\\"]),
        ("\\x41\\u0042", ["AB"], ["ab"]),
        ("\\Qa.b\\E+", ["a.b", "a.bb"], ["aab"]),
        ("\\Qa.b", ["a.b"], ["aab"]),
        ("(?i)cn", ["CN", "cN"], ["c"]),
        ("(?i)é", ["é"], ["É"]),
        ("(?:ab){2}", ["abab"], ["ab"]),
        ("(?<x>a)(?>b*)(?=c)c(?<!d)", ["abbc"], ["abb"]),
        ("a*+b", ["aab", "b"], ["aa"]),
        ("}", ["}"], ["{"]),
    ],
)
def test_what_matches(expression: str, matching: list[str], other: list[str]) -> None:
    pattern = compiled(expression)
    assert all(pattern.fullmatch(text) for text in matching)
    assert not any(pattern.fullmatch(text) for text in other)


@pytest.mark.parametrize("text", ["a", "a\n", "a\r\n", "a\r", "a\u2028"])
def test_the_end_may_be_before_a_last_end_of_line(text: str) -> None:
    found = compiled("a$").match(text)
    assert found is not None
    assert found.end() == 1


def test_no_end_is_in_the_middle_of_an_end_of_line() -> None:
    assert compiled("\\r$").match("\r\n") is None


@pytest.mark.parametrize(
    "expression",
    [
        *("[", "[a", "[]a]", "[^]", "[a-", "[z-a]", "[a[b]]", "[a&&b]", "[\\d-z]x[a-\\d]"),
        *("(", ")", "a)", "(?", "(?a)", "(?<1>a)", "(?<a", "(?P<a>b)", "(?<a>b)(?<a>c)", "(?m)a", "a(?i)b", "(?-i)"),
        *("*", "a**", "a{", "a{,2}", "{1}", "a{1}{2}", "^*", "$+", "(?=a)*", "|*", "a{2,1}"),
        *("\\", "\\1", "(a)\\1", "\\b", "\\B", "\\A", "\\Z", "\\z", "\\G", "\\h", "\\p{L}", "\\x4", "\\u12", "\\0101"),
        *("(a*)*", "(a|)+", "(|a){2}", "(\\Q\\E)*", "((?:a?)b*)?", "(?<=a*)b"),
    ],
)
def test_what_would_mean_something_else_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="is no expression, or none that is taken here"):
        compiled(expression)


@pytest.mark.parametrize(
    ("expression", "text", "replacement", "made"),
    [
        ("a", "banana", "o", "bonono"),
        (".*", "abc", "x", "xx"),
        ("a*?", "aa", "-", "-a-a-"),
        ("|a", "a", "-", "-a-"),
        ("(a)(b)?", "ab a", "$2$1", "ba a"),
        ("(a)", "a", "$12", "a2"),
        ("(?<x>a)b", "ab", "${x}!", "a!"),
        ("a", "a", "\\$1\\\\", "$1\\"),
        ("a", "a", "$0$0", "aa"),
    ],
)
def test_what_replaces_what(expression: str, text: str, replacement: str, made: str) -> None:
    assert replaced(compiled(expression), text, replacement) == made


@pytest.mark.parametrize("replacement", ["$", "$a", "$2", "${y}", "${1}", "${", "\\", "$٣"])
def test_a_replacement_that_is_none_is_refused(replacement: str) -> None:
    with pytest.raises(ValueError, match=r"group|backslash"):
        replaced(compiled("(?<x>a)"), "a", replacement)


def test_no_character_is_cut_in_two() -> None:
    with pytest.raises(ValueError, match="in two"):
        replaced(compiled("a*"), "😀", "-")
