"""The page at the admin address in a real Chromium: with many topics and clients, for everybody, after real records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from bench import watchers
from forebay_proxy.console.stream import BYTES_S
from forebay_proxy.demo.mock_cluster import MockCluster
from tests.kit import paths, picture
from tests.kit.browser import Browser, Page
from tests.kit.forebay import ForebayProcess
from tests.kit.paths import AXE_SCRIPT
from tests.kit.synthetic_console import SyntheticConsole
from tests.kit.waiting import wait_until

HOSTILE = """"><script>document.title='taken'</script><img src="http://192.0.2.1/x" onerror="document.title='taken'">"""
Visit = Callable[..., Page]
MIB = 1 << 20

READY = "document.querySelector('.live.live') && !!document.querySelector('main h1')"
NUMBERS = "document.querySelector('.sentence')?.textContent.includes('records/s in')"

# The client's id holds characters that a hash must have encoded.
VIEWS = {
    "clients": "document.querySelectorAll('tbody tr').length === 25",
    "topics": "document.querySelectorAll('tbody tr').length === 25",
    "topic/orders": "document.querySelectorAll('tbody tr').length === 12",
    "broker/1": "document.querySelectorAll('canvas').length === 3",
    "events": "document.querySelectorAll('tbody tr').length >= 2",
    "settings": "document.querySelectorAll('tbody tr').length === 1",
    "nowhere": "document.querySelector('h1').textContent.includes('no such view')",
}

TOO_WIDE = """
[...document.querySelectorAll('body *')].filter(element =>
  !element.closest('.scroll table, .heat-cells canvas, .hidden, .skip')
  && element.getBoundingClientRect().right > innerWidth + 1
).map(element => element.outerHTML.slice(0, 120))
"""


@pytest.fixture(scope="module")
def many() -> Iterator[SyntheticConsole]:
    with SyntheticConsole(topics=500, partitions=12, clients=1000, past=60, names=[HOSTILE]) as console:
        yield console


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Opens tabs, which are closed when the test is over."""
    tabs: list[Page] = []

    def visit(url: str, width: int, dark: bool = False) -> Page:
        tabs.append(browser.visit(url, width, dark))
        return tabs[-1]

    yield visit
    for tab in tabs:
        tab.close()


def judged(page: Page) -> list[str]:
    """What axe-core finds: rule and element."""
    page.ask(AXE_SCRIPT.read_text() + "; 0")
    found: dict[str, Any] = page.ask("axe.run().then(({violations}) => ({violations}))")
    return [f"{rule['id']}: {node['html'][:150]}" for rule in found["violations"] for node in rule["nodes"]]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_the_first_screen_is_for_everybody(visit: Visit, many: SyntheticConsole, width: int, dark: bool) -> None:
    page = visit(many.url, width, dark)
    page.until(f"{READY} && {NUMBERS} && document.querySelectorAll('canvas').length === 7")
    assert judged(page) == []
    assert page.ask(TOO_WIDE) == []
    assert page.ask("document.documentElement.scrollWidth <= innerWidth")
    assert page.ask("document.querySelectorAll('.heat-names li').length") == 50
    assert page.complaints == []
    assert {url.removeprefix(many.url).partition("/")[0] for url in page.requests} == {""}


def test_those_who_watch_without_a_browser_ask_for_the_same(visit: Visit, many: SyntheticConsole) -> None:
    """Bench q is about the page, then."""
    page = visit(many.url, 1400)
    page.until(f"{READY} && {NUMBERS} && document.querySelectorAll('canvas').length === 7")
    asked = {
        url.removeprefix(many.url + watchers.API) for url in page.requests if url.startswith(many.url + watchers.API)
    }
    of_another_worker = {what for what in asked if "of=worker&key=1" in what}
    assert asked - {"stream"} - of_another_worker == set(watchers.ASKED)


def test_what_the_stream_tells_is_not_asked_for(visit: Visit, many: SyntheticConsole) -> None:
    """Each broker's numbers every second, and every five what needs attention."""
    page = visit(many.url, 1400)
    page.until(f"{READY} && {NUMBERS} && document.querySelectorAll('[aria-labelledby=brokers] tbody tr').length === 3")
    row = "document.querySelector('[aria-labelledby=brokers] tbody tr').textContent"
    page.ask(f"window.before = {row}")
    page.until(f"{row} !== window.before")
    assert len([url for url in page.requests if "/brokers?" in url]) == 1
    many.unready = "nobody knows the way"
    try:
        page.until("document.querySelector('.problems')?.textContent.includes('nobody knows the way')")
    finally:
        many.unready = None
    assert len([url for url in page.requests if url.endswith("/overview")]) <= 2  # before the stream has told of it


