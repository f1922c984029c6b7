"""A running Forebay's admin endpoint, as commands reach it.

In: its URL, its Unix socket, or the bootstrap servers of clients: when an ApiVersions request carries this command's
software name, Forebay adds the address of its admin endpoint to the response, in a tagged field that others skip. Out:
what it answers. Raises AdminError, one line for people, where nobody can be asked.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from forebay_codecs import api_versions
from forebay_codecs.errors import Malformed
from forebay_proxy import __version__
from forebay_proxy.commands.command_config import CommandConfig
from forebay_proxy.commands.socket_http import SocketConnection
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.security import is_loopback
from forebay_proxy.config.settings import HostPort
from forebay_proxy.metrics.clients_seen import SOFTWARE
from forebay_proxy.security.tls import explain, is_tls

TIMEOUT_S: Final = 10
_ANYWHERE: Final = ("0.0.0.0", "::", "")
_MAX_RESPONSE_BYTES: Final = 1 << 20
_VERSION: Final = 3


class AdminError(Exception):
    """Nobody could be asked, or the answer is no. Its text is one line for people."""


def discover(servers: Sequence[HostPort], config: CommandConfig) -> str:
    """The URL of the admin endpoint of the first of `servers` that responds; `config` says how they are reached.

    Raises AdminError if none does, if that one is not Forebay or has no admin endpoint that this host can reach, and
    where a token would go to a host that was neither asked nor named over TLS.
    """
    failures = []
    for server in servers:
        try:
            admin, address, here = _ask(server, config.context)
        except (OSError, Malformed, EOFError) as error:
            failures.append(f"{server}: {explain(error) if isinstance(error, OSError) else error}")
            continue
        if admin is None:
            also = "or a listener of it where clients log in themselves: name the endpoint with --url or --socket"
            raise AdminError(f"{server} names no admin endpoint: it is not Forebay, {also}")
        if not admin:
            raise AdminError(f"{server} has no admin endpoint: start Forebay with --admin HOST:PORT")
        https = admin.startswith("https://")
        host, _, port = admin.removeprefix("https://").rpartition(":")
        if is_loopback(host.strip("[]")) and not here:
            where = f"{server} has its admin endpoint at {host}:{port}, where only its own host reaches it"
            raise AdminError(f"{where}: run this there, or give --url")
        if host.strip("[]") in _ANYWHERE:  # a certificate has a name; without one, not every name is taken
            host = _bracketed(server.host if https else address)
        url = f"{'https' if https else 'http'}://{host}:{port}"
        if config.token and config.context is None and https and not _is_of(url, server):
            where = f"{server} has its admin endpoint at {host}:{port}, or so it says without TLS"
            raise AdminError(f"{where}: to send admin.bearer.token there, give --url {url}")
        return url
    raise AdminError(f"no response: {'; '.join(failures)}")


def _is_of(url: str, server: HostPort) -> bool:
    """Whether it leads to that host, or to this one."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host.rstrip(".") == server.host.strip("[]").lower().rstrip(".") or is_loopback(host)


def _bracketed(host: str) -> str:
    """As it stands in a URL."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _ask(server: HostPort, context: ssl.SSLContext | None) -> tuple[str | None, str, bool]:
    """What it says of its admin endpoint, its own address, and whether that is one of this host."""
    request = api_versions.request(1, SOFTWARE, _VERSION, SOFTWARE, __version__)
    with _connect(server, context) as connection, connection.makefile("rb") as answers:
        connection.sendall(len(request).to_bytes(4, "big") + request)
        start = _exactly(answers, 4)
        if is_tls(start):
            raise Malformed("it answers in TLS: set security.protocol=SSL or SASL_SSL in the file of --command-config")
        size = int.from_bytes(start, "big")
        if size > _MAX_RESPONSE_BYTES:
            raise Malformed(f"a response of {size} bytes")
        address, own = connection.getpeername()[0], connection.getsockname()[0]
        here = is_loopback(address) or address == own  # a host reaches an address of its own from there
        return api_versions.admin(_exactly(answers, size)), address, here


def _connect(server: HostPort, context: ssl.SSLContext | None) -> socket.socket:
    connection = socket.create_connection(server, TIMEOUT_S)
    if context is None:
        return connection
    try:
        return context.wrap_socket(connection, server_hostname=server.host)
    except OSError as error:
        connection.close()
        raise ConnectionError(explain(error)) from None


def _exactly(answers: io.BufferedReader, size: int) -> bytes:
    data = answers.read(size)
    if len(data) < size:
        raise EOFError("the connection was closed")
    return data


class AdminEndpoint:
    """What `connect` leads to. `name` is what people call it, `token` what it admits them by."""

    def __init__(
        self, name: str, connect: Callable[[], http.client.HTTPConnection], token: Secret | None = None
    ) -> None:
        self.name = name
        self._connect = connect
        self._headers = {"Authorization": f"Bearer {token.reveal()}"} if token else {}

    def get(self, path: str) -> Any:
        """The JSON at `path`, with its query. Raises AdminError."""
        try:
            connection = self._connect()
            connection.request("GET", path, headers=self._headers)
            response = connection.getresponse()
            body = response.read()
            connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise AdminError(f"{self.name}: {explain(error) if isinstance(error, OSError) else error}") from None
        if response.status == http.HTTPStatus.UNAUTHORIZED:
            raise AdminError(f"{self.name} needs a token: set admin.bearer.token in the file of --command-config")
        try:
            answer = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise AdminError(f"{self.name} responds with {response.status} and no JSON: is it Forebay?") from error
        if response.status != http.HTTPStatus.OK:
            why = answer.get("error") if isinstance(answer, dict) else None
            raise AdminError(f"{self.name} responds with {response.status}: {why or 'is it Forebay?'}")
        return answer


def by_url(url: str, config: CommandConfig) -> AdminEndpoint:
    """The one at http://HOST:PORT, https://… or HOST:PORT; any path is ignored.

    The token of `config` is sent where it stays unseen: to https, and to this host. Raises AdminError for another URL.
    """
    try:
        parts = urlsplit(url if "//" in url else f"//{url}", "http")
        port = parts.port
    except ValueError as error:
        raise AdminError(f"{url}: {error}") from None
    host = parts.hostname
    if parts.scheme not in ("http", "https") or not host:
        raise AdminError(f"{url}: must be http://HOST:PORT or https://HOST:PORT")
    if parts.scheme == "https":
        secured = partial(http.client.HTTPSConnection, host, port, timeout=TIMEOUT_S, context=config.https)
        return AdminEndpoint(url, secured, config.token)
    plain = partial(http.client.HTTPConnection, host, port, timeout=TIMEOUT_S)
    return AdminEndpoint(url, plain, config.token if is_loopback(host) else None)


def by_socket(path: str) -> AdminEndpoint:
    """The one at a Unix socket, which asks for no token."""
    return AdminEndpoint(path, partial(SocketConnection, path, connect_s=TIMEOUT_S, answer_s=TIMEOUT_S))
