"""Java's .properties files, read as java.util.Properties does."""

from __future__ import annotations

import pytest

from forebay_proxy.config.properties import parse


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a = 1\nb: 2\nc 3\nd", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("# a=1\n  ! b=2\n\n\t c=3 ", {"c": "3 "}),
        ("a=1\\\n   2\nb=3", {"a": "12", "b": "3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n#2", {"a": "1#2"}),
        ("a\\ b\\=c=d=e", {"a b=c": "d=e"}),
        ("a=\\u00e9\\t\\n\\x", {"a": "é\t\nx"}),
        ("a=\\\\u12", {"a": "\\u12"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        (
            'sasl.jaas.config=org.x.PlainLoginModule required \\\n  username="u" \\\n  password="p=";',
            {"sasl.jaas.config": 'org.x.PlainLoginModule required username="u" password="p=";'},
        ),
    ],
)
def test_as_java_reads_it(text: str, found: dict[str, str]) -> None:
    assert parse(text) == found


def test_a_broken_escape_is_told_without_its_line() -> None:
    with pytest.raises(ValueError, match="hexadecimal") as error:
        parse("password=canary\\u12")
    assert "canary" not in str(error.value)
