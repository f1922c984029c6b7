"""Asks brokers for the delegation tokens by which Forebay is its clients to them (KIP-48, KIP-373).

In: an owner's name. Out: a token that is good for a while, asked for as Forebay itself, of any broker, once for all who
want it; another one after FRESH_PART of its time, which is given out once brokers know it: one that does not would end
a connection whose session is renewed with it. It is no longer good once nobody needs it, as far as brokers can be told;
it ends by itself after LIFETIME_S. Where brokers give none, that is not asked again for PAUSE_S.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from forebay_codecs import delegation_tokens as codec
from forebay_codecs.api_keys import CREATE_DELEGATION_TOKEN
from forebay_codecs.error_codes import NONE
from forebay_codecs.errors import Malformed
from forebay_policies.throttling import CLIENT_ID
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.upstream_connection import UpstreamConnection
from forebay_proxy.config.secret import Secret
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.security.logins import Token

LIFETIME_S: Final = 3_600
"""Brokers may give it less."""
FRESH_PART: Final = 0.8
"""Less than the part of a session after which it is renewed (session), so that then there is another one."""
KNOWN_S: Final = 10.0
"""By then every broker should have heard of a token."""
PAUSE_S: Final = 1.0
ASK_S: Final = 5.0
"""For one to be given. Less than a connection may take to be set up: whoever waits for a token on one to another broker
would otherwise take that one for silent."""
END_S: Final = 2.0
"""A process that leaves waits so long at most for brokers to be told."""

_WHY: Final = {
    61: "brokers have no delegation.token.secret.key",
    64: "brokers take no such request on this kind of connection",
    65: "Forebay's user needs CREATE_TOKENS on that user",
}

log = RateLimited(get_logger())


class _Owned:
    """One owner's newest token, and the one before while brokers may not know it; times by DelegationTokens' clock.

    `why`: there is none, until `again_at`.
    """

    def __init__(self) -> None:
        self.asking = asyncio.Lock()
        self.token: codec.DelegationToken | None = None
        self.before: codec.DelegationToken | None = None
        self.made_at = 0.0
        self.fresh_until = 0.0
        self.good_until = 0.0
        self.why = ""
        self.again_at = 0.0

    def is_good_at(self, now: float) -> bool:
        """Whether a session may begin with the newest one: it is renewed after 85 % of what is left."""
        return now + 2 * KNOWN_S < self.good_until


class DelegationTokens:
    """No more are kept than there are owners who have not been ended (logins.Tokens)."""

    def __init__(
        self, addresses: BrokerAddresses, connector: Connector, clock: Callable[[], float] = monotonic
    ) -> None:
        """`connector` logs in as Forebay itself."""
        self._addresses = addresses
        self._connector = connector
        self._clock = clock
        self._identity: tuple[str, ...] = ()
        """As whom the connection has logged in."""
        self._own_name = ""
        """As brokers know that one, once they have told; who has asked for a token may end it only where it says so."""
        self._owned: dict[str, _Owned] = {}
        self._connection: UpstreamConnection | None = None
        self._opening = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()

    async def of(self, owner: str) -> Token:
        """As logins.Tokens.of."""
        owned = self._owned.get(owner)
        if owned is None:
            owned = self._owned[owner] = _Owned()
        async with owned.asking:
            now = self._clock()
            if now >= max(owned.fresh_until, owned.again_at):
                await self._renew(owner, owned, now)
            if owned.token is None or (now >= owned.fresh_until and not owned.is_good_at(now)):
                raise ConnectionError(owned.why)
            if self._clock() - owned.made_at >= KNOWN_S:
                owned.before = None
            token = owned.before or owned.token
            return Token(token.token_id, Secret(token.password))

    async def _renew(self, owner: str, owned: _Owned, now: float) -> None:
        """Ask for another one; where there is none, those that it has stay."""
        try:
            made = await self._create(owner)
        except (OSError, Malformed) as error:
            owned.why = f"no delegation token for User:{owner}: {error}"
            owned.again_at = self._clock() + PAUSE_S
            if owned.token is not None and owned.is_good_at(now):
                log.warning("no new delegation token: the one before is used on", owner=owner, error=str(error))
            return
        owned.before = owned.token if owned.is_good_at(now) else None
        owned.token = made
        owned.made_at = self._clock()
        life_s = (made.expires_at_ms - made.issued_at_ms) / 1000
        owned.fresh_until, owned.good_until = now + life_s * FRESH_PART, now + life_s

    def refused(self, owner: str) -> bool:
        """As logins.Tokens.refused: an older one is not used again."""
        owned = self._owned.get(owner)
        if owned is None or owned.token is None:
            return False
        owned.before = None
        if self._clock() - owned.made_at < KNOWN_S:
            return True
        owned.fresh_until = owned.good_until = 0.0
        return False

    def end(self, owner: str) -> None:
        """As logins.Tokens.end; brokers are told in the background."""
        owned = self._owned.pop(owner, None)
        if owned is not None and owned.token is not None:
            task = asyncio.get_running_loop().create_task(self._expire(owned.token))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all, as far as brokers answer in time."""
        for owner in list(self._owned):
            self.end(owner)
        if self._ending:
            await asyncio.wait(self._ending, timeout=END_S)
        if self._connection is not None:
            self._connection.close()

    async def _create(self, owner: str) -> codec.DelegationToken:
        lifetime_ms = LIFETIME_S * 1000
        answer = await self._ask(
            lambda number: codec.encode_create(number, CLIENT_ID, owner, lifetime_ms, self._own_name)
        )
        made = codec.parse_create(answer)
        if made.error_code != NONE:
            raise ConnectionError(_WHY.get(made.error_code, f"error {made.error_code}"))
        self._own_name = made.requester
        return made

    async def _expire(self, token: codec.DelegationToken) -> None:
        try:
            answer = await self._ask(lambda number: codec.encode_expire(number, CLIENT_ID, token.hmac))
            error = codec.parse_expire(answer)
            why = f"error {error}" if error != NONE else ""
        except (OSError, Malformed) as failure:
            why = str(failure)
        if why:
            log.warning("a delegation token could not be ended: it is good until its time is up", error=why)

    async def _ask(self, build: Callable[[int], bytes]) -> bytes:
        """A broker's answer. Raises OSError where none answers, in time."""
        error: Exception = ConnectionError("no broker is known")
        try:
            async with asyncio.timeout(ASK_S):
                for host, port in self._addresses.of(None):
                    try:
                        return await (await self._opened(host, port)).call(build)
                    except (OSError, UnicodeError, Malformed) as failure:
                        error = failure
        except TimeoutError:
            if self._connection is not None:  # the next one is to another broker, perhaps
                self._connection.close()
            error = TimeoutError(f"no broker answered within {ASK_S:g} s")
        raise ConnectionError(str(error))

    async def _opened(self, host: str, port: int) -> UpstreamConnection:
        """The one that stands, or another one to this broker."""
        async with self._opening:
            if self._connection is None or self._connection.closed:
                identity, username = self._connector.identity, self._connector.username
                connection = await self._connector.open(host, port)
                if connection.versions.get(CREATE_DELEGATION_TOKEN, (0, -1))[1] < codec.CREATE_VERSION:
                    connection.close()
                    raise ConnectionError("brokers give no delegation tokens for others before Kafka 3.3")
                self._connection = connection
                if identity != self._identity:  # its file was changed meanwhile, or it is the first
                    self._identity, self._own_name = identity, username
            return self._connection
