"""Answers of /metrics, made in the loop that passes records on, which others have in between.

In: what takes a snapshot. Out: the text, as of when it was asked for or later. One is made at a time: who asks
meanwhile waits for the next, which is for all who have asked by then. Whoever stops waiting leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_LATEST

from forebay_proxy.metrics.exposition import families, texts
from forebay_proxy.metrics.registry import Snapshot
from forebay_proxy.metrics.topics_seen import NamedTopics

SLICE: Final = 8 << 10
"""Bytes that are written before others have their turn: about a millisecond."""


class Scrapes:
    """`version` is Forebay's, `named` the topics with metrics of their own."""

    def __init__(self, take: Callable[[], Snapshot], version: str, named: NamedTopics) -> None:
        self._take = take
        self._version = version
        self._named = named
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0
        self._asked = 0
        self._answered = 0
        """So many of those who have asked may have what was made last."""
        self._made = b""

    async def metrics(self) -> tuple[bytes, str]:
        """(body, content type)."""
        self._asked = mine = self._asked + 1
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                if self._answered < mine:
                    asked = self._asked
                    self._made = await self._make()
                    self._answered = asked
                return self._made, CONTENT_TYPE_LATEST
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._made = b""

    async def _make(self) -> bytes:
        pieces = families(self._take(), self._version, self._named)
        await asyncio.sleep(0)
        made, at_once = bytearray(), SLICE
        for text in texts(pieces):
            made += text
            if len(made) >= at_once:
                await asyncio.sleep(0)
                at_once = len(made) + SLICE
        return bytes(made)
