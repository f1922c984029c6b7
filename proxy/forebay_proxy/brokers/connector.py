"""Connects to brokers: every connection to one is made here, so that all of them are secured in the same way.

In: a host and a port, as the broker advertises them. Out: a connection of the proxy's own that knows what the broker
offers, or a client's own protocol connected. Fails with OSError, whose text says in one line why.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from forebay_codecs import api_versions
from forebay_proxy import __version__
from forebay_proxy.brokers.dial import dial
from forebay_proxy.brokers.upstream_connection import CLIENT_ID, UpstreamConnection
from forebay_proxy.config.settings import Settings
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.security.tls import TlsSettings, client_context

_ASK_FIRST: Final = (3, 0)
"""Versions of ApiVersions: every broker knows the last one."""


class Connector:
    """No byte of a client's or of ours reaches a broker before its connection is what `security.protocol` says.

    Raises StartError where certificates cannot be used.
    """

    def __init__(self, settings: Settings, stats: MetricRegistry) -> None:
        self._stats = stats
        self._setup_s = settings.socket_connection_setup_timeout_ms / 1000
        self._request_timeout = settings.request_timeout_ms / 1000
        self._context = _context(settings)

    async def open(self, host: str, port: int) -> UpstreamConnection:
        """A connection whose `versions` are known. Raises OSError (refused, unreachable, timed out) or Malformed."""
        connection = UpstreamConnection(f"{host}:{port}", self._request_timeout, self._stats)
        try:
            await dial(host, port, self._setup_s, lambda: connection, self._context)
            async with asyncio.timeout(self._setup_s):
                await _ask_versions(connection)
        except TimeoutError as error:
            connection.close()
            why = str(error) or f"{connection.name} did not answer within {self._setup_s:g} s"
            raise TimeoutError(why) from None
        except BaseException:
            connection.close()
            raise
        return connection

    async def connect(self, host: str, port: int, protocol: asyncio.Protocol) -> None:
        """Connect a client's own `protocol`. Raises OSError, or UnicodeError for a name that cannot be one."""
        await dial(host, port, self._setup_s, lambda: protocol, self._context)


def _context(settings: Settings) -> ssl.SSLContext | None:
    if settings.security_protocol != "SSL":
        return None
    stores = TlsSettings(
        settings.ssl_enabled_protocols,
        settings.ssl_truststore_location,
        settings.ssl_truststore_certificates,
        settings.ssl_keystore_location,
        settings.ssl_keystore_certificate_chain,
        settings.ssl_keystore_key,
        settings.ssl_key_password,
    )
    return client_context(stores, verify_name=settings.ssl_endpoint_identification_algorithm == "https")


async def _ask_versions(connection: UpstreamConnection) -> None:
    for version in _ASK_FIRST:
        response = await connection.call(
            lambda correlation_id, version=version: api_versions.request(  # type: ignore[misc]
                correlation_id, CLIENT_ID, version, "forebay", __version__
            )
        )
        connection.versions = api_versions.parse_api_versions(response, version)
        if len(connection.versions) > 1:
            break
