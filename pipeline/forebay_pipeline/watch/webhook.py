"""Findings as a POST of JSON to a URL: `{"findings": [minute, …], "left_out": 0}`, one for each batch that has any.

At most a hundred minutes are told, and `left_out` says how many more there were. Tried three times, for five seconds
each: what cannot be delivered is told to whoever runs the job, and counted, and nothing waits for it any longer. A
batch that is done again after a crash is told again.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit

import click
import msgspec

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.watch.verdict import Minute

MOST: Final = 100
_PAUSES_S: Final = (1, 2)
"""Between tries."""
_ANSWER_S: Final = 5


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other: what is posted would be asked for (GET) at the other place."""

    def redirect_request(self, *_: object) -> None:
        return None


class Webhook:
    """Posts to `url`, which may hold a secret and is not shown. Raises CannotRun unless it is an http or https URL."""

    def __init__(self, url: str, pause: Callable[[float], object] = time.sleep) -> None:
        self._host = _host(url)
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._url = url
        self._pause = pause
        self.undelivered = 0
        """Batches with findings that could not be delivered."""

    def tell(self, batch: int, minutes: Sequence[Minute]) -> None:
        """Post those of the minutes that have findings, if any. Raises nothing."""
        found = [minute for minute in minutes if minute.findings]
        if not found:
            return
        body = msgspec.json.encode({"findings": found[:MOST], "left_out": max(0, len(found) - MOST)})
        why = self._post(body)
        for pause_s in _PAUSES_S:
            if why is None:
                return
            self._pause(pause_s)
            why = self._post(body)
        if why is not None:
            self.undelivered += 1
            click.echo(f"{len(found):,} findings could not be delivered to {self._host}: {why}", err=True)

    def _post(self, body: bytes) -> str | None:
        """Why it was not taken; None if it was."""
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"}, method="POST")
        try:
            with self._opener.open(request, timeout=_ANSWER_S):
                return None
        except urllib.error.HTTPError as error:
            error.close()
            return f"HTTP status {error.code}"
        except (OSError, HTTPException, ValueError) as error:
            # The text of the others may have the URL in it.
            return str(error) if isinstance(error, OSError) and str(error) else type(error).__name__

    def totals(self) -> dict[str, tuple[str, int]]:
        """For exposition.TextFile."""
        return {"webhook_undelivered_total": ("Batches with findings that the webhook did not take.", self.undelivered)}


def _host(url: str) -> str:
    """Raises CannotRun, without the URL, unless it can be posted to."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise CannotRun("The webhook must be a URL that begins with http:// or https://.")
    if not all("!" <= character <= "~" for character in url):
        raise CannotRun("The webhook's URL must be ASCII without spaces: write others as %20 and so on.")
    return host
