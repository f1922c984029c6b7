"""Drawings that take their colours and font from the page."""

from __future__ import annotations

import re

import pytest
from matplotlib.axes import Axes

from forebay_pipeline.report.svg import SERIES, Plot, plot


def draw(axes: Axes) -> None:
    axes.plot([0, 1, 1], [0, 0, 1], label="a <b>label</b>", color=SERIES[2])


@pytest.fixture(scope="module")
def drawn() -> Plot:
    return plot("lines", "Title", "Description", draw)


def test_colours_are_the_pages(drawn: Plot) -> None:
    assert "var(--series-2)" in drawn.svg
    assert "var(--ink)" in drawn.svg
    assert re.findall(r"#[0-9a-f]{6}", drawn.svg) == []
    assert "DejaVu" not in drawn.svg


def test_ids_have_the_plots_name_and_references_lead_to_them(drawn: Plot) -> None:
    ids = set(re.findall(r' id="([^"]*)"', drawn.svg))
    assert ids
    assert all(name.startswith("lines-") for name in ids)
    assert set(re.findall(r'"#([^"]*)"', drawn.svg)) | set(re.findall(r"url\(#([^)]*)\)", drawn.svg)) <= ids


def test_text_is_escaped(drawn: Plot) -> None:
    assert "a &lt;b&gt;label&lt;/b&gt;" in drawn.svg


def test_nothing_but_shapes_and_text(drawn: Plot) -> None:
    assert not any(word in drawn.svg for word in ("<svg", "<style", "<metadata", "<!--", "<image"))
    assert len(drawn.view_box.split()) == 4


def test_the_same_drawing_is_the_same_text(drawn: Plot) -> None:
    assert plot("lines", "Title", "Description", draw) == drawn


def test_a_legend_may_be_left_out() -> None:
    assert "label" not in plot("bare", "Title", "Description", draw, legend=False).svg
