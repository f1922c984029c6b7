"""A headless Chromium, told what to do through a pipe (the DevTools protocol): pages as people see them.

    with Browser() as browser:
        page = browser.open(path, width=400)
        page.ask("document.title")      # JavaScript → its value

In: a page's file, a width, light or dark. Out: what the page asked of the network, what it complained about, what a
script finds in it, a picture. BrowserFailed, where Chromium does not answer. No ports: two browsers do not meet.
"""

from __future__ import annotations

import base64
import fcntl
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tests.kit.paths import program

_SECONDS = 60
_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe")
# A page that asks for something shows it in these; `Log` also tells of what the page's own policy forbade.
_DOMAINS = ("Page", "Network", "Runtime", "Log")

# Chromium is told by its descriptor 3, and tells by 4. The pipes are beyond, so that they are not overwritten.
_BEYOND = 10
_LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class BrowserFailed(Exception):
    """Chromium ended, is silent, or could not do what it was told."""


class Page:
    """One page, loaded. Scripts of the test's own are not bound by the page's policy."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session

    def ask(self, script: str) -> Any:
        """The value of an expression, as JSON can tell it; of a promise what becomes of it."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserFailed(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = _SECONDS) -> None:
        """Waits for an expression to be true."""
        deadline = time.monotonic() + seconds
        while not self.ask(script):
            if time.monotonic() > deadline:
                raise BrowserFailed(f"not so within {seconds:g} s: {script}")
            time.sleep(0.05)

    def press(self, key: str, shift: bool = False) -> None:
        """A key of the keyboard, such as Tab or Enter."""
        code = {"Tab": 9, "Enter": 13, " ": 32}[key]
        told = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **told, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def heap(self) -> int:
        """Bytes that its scripts hold on to: what is in use once all else has been collected."""
        self.call("HeapProfiler.collectGarbage")
        return int(self.call("Runtime.getHeapUsage")["usedSize"])

    def close(self) -> None:
        """As a person closes a tab."""
        self._browser.call("Target.closeTarget", targetId=self._target)

    def picture(self, path: Path, whole: bool = True) -> None:
        """The whole page, or what fits into its window, as PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    @property
    def requests(self) -> list[str]:
        """Every address that was asked for, the page's own first."""
        return [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]

    @property
    def complaints(self) -> list[str]:
        """What a person would find in the console."""
        entries = [event["entry"]["text"] for event in self._events("Log.entryAdded")]
        thrown = [str(event["exceptionDetails"]) for event in self._events("Runtime.exceptionThrown")]
        return [*entries, *thrown, *(str(event["args"]) for event in self._events("Runtime.consoleAPICalled"))]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def _events(self, method: str) -> list[dict[str, Any]]:
        return [
            event["params"]
            for event in self._browser.events
            if event["method"] == method and event.get("sessionId") == self._session
        ]


class Browser:
    def __enter__(self) -> Self:
        self.events: list[dict[str, Any]] = []
        self._number = 0
        self._unread = b""
        self._profile = tempfile.TemporaryDirectory(prefix="forebay-browser-", ignore_cleanup_errors=True)
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        theirs = [fcntl.fcntl(one, fcntl.F_DUPFD, _BEYOND) for one in (to_browser, from_browser)]
        os.close(to_browser)
        os.close(from_browser)

        chromium = [str(program("chromium")), *_OPTIONS, f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, *map(str, theirs), *chromium],
            pass_fds=theirs,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for one in theirs:
            os.close(one)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def open(self, path: Path, width: int, dark: bool = False, height: int = 800) -> Page:
        """The page in that file, when it has loaded."""
        return self.visit(path.resolve().as_uri(), width, dark, height)

    def visit(self, url: str, width: int, dark: bool = False, height: int = 800) -> Page:
        """The page at that address, when it has loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in _DOMAINS:
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Page.navigate", url=url)
        self._until(lambda told: told.get("method") == "Page.loadEventFired" and told.get("sessionId") == session)
        return page

    def shared_worker(self, url: str) -> Page:
        """The one of pages under that address, which can be asked as a page can."""
        found = self.call("Target.getTargets", filter=[{"type": "shared_worker"}])["targetInfos"]
        (target,) = (each["targetId"] for each in found if each["url"].startswith(url))
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session, target)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, msgspec.json.encode(message) + b"\0")
        number = self._number
        answer = self._until(lambda told: told.get("id") == number)
        if "error" in answer:
            raise BrowserFailed(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + _SECONDS
        while True:
            told = self._receive(deadline)
            if "method" in told:
                self.events.append(told)
            if wanted(told):
                return told

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._read, 1 << 20) if ready else b""
            if not data:
                raise BrowserFailed(f"Chromium says nothing any more; its exit code is {self._process.poll()}")
            self._unread += data
        message, _, self._unread = self._unread.partition(b"\0")
        told: dict[str, Any] = msgspec.json.decode(message)
        return told
