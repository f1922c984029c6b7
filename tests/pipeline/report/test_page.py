"""The page in a real Chromium, as people see it; and that it is what it says, whatever the journal holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from forebay_pipeline.advice.facts import Facts
from forebay_pipeline.report.page import page
from forebay_pipeline.report.sections import Known
from tests.kit.browser import Browser, Page
from tests.pipeline.advice.made_up import facts
from tests.pipeline.report.known import known

WIDTHS = (1280, 400)
HOSTILE = """<script>document.title='taken'</script><img src="http://192.0.2.1/x" onerror="document.title='taken'">"""
PLOTS = ["rates", "shares-0", "shares-1", "shares-2", "waits", "lingers", "sizes", "memory", "audit", "grid"]

# Which texts of plots reach beyond their plot, and what they say.
CUT_OFF = """
[...document.querySelectorAll('figure svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1
        || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
  }).map(text => svg.parentNode.id + ': ' + text.textContent);
})
"""

# Texts that lie on one another.
OVERLAPPING = """
[...document.querySelectorAll('figure svg')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  return texts.flatMap(([one, a], place) => texts.slice(place + 1).filter(([_, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3
  ).map(([other, _]) => svg.parentNode.id + ': ' + one + ' / ' + other));
})
"""

# Elements that are wider than the window, though not inside what scrolls by itself.
TOO_WIDE = """
[...document.querySelectorAll('body *')].filter(element =>
  !element.closest('.table table') && element.getBoundingClientRect().right > innerWidth + 1
).map(element => element.outerHTML.slice(0, 80))
"""

# Contrast of each text with what is behind it, the least of all: 1 is unreadable, 4.5 is what WCAG AA asks for.
CONTRAST = """
(() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = parts(colour).map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (parts(colour)[3] !== 0) return colour;
    }
  };
  const kinds = 'h1, h2, h3, p, dt, dd, td, th, code, summary, caption, figcaption, svg text';
  const texts = [...document.querySelectorAll(kinds)];
  return Math.min(...texts.map(element => {
    const style = getComputedStyle(element);
    const [a, b] = [light(element.tagName === 'text' ? style.fill : style.color), light(behind(element))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }));
})()
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(known()))
    return path


@pytest.fixture(scope="module", params=[(width, dark) for width in WIDTHS for dark in (False, True)], ids=str)
def view(request: pytest.FixtureRequest, browser: Browser, path: Path) -> Page:
    width, dark = request.param
    return browser.open(path, width, dark)


def test_it_asks_for_nothing_and_complains_of_nothing(view: Page, path: Path) -> None:
    assert view.requests == [path.as_uri()]
    assert view.complaints == []
    assert view.ask("document.title") == "Forebay: /var/lib/forebay/journal"
    assert view.ask("document.compatMode") == "CSS1Compat"


def test_advice_is_the_first_thing_and_can_be_copied(view: Page) -> None:
    assert view.ask("document.querySelector('main').firstElementChild.className") == "advice"
    told = view.ask("[...document.querySelectorAll('.advice li')].map(one => one.id.slice(7))")
    assert told == ["pick-partitions", "replay", "idempotent", "racks", "memory"]
    first = view.ask("document.querySelector('.advice li').getBoundingClientRect().top")
    assert first < 300
    snippets = view.ask("[...document.querySelectorAll('.advice pre')].map(one => one.innerText)")
    assert snippets[1] == '"partitioner" = "expected_wait"\n"linger.ms" = 0'
    assert view.ask("[...document.querySelectorAll('.advice pre')].map(one => getComputedStyle(one).userSelect)") == [
        "all"
    ] * len(snippets)


def test_every_plot_is_seen(view: Page) -> None:
    assert view.ask("[...document.querySelectorAll('figure')].map(figure => figure.id.slice(5))") == PLOTS
    sizes = view.ask(
        "[...document.querySelectorAll('figure svg')].map(svg => svg.getBoundingClientRect())"
        ".map(box => [box.width, box.height])"
    )
    assert len(sizes) == len(PLOTS)
    assert all(width >= 300 and height >= 150 for width, height in sizes), sizes
    shapes = view.ask(
        "[...document.querySelectorAll('figure svg')].map(svg => [...svg.querySelectorAll('path, use')]"
        ".filter(shape => shape.getBoundingClientRect().width > 0).length)"
    )
    assert all(number >= 3 for number in shapes), shapes


def test_nothing_is_cut_off(view: Page) -> None:
    assert view.ask(CUT_OFF) == []
    assert view.ask(OVERLAPPING) == []
    assert view.ask(TOO_WIDE) == []
    assert view.ask("document.documentElement.scrollWidth <= innerWidth")


