"""The body of an HTTP answer, whole, and within a bound."""

from __future__ import annotations

from typing import Final

import aiohttp

MAX_ANSWER: Final = 1 << 20


async def whole_body(response: aiohttp.ClientResponse) -> bytes:
    """All of it, in however many pieces it comes. Raises ConnectionError where that is more than MAX_ANSWER bytes."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MAX_ANSWER:
            raise ConnectionError(f"{response.url} answered more than {MAX_ANSWER} bytes")
    return bytes(body)
