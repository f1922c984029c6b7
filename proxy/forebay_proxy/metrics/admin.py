"""The admin endpoint, on a port and a Unix socket of its own, for monitoring, for `forebay clients` and for steering.

GET /metrics   all metrics, in Prometheus's text format
GET /clients   which clients there are and were, and what they speak, as JSON (clients_seen.rows); `full`: there may be
               more, since no more are kept
GET /healthz   200 while the event loop turns; 503 with a reason if the proxy is broken and should be restarted
GET /readyz    200 when clients can be served; 503 with {"ready": false, "reason": …} before that and while draining

GET /          the page for people, and /api/v1/…, which it reads (console)

By the port all answer 401 to whom AdminAccess does not admit, but for probes and the page's own files, which show
nothing; by the socket everybody is admitted. Where everybody may read, the port answers /clients under its own names
only (own_hosts.py); /metrics under any, since Prometheus comes by the names of services. What each may do, his
Standing, app[STANDING_OF] tells of a request. The endpoint calls what it is given, and knows nothing of the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec
from aiohttp import web

from forebay_proxy.config import rereading
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.errors import StartError
from forebay_proxy.inherited import Inherited
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.admin_access import AdminAccess, Standing
from forebay_proxy.metrics.admin_door import AdminDoor
from forebay_proxy.metrics.admin_log import admin_log
from forebay_proxy.metrics.admin_socket import AdminSocket
from forebay_proxy.metrics.clients_seen import SeenClient, full, row_order, rows
from forebay_proxy.metrics.own_hosts import LOCAL, OwnHosts
from forebay_proxy.security.renewals import Renewable

Metrics = Callable[[], Awaitable[tuple[bytes, str]]]
"""Returns (body, content type)."""

Clients = Callable[[], Awaitable[list[SeenClient]]]

Fault = Callable[[], str | None]
"""Returns what is wrong; None: nothing."""


SHUTDOWN_S: Final = 0.5
BACKLOG: Final = 128
LARGEST_BODY: Final = 64 << 10
"""Bytes of a request; those that are larger are answered with 413."""
STANDING_OF: Final[web.AppKey[Callable[[web.Request], Standing | None]]] = web.AppKey("standing_of")
_SLICE: Final = 50
"""Clients whose rows are made before others have their turn: about a millisecond."""
_OPEN: Final = frozenset({"/healthz", "/readyz"})


class More(Protocol):
    """What else is served at the endpoint."""

    @property
    def open_paths(self) -> frozenset[str]:
        """What anybody may read."""

    def mount(self, app: web.Application) -> None:
        """Add its routes."""


class Admin:
    """Serves from `serve` to `stop`, also while the proxy starts and drains."""

    def __init__(
        self,
        metrics: Metrics,
        clients: Clients,
        unready: Fault,
        unhealthy: Fault = lambda: None,
        more: More | None = None,
    ) -> None:
        self._metrics = metrics
        self._clients = clients
        self._unready = unready
        self._unhealthy = unhealthy
        self._more = more
        self._open = _OPEN if more is None else _OPEN | more.open_paths
        self._runner: web.AppRunner | None = None
        self._bound: list[socket.socket] = []
        self._door: AdminDoor | None = None
        self._access: AdminAccess | None = None
        self._hosts: OwnHosts | None = None
        self._socket: AdminSocket | None = None
        self._by_socket: asyncio.Server | None = None
        self._log = RateLimited(get_logger())

    @property
    def renewable(self) -> Renewable:
        """Its certificates and its token, for whoever watches their files."""
        return Renewable("admin", "admin endpoint", rereading.ADMIN, self._prepare, self._expires_at)

    def _expires_at(self) -> float:
        return math.inf if self._access is None else self._access.expires_at

    @property
    def _in_use(self) -> AdminAccess:
        assert self._access is not None, "it has been started"
        return self._access

    def _prepare(self, settings: Settings) -> Callable[[], None]:
        access = AdminAccess(settings)

        def commit() -> None:
            self._access = access

        return commit

    def bind(self, settings: Settings, inherited: Inherited) -> None:
        """Have `settings.admin` and `settings.admin_socket`, for whom the settings admit. Raises StartError.

        Who comes waits until `serve`.
        """
        self._access = AdminAccess(settings)
        self._hosts = OwnHosts(LOCAL if settings.admin is None else settings.admin.host, settings.admin_hosts)
        try:
            if settings.admin is not None:
                self._bound = bound(settings.admin, inherited)
            if settings.admin_socket:
                self._socket = AdminSocket(settings.admin_socket, inherited)
        except StartError:
            self._close()
            raise

    @property
    def sockets(self) -> list[socket.socket]:
        """All that it listens on."""
        return [*self._bound, *([] if self._socket is None else [self._socket.socket])]

    async def start(self, settings: Settings) -> None:
        """Have them, and serve. Raises StartError."""
        self.bind(settings, Inherited())
        await self.serve()

    async def serve(self) -> None:
        """Serve whoever comes."""
        app = web.Application(middlewares=[self._admit], client_max_size=LARGEST_BODY)
        app[STANDING_OF] = self._standing
        app.router.add_get("/metrics", self._serve_metrics)
        app.router.add_get("/clients", self._serve_clients)
        app.router.add_get("/healthz", self._serve_healthz)
        app.router.add_get("/readyz", self._serve_readyz)
        if self._more is not None:
            self._more.mount(app)
        # Watchers would be waited for otherwise: they never end by themselves.
        runner = web.AppRunner(
            app, access_log=None, logger=admin_log(self._log), handle_signals=False, shutdown_timeout=SHUTDOWN_S
        )
        await runner.setup()
        # Probes and scrapes lose nothing, so the proxy does not wait for them when it exits.
        self._runner = runner
        entrance = self._in_use.context
        if entrance is not None:  # the port stays open with it; each handshake goes on with what is in use by then
            entrance.sni_callback = self._hand_over
        assert runner.server is not None, "it has been set up"
        self._door = AdminDoor(self._bound, runner.server, entrance, self._log)
        if self._socket is not None:
            with contextlib.suppress(OSError):  # somebody has removed it
                self._socket.own()
            loop = asyncio.get_running_loop()
            self._by_socket = await loop.create_unix_server(runner.server, sock=self._socket.socket)

    def _hand_over(self, connection: ssl.SSLObject, name: str | None, entrance: ssl.SSLContext) -> None:
        if self._in_use.context is not None:
            connection.context = self._in_use.context

    @web.middleware
    async def _admit(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        assert self._door is not None, "it serves"
        with self._door.asking(request.transport):
            return await self._admitted(request, handler)

    async def _admitted(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path in self._open or self._standing(request) is not None:
            return await handler(request)
        self._log.warning("admin endpoint refuses a request", client=request.remote, path=request.path)
        return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"}, text="a token is needed\n")

    def _standing(self, request: web.Request) -> Standing | None:
        transport = request.transport
        if transport is None:
            return None  # it has left
        if transport.get_extra_info("socket").family == socket.AF_UNIX:
            return Standing.OWNER
        shown = request.headers.get("Authorization", "")
        return self._in_use.standing(shown, transport.get_extra_info("peercert"))

    async def leave(self) -> None:
        """Take no more connections, and leave the port and the socket to a successor; go on with those that stand."""
        if self._door is not None:
            await self._door.close()
        self._bound = []
        if self._by_socket is not None:
            self._by_socket.close()
            self._by_socket = None
        if self._socket is not None:
            self._socket.leave()
            self._socket = None

    def _close(self) -> None:
        for each in self._bound:
            each.close()
        self._bound = []
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def stop(self) -> None:
        """Close the port and the socket; nothing happens if they are not open."""
        if self._by_socket is not None:
            self._by_socket.close()
            self._by_socket = None
        if self._door is not None:
            await self._door.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._door is not None:
            self._door.clear()
        self._close()

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        body, content_type = await self._metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _serve_clients(self, request: web.Request) -> web.Response:
        by_any_page = self._in_use.is_open and self._standing(request) is not Standing.OWNER
        assert self._hosts is not None, "it has been started"
        if by_any_page and (why := self._hosts.refusal(request.headers)) is not None:
            return web.json_response({"error": why}, status=403)
        clients, found = await self._clients(), []
        for at in range(0, len(clients), _SLICE):
            found += rows(clients[at : at + _SLICE])
            await asyncio.sleep(0)
        found.sort(key=row_order)
        return web.json_response(text=msgspec.json.encode({"clients": found, "full": full(clients)}).decode())

    async def _serve_healthz(self, request: web.Request) -> web.Response:
        return _verdict("healthy", self._unhealthy())

    async def _serve_readyz(self, request: web.Request) -> web.Response:
        return _verdict("ready", self._unready())


def bound(address: HostPort, inherited: Inherited) -> list[socket.socket]:
    """A socket for each address of the host, as asyncio would have them. Raises StartError."""
    found: list[socket.socket] = []
    try:
        infos = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, bound_to in dict.fromkeys(infos):
            given = inherited.take(family, bound_to)
            found += given
            if given:
                continue
            found.append(each := socket.socket(family, kind, protocol))
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and len(infos) > 1:  # alone "::" takes IPv4, too, as it does for clients
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind(bound_to)
            each.listen(BACKLOG)
    except OSError as error:
        for each in found:
            each.close()
        raise StartError(f"admin = {address}: cannot listen: {error.strerror or error}") from error
    return found


def _verdict(what: str, fault: str | None) -> web.Response:
    if fault is None:
        return web.json_response({what: True})
    return web.json_response({what: False, "reason": fault}, status=503)