def test_letters_are_of_a_size_that_can_be_read(view: Page) -> None:
    least = view.ask(
        "Math.min(...[...document.querySelectorAll('svg text')].map(text => text.getBoundingClientRect().height))"
    )
    assert least >= 9


def test_light_or_dark_it_can_be_read(view: Page) -> None:
    assert view.ask(CONTRAST) >= 4.5


def test_plots_are_told_to_those_who_do_not_see_them(view: Page) -> None:
    told = view.ask(
        "[...document.querySelectorAll('svg')].map(svg => [svg.getAttribute('role'),"
        " svg.getAttribute('aria-labelledby').split(' ').map(id => document.getElementById(id).textContent)])"
    )
    assert len(told) == len(PLOTS)
    for role, (title, description) in told:
        assert role == "img"
        assert title
        assert re.search(r"\d", description)


def test_no_two_elements_have_the_same_id_and_all_references_lead_somewhere(view: Page) -> None:
    ids = view.ask("[...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(ids) == len(set(ids))
    assert view.ask(
        "[...document.querySelectorAll('use')].every(use => document.getElementById(use.href.baseVal.slice(1)))"
    )


def test_the_kips_table_is_there_and_its_numbers_stand_on_the_right(view: Page) -> None:
    table = "[...document.querySelectorAll('table')].find(table => table.caption.textContent == 'Batches')"
    assert view.ask(f"[...{table}.rows[1].cells].map(cell => cell.textContent)") == [
        "orders", "0", "1,683", "25,953,200", "25,228", "15,420.80", "14.99", "62.8", "3",
    ]  # fmt: skip
    assert view.ask(f"[...{table}.rows[1].cells].map(cell => getComputedStyle(cell).textAlign)") == [
        "left",
        *["right"] * 8,
    ]


class _Elements(HTMLParser):
    """The elements of a page that are not text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        for name, value in attrs:
            if name.rpartition(":")[2] in ("src", "href") or name.startswith("on"):
                self.addresses.append(value or "")


def hostile() -> Known:
    return known(topic=HOSTILE, client_id=HOSTILE, journal=HOSTILE)


def test_markup_in_names_does_not_become_markup(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(page(hostile()))
    elements = _Elements(path.read_text())
    assert not elements.names & {"script", "img", "link", "iframe", "object", "b"}
    assert all(address.startswith("#") for address in elements.addresses)
    view = browser.open(path, 400)
    assert (view.requests, view.complaints) == ([path.as_uri()], [])
    assert view.ask("document.title") == f"Forebay: {HOSTILE}"
    assert HOSTILE in view.ask("document.querySelector('#plot-shares-0 figcaption').textContent")
    assert view.ask("[...document.querySelectorAll('td')].filter(cell => cell.textContent.includes('<script>')).length")
    assert view.ask(TOO_WIDE) == []
    assert HOSTILE in view.ask("document.querySelector('#advice-pick-partitions').textContent")


def test_the_page_itself_forbids_scripts(browser: Browser, path: Path, tmp_path: Path) -> None:
    forbidden = tmp_path / "forbidden.html"
    forbidden.write_text(path.read_text().replace("<main>", f"<main>{HOSTILE}"))
    view = browser.open(forbidden, 1280)
    assert view.ask("document.title") != "taken"
    assert len(view.complaints) >= 2


def test_it_is_small(path: Path) -> None:
    assert path.stat().st_size < 400_000


def test_without_audit_replay_and_gauges(browser: Browser, tmp_path: Path) -> None:
    everything = known()
    bare = Known(everything.series._replace(gauges=[]), Facts(everything.summary))
    path = tmp_path / "bare.html"
    path.write_text(page(bare))
    view = browser.open(path, 400)
    assert view.ask("[...document.querySelectorAll('figure')].map(figure => figure.id.slice(5))") == PLOTS[:7]
    assert "The journal has no gauges of this time." in view.ask("document.body.textContent")
    assert "Audit" not in view.ask("document.body.textContent")


def test_where_nothing_is_to_be_changed_it_says_so(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "well.html"
    path.write_text(page(known()._replace(facts=facts())))
    told = browser.open(path, 400).ask("document.querySelector('.advice').innerText")
    assert "Nothing: no rule found enough evidence for a change that is worth it." in told
    assert "Nothing is known about individual clients" in told


def test_a_single_moment_can_be_plotted(browser: Browser, tmp_path: Path) -> None:
    everything = known()
    series = everything.series
    short = series._replace(
        times=series.times[:1],
        gauges=series.gauges[:1],
        shares=[topic._replace(points=topic.points[:1]) for topic in series.shares],
    )
    path = tmp_path / "short.html"
    path.write_text(page(everything._replace(series=short)))
    view = browser.open(path, 1280)
    assert view.ask("document.querySelectorAll('figure svg').length") == len(PLOTS)
    assert view.ask(CUT_OFF) == []
    assert view.complaints == []
