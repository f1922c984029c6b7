"""matplotlib's drawings as SVG to be inlined in a page, with the page's colours and font.

The SVG has shapes and text only: no links, no size of its own, and no ids but those it refers to itself. The page gives
it a title, a description and a width.

matplotlib draws with placeholder colours, which become CSS variables: whether a page is light or dark is known only
when it is viewed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

INK: Final = "#010101"
GRID: Final = "#010102"
PAGE: Final = "#010103"
OTHERS: Final = "#010104"
SERIES: Final = [f"#0102{number:02x}" for number in range(7)]

_VARIABLES: Final = {
    INK: "ink",
    GRID: "grid",
    PAGE: "page",
    OTHERS: "others",
    **{colour: f"series-{number}" for number, colour in enumerate(SERIES)},
}

_WIDTH_IN: Final = 4.2
_HEIGHT_IN: Final = 2.7
"""At 100 dpi about as wide as a phone, so that text is legible there and not much larger elsewhere."""

_STYLE: Final[Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.labelsize": 8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 100,
    "figure.facecolor": "none",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "forebay",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.color": GRID,
    "ytick.labelcolor": INK,
}

_DROPPED: Final = re.compile(
    r'<metadata>.*?</metadata>|<style type="text/css">.*?</style>|<!--.*?-->|(?<=<g) id="[^"]*"', re.DOTALL
)
_SVG: Final = re.compile(r'<svg [^>]*viewBox="([^"]*)"[^>]*>(.*)</svg>', re.DOTALL)
_SHAPE: Final = re.compile(r'(?<= d=")[^"]*')
_STEP: Final = re.compile(r"([A-Za-z])([^A-Za-z]*)")


class Plot(NamedTuple):
    """A drawing; only `svg` is markup."""

    name: str
    """Becomes part of ids: letters, digits and dashes."""
    title: str
    description: str
    view_box: str
    svg: str
    """The content of the svg element."""


def plot(name: str, title: str, description: str, draw: Callable[[Axes], None], *, legend: bool = True) -> Plot:
    """Draw on new axes with `draw`; a `legend` shows the labels that it gave. `name` must be unique on a page."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        if legend:
            figure.legend(loc="outside lower center", ncols=3, handlelength=1.2, columnspacing=1.4, borderpad=0)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return Plot(name, title, description, *_for_page(out.getvalue(), name))


def _for_page(text: str, name: str) -> tuple[str, str]:
    """matplotlib's SVG → (viewBox, the content of the svg element)."""
    found = _SVG.search(_DROPPED.sub("", text))
    assert found is not None
    view_box, inner = found.groups()
    for colour, variable in _VARIABLES.items():
        inner = inner.replace(colour, f"var(--{variable})")
    inner = _SHAPE.sub(lambda shape: _shorter(shape[0]), inner)
    inner = inner.replace("'DejaVu Sans', sans-serif", "sans-serif")
    for reference in set(re.findall(r'id="([^"]+)"', inner)):
        inner = re.sub(rf'(id="|#){re.escape(reference)}\b', rf"\g<1>{name}-{reference}", inner)
    return view_box, inner.strip()


def _shorter(shape: str) -> str:
    """M 10 20.04 L 15.26 20.04 L 15.26 9 z → M10 20H15.3V9z: half as long for steps."""
    shorter = []
    last: list[str] = []
    for command, numbers in _STEP.findall(shape):
        place = [f"{float(number):.1f}".removesuffix(".0") for number in numbers.split()]
        if command == "L" and place[1] == last[1]:
            shorter.append(f"H{place[0]}")
        elif command == "L" and place[0] == last[0]:
            shorter.append(f"V{place[1]}")
        else:
            shorter.append(command + " ".join(place))
        last = place[-2:]
    return "".join(shorter)