def test_what_is_too_much_for_the_stream_is_asked_for_as_often(visit: Visit, many: SyntheticConsole) -> None:
    page = visit(many.url, 1400)
    page.until(f"{READY} && {NUMBERS}")
    many.unready = "nobody knows the way" + " on" * BYTES_S
    try:
        page.ask("import('/live.js').then(({now}) => { now.overviewAt -= 10_000; })")  # as if they had passed
        page.until("document.querySelector('.problems')?.textContent.includes('nobody knows the way')", 40)
    finally:
        many.unready = None


def test_charts_have_the_seconds_that_were_not_seen(visit: Visit, many: SyntheticConsole) -> None:
    page = visit(f"{many.url}/#/events", 1400)
    page.until(READY)
    page.ask(
        "(() => { const Plot = uPlot; window.plots = [];"
        " window.uPlot = function (...given) { const plot = new Plot(...given); plots.push(plot); return plot; };"
        " location.hash = '#/'; })()"
    )
    page.until("window.plots.length === 6 && plots.every(plot => plot.data[0].length > 50)")
    page.ask(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange')); window.since = Date.now() / 1000"
    )
    page.until("Date.now() / 1000 > since + 3")
    page.ask("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.until(
        "plots.every(({data: [times]}) => times.at(-1) > since + 3"
        " && times.every((time, at) => !at || time - times[at - 1] <= 2))"
    )


def test_a_forebay_that_hangs_is_neither_live_nor_well(visit: Visit) -> None:
    well = "!!document.querySelector('.well')"
    with SyntheticConsole(clients=1, past=10) as console:
        page = visit(console.url, 400)
        page.until(f"{READY} && {NUMBERS} && {well}")
        with console.hanging():
            page.ask(
                "window.answer = import('/api.js').then(({ask}) => ask('overview')).catch(error => error.message); 0"
            )
            page.until(f"document.querySelector('.live.lost')?.textContent.includes('as of') && !({well})")
            assert judged(page) == []
            assert page.ask(TOO_WIDE) == []
            assert page.ask("window.answer") == "Forebay does not answer"
        page.until(f"{READY} && {NUMBERS} && {well}")


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_is_there_and_for_everybody(visit: Visit, many: SyntheticConsole, view: str) -> None:
    page = visit(f"{many.url}/#/{view}", 400 if view in ("clients", "broker/1") else 1400)
    page.until(f"{READY} && {VIEWS[view]}")
    assert judged(page) == []
    assert page.ask(TOO_WIDE) == []
    assert page.complaints == []


def test_judging_would_find_something(visit: Visit, many: SyntheticConsole) -> None:
    page = visit(many.url, 1400)
    page.until(READY)
    page.ask("document.querySelector('main').insertAdjacentHTML('beforeend', '<button></button>')")
    assert any("button-name" in finding for finding in judged(page))


def test_a_client_without_an_id_is_asked_about_as_such(visit: Visit, many: SyntheticConsole) -> None:
    page = visit(many.url, 400)
    page.ask("import('/api.js').then(({ask}) => ask('explain', {topic: 'orders', client_id: '', q: null}))")
    assert any(url.endswith("/explain?topic=orders&client_id=") for url in page.requests)


