"""An OAuth 2 token endpoint in the test's own event loop.

    async with TokenEndpoint() as endpoint:
        … endpoint.url …

It gives `token` to CLIENT_ID with CLIENT_SECRET, and answers `status` instead if that is not 200, with `location`. With
`tls` it speaks HTTPS.
"""

from __future__ import annotations

import ssl
from base64 import b64decode
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.kit.ports import LOOPBACK, free_port

CLIENT_ID, CLIENT_SECRET = "forebay", "canary-5ec7"


class TokenEndpoint:
    """`asked` has the form of each request."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.status = 200
        self.location = ""
        self.expires_in: float | str | None = 3_600
        self.body: bytes | None = None
        self.asked: list[dict[str, Any]] = []
        self._port = free_port()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://{LOOPBACK}:{self._port}/token"

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(dict(await request.post()))
        login = b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode()
        if self.status != 200 or login != f"{CLIENT_ID}:{CLIENT_SECRET}":
            headers = {"Location": self.location} if self.location else {}
            return web.Response(status=self.status if self.status != 200 else 401, headers=headers)
        if self.body is not None:
            return web.Response(body=self.body)
        told = {"access_token": f"token-{len(self.asked)}", "token_type": "Bearer"}
        return web.json_response(told | ({"expires_in": self.expires_in} if self.expires_in is not None else {}))

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/token", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, self._port, ssl_context=self._tls).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()
