"""Connecting by name: every address that a name has is tried, each with a timeout of its own.

In: a host, a port, a protocol, and a context where TLS is spoken: its SNI and the name that is verified are the host.
Out: the protocol connected, its handshake done, and the address; or OSError. An address that swallows packets costs its
own `socket.connection.setup.timeout.ms` and not those of the others, as with Kafka's clients (`client.dns.lookup`'s
`use_all_dns_ips`), and from then on comes last. Errors say where they come from.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from forebay_proxy.brokers.tried_addresses import TriedAddresses
from forebay_proxy.keepalive import keep_alive
from forebay_proxy.security.tls import SHUTDOWN_S, explain

_LEFT: Final = "TLS: the other side has left in the middle of the handshake"
"""Such an error comes without a text."""


class TlsFailed(ConnectionError):
    """Something answers there with which no TLS session comes about: it is not that it cannot be reached."""


async def dial(
    host: str,
    port: int,
    setup_s: float,
    make: Callable[[], asyncio.BaseProtocol],
    context: ssl.SSLContext | None = None,
    tried: TriedAddresses | None = None,
) -> str:
    """Connect a protocol that `make` makes to the first address that answers; `setup_s` seconds for each.

    With a `context`, an address answers once the TLS handshake with it is done.

    Raises the last address's OSError (TimeoutError is one), or UnicodeError for a name that cannot be one.
    """
    loop = asyncio.get_running_loop()
    secured: dict[str, Any] = {}
    if context is not None:
        secured = {"ssl": context, "server_hostname": host, "ssl_shutdown_timeout": SHUTDOWN_S}
    try:
        async with asyncio.timeout(setup_s):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as failure:
        raise _from(f"{host}:{port}", failure) from None
    error: OSError = ConnectionError(f"{host} has no address")
    if tried is None:
        tried = TriedAddresses()
    for address in tried.in_order(host, port, (str(entry[4][0]) for entry in found)):
        try:
            with tried.trying(host, port, address):
                async with asyncio.timeout(setup_s):
                    transport, _ = await loop.create_connection(make, address, port, **secured)
            connection = transport.get_extra_info("socket")
            if connection is not None:  # else its protocol has said all there was to say, and closed it
                keep_alive(connection)
            return address
        except TimeoutError:
            error = TimeoutError(f"{host}:{port} ({address}) did not answer within {setup_s:g} s")
        except OSError as failure:
            error = _from(f"{host}:{port} ({address})", failure)
    raise error


def _from(where: str, failure: OSError) -> OSError:
    if isinstance(failure, ssl.SSLError) or failure.errno is None:
        kind = TlsFailed if isinstance(failure, ssl.SSLError) else ConnectionError
        return kind(f"{where}: {explain(failure) or _LEFT}")
    # The system's words, not asyncio's; alone, without the number, which Python writes before them.
    why = failure.strerror if isinstance(failure, socket.gaierror) else os.strerror(failure.errno)
    return type(failure)(f"{where}: {why}")
