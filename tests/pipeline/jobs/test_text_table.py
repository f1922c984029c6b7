"""Tables for the terminal."""

from __future__ import annotations

from forebay_pipeline.jobs.text_table import terminal_width, text_table

HEADER = ("topic", "bytes")
ROWS = [("[bold]orders[/bold]", "7"), ("clicks", "1,234")]


def test_numbers_are_on_the_right_and_markup_is_text() -> None:
    assert text_table(HEADER, (False, True), ROWS, None) == [
        " topic                 bytes",
        " ───────────────────────────",
        " [bold]orders[/bold]       7",
        " clicks                1,234",
    ]


def test_what_a_terminal_would_take_for_something_else_is_escaped() -> None:
    lines = text_table(HEADER, (False, True), [("a\x1b[2Jb\nc\udce4", "7")], None)
    assert lines[2:] == [r" a\x1b[2Jb\nc\udce4       7"]


def test_without_a_terminal_a_row_is_one_line() -> None:
    wide = "x" * 500
    assert terminal_width() is None
    assert len(text_table(HEADER, (False, True), [(wide, "7")], None)) == 3


def test_in_a_terminal_what_is_too_wide_is_folded() -> None:
    lines = text_table(HEADER, (False, True), [("x" * 50, "7")], 30)
    assert max(map(len, lines)) <= 30
    assert "".join(lines).count("x") == 50
