"""`make picture`: docs/images/page.png, the first screen of the page with made-up numbers."""

from __future__ import annotations

from typing import Final

from tests.kit.browser import Browser
from tests.kit.paths import ROOT
from tests.kit.synthetic_console import SyntheticConsole

TARGET: Final = ROOT / "docs" / "images" / "page.png"
WIDTH, HEIGHT = 1200, 1220


def main() -> None:
    TARGET.parent.mkdir(exist_ok=True)
    with SyntheticConsole() as console, Browser() as browser:
        page = browser.visit(console.url, WIDTH, height=HEIGHT)
        page.until("document.querySelectorAll('canvas').length === 7 && !!document.querySelector('.live.live')")
        page.until("document.querySelector('.sentence').textContent.includes('records/s')")
        page.picture(TARGET, whole=False)
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
