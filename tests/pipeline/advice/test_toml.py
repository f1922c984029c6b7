"""Snippets that Forebay reads back, whatever a client calls itself."""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from forebay_codecs.header import printable
from forebay_pipeline.advice.change import Change, Effect
from forebay_pipeline.advice.toml import as_toml, exactly
from tests.pipeline.advice.made_up import as_forebay_reads

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1)


def test_one_line_a_setting() -> None:
    written = as_toml({"a.b": True, "n": 5, "f": 0.2, "t": 'x"y\\', "l": ("a", "b")})
    assert written.splitlines() == [
        '"a.b" = true', '"n" = 5', '"f" = 0.2', '"t" = "x\\"y\\\\"', '"l" = ["a", "b"]',
    ]  # fmt: skip


def test_a_long_list_has_lines() -> None:
    long = ("connector-producer-*", "*-StreamThread-*", "x", "*[Mm]irror[Mm]aker*")
    written = as_toml({"l": long})
    assert written.splitlines() == [
        '"l" = [', '  "connector-producer-*",', '  "*-StreamThread-*", "x",', '  "*[Mm]irror[Mm]aker*",', "]",
    ]  # fmt: skip
    assert tomllib.loads(written) == {"l": list(long)}


@given(TEXTS, st.lists(TEXTS))
def test_toml_reads_back_what_was_written(text: str, texts: list[str]) -> None:
    assert tomllib.loads(as_toml({"t": text, "l": tuple(texts)})) == {"t": text, "l": texts}


@given(TEXTS, TEXTS)
def test_a_pattern_matches_the_name_and_no_other(name: str, other: str) -> None:
    assert fnmatch.fnmatchcase(name, exactly(name))
    assert fnmatch.fnmatchcase(other, exactly(name)) == (other == name)


def test_a_byte_that_is_not_utf_8_is_any_character() -> None:
    """No text has it, and the journal tells how it is written."""
    client_id = b"caf\xe9-[1]".decode(errors="surrogateescape")
    assert exactly(printable(client_id)) == "caf?-[[]1]"
    assert fnmatch.fnmatchcase(client_id, exactly(printable(client_id)))


def test_forebay_strips_nothing_of_a_name(tmp_path: Path) -> None:
    names = (" a ", "b,c", "[d]*?", "\x7f", "é\u2028", "x\n", '"x"', "['x']")
    settings = {"client.ids.exclude": tuple(map(exactly, names))}
    read = as_forebay_reads(tmp_path, Change("", "", "", Effect(), "", settings))
    assert len(read.client_ids_exclude) == len(names)
    for name, pattern in zip(names, read.client_ids_exclude, strict=True):
        assert fnmatch.fnmatchcase(name, pattern)