def test_a_hostile_name_is_a_name(visit: Visit, many: SyntheticConsole) -> None:
    page = visit(f"{many.url}/#/clients", 1400)
    page.until(f"{READY} && document.querySelectorAll('tbody tr').length === 25")
    page.ask(
        "(() => { const box = document.querySelector('input[type=search]'); box.value = 'taken';"
        " box.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    page.until("document.querySelectorAll('tbody tr').length === 1")
    assert page.ask("document.querySelector('tbody a').textContent") == HOSTILE
    page.ask("document.querySelector('tbody a').click()")
    page.until("document.querySelector('h1 .name')?.textContent.includes('onerror')")
    assert page.ask("document.querySelectorAll('main img, main script').length") == 0
    assert "taken" not in page.ask("document.title").split()
    assert page.complaints == []
    assert all(url.startswith(many.url) for url in page.requests)


def test_a_keyboard_reaches_all(visit: Visit, many: SyntheticConsole) -> None:
    page = visit(many.url, 1400)
    page.until(f"{READY} && document.querySelectorAll('.heat-names li').length === 50")
    page.ask(
        "window.reached = new Set();"
        "document.addEventListener('focusin', ({target}) => reached.add(target.outerHTML.slice(0, 200)))"
    )
    wanted = (
        "[...document.querySelectorAll('a[href], button:not(:disabled), input, [tabindex=\"0\"]')]"
        ".filter(one => one.checkVisibility()).map(one => one.outerHTML.slice(0, 200))"
    )
    for _ in range(page.ask(f"{wanted}.length") + 5):
        page.press("Tab")
    assert page.ask(f"{wanted}.filter(one => !reached.has(one))") == []
    page.ask("document.querySelector('nav a[href=\"#/topics\"]').focus()")
    page.press("Enter")
    page.until("document.querySelector('h1')?.textContent === 'Topics' && document.activeElement.tagName === 'H1'")


def test_seven_tabs_share_one_stream(visit: Visit, many: SyntheticConsole) -> None:
    tabs = [visit(many.url, 400) for _ in range(7)]
    for tab in tabs:
        tab.until(f"{READY} && {NUMBERS}")
    wait_until(lambda: many.watching == 1, 30, "they share one, and that of the page before has ended")
    for tab in tabs:
        assert tab.complaints == []
        tab.ask("location.href = 'about:blank'")
    wait_until(lambda: many.watching == 0, 30, "nobody watches")


@pytest.mark.whole
@pytest.mark.timeout(1500)
def test_ten_minutes_take_no_memory(browser: Browser, visit: Visit, many: SyntheticConsole) -> None:
    """On the first screen, and in the worker that reads the stream, once all of it is there."""
    page = visit(many.url, 1400)
    page.until(f"{READY} && {NUMBERS} && document.querySelectorAll('canvas').length === 7")
    page.ask("import('/live.js').then(({listen}) => { window.heard = 0; listen(() => { window.heard += 1; }); })")
    parts = page, browser.shared_worker(many.url)

    def after(seconds: int) -> int:
        page.until(f"window.heard >= {seconds}", 1200)
        return sum(part.heap() for part in parts)

    settled = after(10)
    grown = after(10 + 600) - settled
    print(f"{settled / MIB:.1f} MiB, {grown / MIB:+.2f} MiB after ten minutes")
    assert grown < MIB


def test_a_token_is_asked_for_and_used_and_a_tab_without_one_changes_nothing(visit: Visit) -> None:
    with (
        MockCluster(1) as brokers,
        ForebayProcess(brokers.bootstrap, (1,), env={"FOREBAY_ADMIN_BEARER_TOKEN": "sesame"}) as forebay,
    ):
        page = visit(forebay.admin_url, 400)
        page.until("!!document.querySelector('input[type=password]')")
        assert judged(page) == []
        page.ask(
            "(() => { const box = document.querySelector('input[type=password]'); box.value = 'sesame';"
            " box.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )
        page.ask("new Promise(resolve => setTimeout(resolve))")
        page.ask("document.querySelector('main form').requestSubmit()")
        page.until(f"{READY} && {NUMBERS}")
        visit(forebay.admin_url, 400).until("!!document.querySelector('input[type=password]')")
        page.ask(
            "import('/live.js').then(({listen}) => {"
            " window.told = new Set(); listen(({second}) => window.told.add(second?.second)); })"
        )
        page.until("window.told.size >= 2", 20)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.whole), 2])
def test_sums_are_those_of_the_metrics(visit: Visit, workers: int) -> None:
    with (
        MockCluster(3) as brokers,
        ForebayProcess(
            brokers.bootstrap,
            (1, 2, 3),
            options=("--workers", str(workers)),
            settings={"topics.exclude": "raw", "metrics.topics.max": "5"},
        ) as forebay,
    ):
        for topic in ("ponds", "raw"):
            brokers.create_topic(topic, 6)
        producer = Producer({"bootstrap.servers": forebay.bootstrap, "client.id": "till-7"})
        for number in range(1200):
            producer.produce("ponds" if number % 3 else "raw", b"value")
        assert producer.flush(60) == 0

        def api(path: str) -> dict[str, Any]:
            told: dict[str, Any] = json.loads(forebay.get(f"/api/v1/{path}"))
            return told

        def counted(name: str) -> float:
            return sum(value for key, value in forebay.metrics().items() if key.partition("{")[0] == name)

        def shown() -> list[tuple[str, int, int]]:
            rows = api("topics")["rows"]
            return sorted((row["topic"], row["records_total"], row["untouched_total"]) for row in rows)

        wait_until(lambda: shown() == [("ponds", 800, 0), ("raw", 0, 400)], 60, "all was seen")
        metrics = forebay.metrics()
        assert counted("forebay_broker_records_total") == 800
        assert counted("forebay_records_total") == 1200
        assert metrics['forebay_topic_records_total{path="merged",topic="ponds"}'] == 800
        assert metrics['forebay_topic_records_total{path="untouched",topic="raw"}'] == 400
        assert sum(row["records_total"] for row in api("topics?name=ponds")["rows"]) == 800
        (client,) = api("clients?q=till-7")["rows"]
        assert client["records"] == 1200
        assert sum(client["batches"].values()) == counted("forebay_batches_in_total")

        page = visit(f"{forebay.admin_url}/#/topic/ponds", 1400)
        page.until("[...document.querySelectorAll('.facts dd')].some(one => one.textContent === '800')")
        page.ask("location.hash = '#/topic/raw'")
        page.until("document.querySelector('.explained')?.textContent.includes('topics.exclude has raw')")
        assert page.complaints == []


def test_what_judges_is_no_part_of_what_is_judged() -> None:
    assert paths.CACHE in AXE_SCRIPT.parents


def test_the_picture_of_it_is_small() -> None:
    assert 0 < picture.TARGET.stat().st_size < 200_000
