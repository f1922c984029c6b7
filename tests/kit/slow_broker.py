"""A broker that serves slowly, as in KIP-794's scenario: a relay that holds each Produce response for a while, in turn.

(Or each response of another API.)

toxiproxy's latency delays all of a stream alike, so what is pipelined arrives together; a slow broker serves one
request after the other, over all its connections. All else passes at once.
"""

from __future__ import annotations

import asyncio

from forebay_codecs.api_keys import PRODUCE
from tests.kit.frame_relay import FrameRelay, Look


class SlowBroker(FrameRelay):
    """Listens on `port` before the broker on `target`; each response of that API takes `hold_ms` of its own."""

    def __init__(self, port: int, target: int, hold_ms: float, api_key: int = PRODUCE) -> None:
        super().__init__(port, target)
        self._hold = hold_ms / 1000
        self._api_key = api_key
        self._free_at = 0.0

    def hold(self, hold_ms: float) -> None:
        """From now on; what is held already stays so."""
        self._hold = hold_ms / 1000

    def _looks(self) -> tuple[Look, Look]:
        held: set[bytes] = set()

        async def request(frame: bytes) -> None:
            if int.from_bytes(frame[:2], "big") == self._api_key:
                held.add(frame[4:8])

        async def response(frame: bytes) -> None:
            if frame[:4] in held:
                held.discard(frame[:4])
                self._free_at = max(self._free_at, self._loop.time()) + self._hold
                await asyncio.sleep(self._free_at - self._loop.time())

        return request, response
