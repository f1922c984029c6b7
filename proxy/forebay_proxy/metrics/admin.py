"""The admin endpoint, on a port of its own, for monitoring and for `forebay clients`.

GET /metrics   all metrics, in Prometheus's text format
GET /clients   which clients there are and were, and what they speak, as JSON (clients_seen.rows)
GET /healthz   200 while the event loop turns; 503 with a reason if the proxy is broken and should be restarted
GET /readyz    200 when clients can be served; 503 with {"ready": false, "reason": …} before that and while draining

It calls what it is given, and knows nothing of the proxy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from forebay_proxy.config.settings import HostPort
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.clients_seen import SeenClient, rows

Metrics = Callable[[], Awaitable[tuple[bytes, str]]]
"""Returns (body, content type)."""

Clients = Callable[[], Awaitable[list[SeenClient]]]

Fault = Callable[[], str | None]
"""Returns what is wrong; None: nothing."""


class Admin:
    """Serves from `start` to `stop`, also while the proxy starts and drains."""

    def __init__(self, metrics: Metrics, clients: Clients, unready: Fault, unhealthy: Fault = lambda: None) -> None:
        self._metrics = metrics
        self._clients = clients
        self._unready = unready
        self._unhealthy = unhealthy
        self._runner: web.AppRunner | None = None

    async def start(self, address: HostPort) -> None:
        """Listen on `address`. Raises StartError if that is not possible."""
        app = web.Application()
        app.router.add_get("/metrics", self._serve_metrics)
        app.router.add_get("/clients", self._serve_clients)
        app.router.add_get("/healthz", self._serve_healthz)
        app.router.add_get("/readyz", self._serve_readyz)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        # Probes and scrapes lose nothing, so the proxy does not wait for them when it exits.
        site = web.TCPSite(runner, address.host, address.port, reuse_address=True)
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise StartError(f"admin = {address}: cannot listen: {error.strerror or error}") from error
        self._runner = runner

    async def stop(self) -> None:
        """Close the port; nothing happens if it is not open."""
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
