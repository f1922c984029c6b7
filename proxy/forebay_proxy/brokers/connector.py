"""Connects to brokers: every connection to one is made here, so that all of them are secured in the same way.

    TCP → TLS → ApiVersions → SASL, as far as `security.protocol` says

In: a host and a port, as the broker advertises them. Out: a connection of the proxy's own that knows what the broker
offers, or a client's own protocol connected. Fails with OSError, whose text says in one line why; AuthenticationFailed
is one, and no reason to think that the broker cannot be reached. It is told here, once, and the broker then left alone
for a while by all who want to connect.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Final

from forebay_codecs import api_versions, produce_request
from forebay_codecs.api_keys import PRODUCE, SASL_AUTHENTICATE
from forebay_codecs.sasl import MAX_AUTHENTICATE_VERSION
from forebay_policies.throttling import CLIENT_ID
from forebay_proxy import __version__
from forebay_proxy.brokers.dial import dial
from forebay_proxy.brokers.refusals import Refusals
from forebay_proxy.brokers.session import Session
from forebay_proxy.brokers.tried_addresses import TriedAddresses
from forebay_proxy.brokers.upstream_connection import UpstreamConnection
from forebay_proxy.config import rereading
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.security.authenticator import AuthenticationFailed, Authenticator, Call, NotKnownYet
from forebay_proxy.security.logins import Login
from forebay_proxy.security.principals import Principals
from forebay_proxy.security.renewals import Renewable
from forebay_proxy.security.tls import TlsContext, brokers_context

_ASK_FIRST: Final = (3, 0)
"""Versions of ApiVersions: every broker knows the last one."""
FORGET_S: Final = 300.0
"""A broker that nobody has tried for so long begins anew."""
NOT_KNOWN_S: Final = 0.1
"""After which a login is tried again that a broker may not have heard of yet."""

log = get_logger()


class Secured:
    """How connections are encrypted, for all connectors of a process: what was last found to be usable."""

    def __init__(self) -> None:
        self.context: TlsContext | None = None


class Connector:
    """No byte of a client's or of ours reaches a broker before its connection is what `security.protocol` says.

    Connections are made with what `renewable` last put in place; those that stand keep the context that they began
    with. Raises StartError where certificates cannot be used.
    `principal`: as whom they log in (producer_batch.Lane), by what is presented; empty: as Forebay, or as nobody.
    """

    def __init__(
        self, settings: Settings, stats: MetricRegistry, rng: Random | None = None, secured: Secured | None = None
    ) -> None:
        """`secured`: another connector's, so that both use the same certificates; None: its own."""
        self._settings = settings
        self.principal = ""
        self._stats = stats
        self._setup_s = settings.socket_connection_setup_timeout_ms / 1000
        self._request_timeout = settings.request_timeout_ms / 1000
        self._rng = rng or Random()
        self._backoff_s = settings.reconnect_backoff_ms / 1000, settings.reconnect_backoff_max_ms / 1000
        self._authenticator: Authenticator | None = None
        self._refusals = Refusals(*self._backoff_s, self._rng)
        self._tried = TriedAddresses()
        self._of_clients_log = RateLimited(log)
        self._principals: Principals | None = None
        """Of one that logs in as clients."""
        if secured is not None:
            self._secured = secured
        else:
            self._secured = Secured()
            self._prepare(settings)()
        self._refused = stats.counter("forebay_errors_total", side="upstream", kind="authentication")
        self._refused_of_clients = stats.counter("forebay_errors_total", side="upstream", kind="client_authentication")
        self.lifetime = 0.0
        """Seconds for which a broker last took the login; 0: for ever."""

    def of_clients(self, principals: Principals) -> Connector:
        """One whose connections log in as a client, once `present` has said how, and not at all before."""
        other = Connector(self._settings, self._stats, self._rng, self._secured)
        other._principals, other._tried = principals, self._tried
        other._of_clients_log = self._of_clients_log
        return other

    def present(self, login: Login) -> None:
        """From now on connections log in so, and sessions of those that stand are renewed so. A broker has taken it."""
        assert self._principals is not None
        self.principal = self._principals.of(login)
        self._authenticator = Authenticator(self._settings, login)
        self._refusals = Refusals(*self._backoff_s, self._rng)  # a token may have been too old for it

    def withdraw(self) -> None:
        """Forget the login: no connection is made any more."""
        assert self._principals is not None
        self._authenticator = None

    @property
    def username(self) -> str:
        """As whom connections log in, where the mechanism has users."""
        return self._authenticator.username if self._authenticator is not None else ""

    @property
    def identity(self) -> tuple[str, ...]:
        """As whom, as far as the login says it (Authenticator.identity), or else the certificate; empty: as nobody."""
        if self._authenticator is not None:
            return self._authenticator.identity
        context = self._secured.context
        return (context.own_subject.hex(),) if context is not None and context.own_subject else ()

    @property
    def is_refused(self) -> bool:
        """Whether a broker did not take the login when it was last asked."""
        return bool(self._refusals)

    @property
    def renewable(self) -> Renewable:
        """Certificates and login, for whoever watches their files."""
        return Renewable("upstream", "connections to brokers", rereading.UPSTREAM, self._prepare, self._expires_at)

    def _prepare(self, settings: Settings) -> Callable[[], None]:
        context = brokers_context(settings) if settings.uses_tls else None
        authenticator = Authenticator(settings) if settings.logs_in else None

        def commit() -> None:
            self._secured.context = context
            self._authenticator = authenticator
            self._refusals = Refusals(*self._backoff_s, self._rng)  # what was refused may be right now

        return commit

    def _expires_at(self) -> float:
        context = self._secured.context
        return math.inf if context is None else context.expires_at

    async def open(self, host: str, port: int, client_id: str | None = CLIENT_ID) -> UpstreamConnection:
        """A connection for requests of `client_id`, whose `versions` are known.

        Raises OSError (refused, unreachable, timed out) or Malformed.
        """
        connection, _ = await self._open(host, port, client_id)
        return connection

    async def ask_versions(self, host: str, port: int, version: int) -> bytes:
        """A broker's ApiVersions response of that version.

        On a connection of its own, in front of any login, as every broker answers it there, once. Raises as `open`.
        """
        connection = UpstreamConnection(f"{host}:{port}", self._request_timeout, self._stats)
        try:
            address = await dial(host, port, self._setup_s, lambda: connection, self._secured.context, self._tried)
            async with asyncio.timeout(self._setup_s):
                with self._tried.trying(host, port, address):
                    return await connection.call(
                        lambda number: api_versions.request(number, CLIENT_ID, version, "forebay", __version__)
                    )
        except TimeoutError as error:
            why = str(error) or f"{connection.name} did not answer within {self._setup_s:g} s"
            raise TimeoutError(why) from None
        finally:
            connection.close()

    async def _open(self, host: str, port: int, client_id: str | None) -> tuple[UpstreamConnection, Session | None]:
        while True:
            try:
                return await self._try(HostPort(host, port), client_id)
            except NotKnownYet:  # for a few seconds, then it is a refusal like others
                await asyncio.sleep(NOT_KNOWN_S)

    async def _try(self, broker: HostPort, client_id: str | None) -> tuple[UpstreamConnection, Session | None]:
        if self._principals is not None and self._authenticator is None:
            raise AuthenticationFailed("no client is there to log in as")
        if (why := self._refusals.now(broker, monotonic())) is not None:
            raise AuthenticationFailed(why)
        connection = UpstreamConnection(f"{broker.host}:{broker.port}", self._request_timeout, self._stats)
        try:
            address = await dial(*broker, self._setup_s, lambda: connection, self._secured.context, self._tried)
            async with asyncio.timeout(self._setup_s):
                with self._tried.trying(*broker, address):  # one that takes connections may say nothing
                    await _ask_versions(connection, client_id)
                session = await self._log_in(connection, broker)
        except TimeoutError as error:
            connection.close()
            why = str(error) or f"{connection.name} did not answer within {self._setup_s:g} s"
            raise TimeoutError(why) from None
        except BaseException:
            connection.close()
            raise
        return connection, session

    async def connect(
        self, host: str, port: int, protocol: asyncio.BaseProtocol, *, logs_in: bool = True
    ) -> Session | None:
        """Connect a client's own `protocol`; its session where we log in, which the protocol must see renewed.

        `logs_in`: where we have a login. Otherwise the client's is the first byte that the broker sees. Raises OSError,
        UnicodeError for a name that cannot be one, or Malformed.
        """
        if not logs_in or (self._authenticator is None and self._principals is None):
            await dial(host, port, self._setup_s, lambda: protocol, self._secured.context, self._tried)
            return None
        connection, session = await self._open(host, port, CLIENT_ID)
        connection.hand_over(protocol)
        return session

    async def _log_in(self, connection: UpstreamConnection, broker: HostPort) -> Session | None:
        if self._authenticator is None:
            if self._principals is not None:  # it was withdrawn meanwhile
                raise AuthenticationFailed("no client is there to log in as")
            return None
        first, version, principal = self._authenticator, _authenticate_version(connection), self.principal

        async def log_in(call: Call) -> float:
            # A broker takes a session's renewal only from the one who began it, but with a new password, too.
            now = self._authenticator
            authenticator = now if now is not None and now.identity == first.identity else first
            try:
                async with asyncio.timeout(self._request_timeout):
                    lifetime = await authenticator.authenticate(call, version)
            except TimeoutError as error:
                limit = f"{self._request_timeout:g} s"
                raise TimeoutError(str(error) or f"{connection.name} did not answer a login within {limit}") from None
            except NotKnownYet:
                raise
            except AuthenticationFailed as error:
                self._told_refusal(broker, authenticator.mechanism, str(error))
                raise
            if self._refusals.accepted(broker) and self._principals is None:
                log.info("broker accepts Forebay's login again", host=broker.host, port=broker.port)
            self.lifetime = lifetime
            return lifetime

        session = Session(log_in, self._rng)
        await connection.log_in(session)
        connection.principal = principal
        return session

    def _told_refusal(self, broker: HostPort, mechanism: str, why: str) -> None:
        (self._refused if self._principals is None else self._refused_of_clients).value += 1
        now = monotonic()
        self._refusals.forget(now, FORGET_S)
        if not self._refusals.refused(broker, why, now):
            return
        if self._authenticator is not None and self._principals is not None:
            self._of_clients_log.warning(
                "broker refuses a client's login on another connection",
                host=broker.host,
                port=broker.port,
                user=self._authenticator.username,
                error=why,
            )
        else:
            log.error(
                "broker refuses Forebay's login", host=broker.host, port=broker.port, mechanism=mechanism, error=why
            )


def takes_produce(connection: UpstreamConnection) -> bool:
    """Whether the broker takes Produce requests of a version that is spoken here."""
    lowest, highest = connection.versions.get(PRODUCE, (0, -1))
    return highest >= produce_request.RECORD_BATCHES_FROM and lowest <= produce_request.MAX_VERSION


def _authenticate_version(connection: UpstreamConnection) -> int:
    return min(MAX_AUTHENTICATE_VERSION, connection.versions.get(SASL_AUTHENTICATE, (0, 0))[1])


async def _ask_versions(connection: UpstreamConnection, client_id: str | None) -> None:
    for version in _ASK_FIRST:
        response = await connection.call(
            lambda correlation_id, version=version: api_versions.request(  # type: ignore[misc]
                correlation_id, client_id, version, "forebay", __version__
            )
        )
        connection.versions = api_versions.parse_api_versions(response, version)
        if len(connection.versions) > 1:
            break
