"""The admin endpoint, on a port of its own: what machines ask of a running proxy.

GET /metrics   everything that was counted, in Prometheus's text form
GET /clients   which clients there are and have been, and what they speak, as JSON (clients_seen.rows)
GET /healthz   200 while the event loop turns; 503 with a reason where the proxy finds fault with itself: restart it
GET /readyz    200 when clients can be served; 503 with {"ready": false, "reason": …} before that and while draining

It is told by callables and knows nothing of the proxy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from forebay_proxy.config.settings import HostPort
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.clients_seen import SeenClient, rows

Metrics = Callable[[], Awaitable[tuple[bytes, str]]]
"""→ (body, content type)."""

Clients = Callable[[], Awaitable[list[SeenClient]]]

Fault = Callable[[], str | None]
"""What is wrong; None: nothing."""


class Admin:
    """Serves from `start` to `stop`."""

    def __init__(self, metrics: Metrics, clients: Clients, unready: Fault, unhealthy: Fault = lambda: None) -> None:
        self._metrics = metrics
        self._clients = clients
        self._unready = unready
        self._unhealthy = unhealthy
        self._runner: web.AppRunner | None = None

    async def start(self, address: HostPort) -> None:
        """Listen on `address`; StartError where that cannot be."""
        app = web.Application()
        app.router.add_get("/metrics", self._serve_metrics)
        app.router.add_get("/clients", self._serve_clients)
        app.router.add_get("/healthz", self._serve_healthz)
        app.router.add_get("/readyz", self._serve_readyz)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        # Probes and scrapes have nothing to lose: none is waited for when the proxy leaves.
        site = web.TCPSite(runner, address.host, address.port, reuse_address=True)
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise StartError(f"admin = {address}: cannot listen there: {error.strerror or error}") from error
        self._runner = runner

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        body, content_type = await self._metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _serve_clients(self, request: web.Request) -> web.Response:
        return web.json_response({"clients": rows(await self._clients())})

    async def _serve_healthz(self, request: web.Request) -> web.Response:
        return _verdict("healthy", self._unhealthy())

    async def _serve_readyz(self, request: web.Request) -> web.Response:
        return _verdict("ready", self._unready())


def _verdict(what: str, fault: str | None) -> web.Response:
    if fault is None:
        return web.json_response({what: True})
    return web.json_response({what: False, "reason": fault}, status=503)
