"""The README's diagram, as two SVG files: one for light pages and one for dark ones.

    python docs/diagrams/overview.py     writes overview-light.svg and overview-dark.svg beside this file

`render(theme)` gives the text of one of them, in pixels, with fonts that every browser has and no outside reference.
tests/test_documents.py fails where a committed file is not what this makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

FOLDER: Final = Path(__file__).resolve().parent
WIDTH: Final = 880
HEIGHT: Final = 290
FONTS: Final = "-apple-system, Segoe UI, Helvetica, Arial, DejaVu Sans, sans-serif"


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours that stand out on GitHub's page of that kind; `moved` marks what Forebay changes."""

    text: str
    faint: str
    line: str
    box: str
    moved: str
    slow: str


THEMES: Final[Mapping[str, Theme]] = {
    "light": Theme(text="#1f2328", faint="#59636e", line="#818b98", box="#f6f8fa", moved="#0969da", slow="#bc4c00"),
    "dark": Theme(text="#f0f6fc", faint="#9198a1", line="#656c76", box="#151b23", moved="#4493f8", slow="#db6d28"),
}


def path(name: str) -> Path:
    return FOLDER / f"overview-{name}.svg"


def render(theme: Theme) -> str:
    """The diagram in the colours of `theme`, ending in a newline."""
    return "\n".join(_lines(theme)) + "\n"


def _lines(theme: Theme) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'role="img" aria-labelledby="title" font-family="{FONTS}" font-size="14">'
    )
    yield (
        '<title id="title">Records without a key go through Forebay in merged batches, few of them to the slow broker; '
        "everything else passes unchanged.</title>"
    )
    yield from _clients(theme)
    yield from _forebay(theme)
    yield from _brokers(theme)
    yield "</svg>"


def _clients(theme: Theme) -> Iterator[str]:
    yield from _box(theme, 10, 55, 200, 74, "Old producers", "Java 0.8 and newer, PHP, …")
    yield from _box(theme, 10, 175, 200, 74, "All other clients", "consumers, admin tools, …")
    for y in (74, 92, 110):  # many small requests
        yield _arrow(210, y, 290, y, theme.moved, 1.5, dashes="5 5")
    yield _text(250, 60, "many, small", theme.faint, size=12)
    yield _arrow(210, 212, 290, 212, theme.line, 2)


def _forebay(theme: Theme) -> Iterator[str]:
    yield _rectangle(290, 10, 310, 270, theme.box, theme.line)
    yield _text(445, 35, "Forebay", theme.text, weight="600", size=16)
    yield from _box(theme, 306, 46, 278, 68, "No key", "partition chosen here, then merged", theme.moved)
    yield from _box(theme, 306, 122, 278, 68, "With a key", "same partition and order, merged")
    yield from _box(theme, 306, 198, 278, 68, "Everything else", "passed through, addresses rewritten")


def _brokers(theme: Theme) -> Iterator[str]:
    """Each with an arrow as thick as what it gets."""
    brokers = (
        (55, "Broker 1", "", theme.text, 7.0),
        (130, "Broker 2", "", theme.text, 7.0),
        (205, "Broker 3", "slow: gets less", theme.slow, 2.0),
    )
    for y, name, note, colour, width in brokers:
        yield _arrow(600, y + 22, 720, y + 22, theme.moved, width)
        yield _rectangle(720, y, 150, 44, "none", colour if note else theme.line)
        yield _text(795, y + (20 if note else 27), name, theme.text, weight="600")
        if note:
            yield _text(795, y + 36, note, colour, size=12)
    yield _text(660, 40, "fewer, larger", theme.faint, size=12)


def _box(
    theme: Theme, x: float, y: float, width: float, height: float, title: str, note: str = "", border: str = ""
) -> Iterator[str]:
    middle = y + height / 2
    yield _rectangle(x, y, width, height, "none", border or theme.line)
    yield _text(x + width / 2, middle - 3 if note else middle + 5, title, theme.text, weight="600")
    if note:
        yield _text(x + width / 2, middle + 17, note, theme.faint, size=13)


def _rectangle(x: float, y: float, width: float, height: float, fill: str, stroke: str) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}" stroke="{stroke}" '
        'stroke-width="1.5"/>'
    )


def _text(x: float, y: float, words: str, colour: str, weight: str = "", size: int = 14) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    place = f'x="{x:g}" y="{y:g}" text-anchor="middle"'
    return f'<text {place} fill="{colour}" font-size="{size}"{bold}>{escape(words)}</text>'


def _arrow(x1: float, y1: float, x2: float, y2: float, colour: str, width: float, dashes: str = "") -> str:
    """A horizontal line with a head that grows with its width."""
    head = 5 + width
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<path d="M{x1:g} {y1:g}H{x2 - head:g}" stroke="{colour}" stroke-width="{width:g}" fill="none"{dashed}/>'
        f'<path d="M{x2:g} {y2:g}l{-head:g} {-head * 0.6:g}v{head * 1.2:g}z" fill="{colour}"/>'
    )


if __name__ == "__main__":
    for name, theme in THEMES.items():
        path(name).write_text(render(theme))
