"""Overrides as somebody writes them, and settings below them."""

from __future__ import annotations

import msgspec
import pytest

from forebay_proxy.config.overriding import Override, overlaid, parsed
from forebay_proxy.config.settings import Settings

NOW = Settings(bootstrap_servers=())


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("topics.exclude", "a,b", ("a", "b")),
        ("topics.exclude", ["a", "b"], ("a", "b")),
        ("topics.exclude", "", ()),
    ],
)
def test_values_are_written_as_elsewhere(name: str, written: object, value: object) -> None:
    assert parsed(name, written) == (name, value)


@pytest.mark.parametrize(
    ("name", "written", "why"),
    [
        ("topics.exclud", "a", r"^topics\.exclud: unknown setting; did you mean topics\.exclude\?$"),
        ("zzz", "a", "^zzz: unknown setting$"),
        ("workers", 2, "^workers cannot be overridden: only live settings can$"),
        ("admin.bearer.token", "canary", r"^admin\.bearer\.token cannot be overridden: only live settings can$"),
        ("listener.name.external.producers.only", "true", "unknown setting"),
        ("topics.exclude", 5, r"^topics\.exclude = 5: must be patterns"),
        ("topics.exclude", '["a"]', r'^topics\.exclude = \["a"\]: must be patterns'),
        ("topics.exclude", None, "must be patterns"),
        ("topics.exclude", {"a": 1}, "must be patterns"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(name: str, written: object, why: str) -> None:
    with pytest.raises(ValueError, match=why) as error:
        parsed(name, written)
    assert "canary" not in str(error.value)


def test_what_is_overridden_is_not_read_from_its_file_again() -> None:
    written = {"topics.exclude": "${file:/a:x}", "ssl.key.password": "${file:/a:y}"}
    now = msgspec.structs.replace(NOW, topics_exclude=("x",), references=written)
    told = overlaid(now, [Override("topics.exclude", ("y",), "", 0.0)])
    assert (told.topics_exclude, told.references) == (("y",), {"ssl.key.password": "${file:/a:y}"})
    assert overlaid(now, []) == now


def test_the_value_is_shown_as_it_is_written() -> None:
    assert Override("topics.exclude", ("a", "b"), "", 0.0).written == "a,b"


def test_what_adds_comes_to_what_is_there_whichever_came_first() -> None:
    now = msgspec.structs.replace(NOW, brokers_avoid=(1, 2))
    adding = [Override("brokers.avoid", (node,), "", 0.0, adds=True) for node in (3, 1)]
    assert overlaid(now, adding).brokers_avoid == (1, 2, 3)
    assert overlaid(now, [*adding, Override("brokers.avoid", (9,), "", 0.0)]).brokers_avoid == (9, 3, 1)
