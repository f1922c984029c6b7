"""The realms of clients that log in by themselves: one for each login that a broker has accepted.

In: a login that a broker took on a client's own connection, connections that end, the time. Out: a place in the realm
of that login, which begins with its first client and ends some time after its last (policies.identities). Brokers that
one realm hears of are known to all: where they are is nobody's secret, and each has to have a port here.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import Final

from forebay_codecs.errors import Malformed
from forebay_policies.identities import Identities, Identity
from forebay_proxy.brokers.cluster import Node
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.refusals import Refusals
from forebay_proxy.clients.gateway import Gateway
from forebay_proxy.clients.metadata_handler import MetadataHandler
from forebay_proxy.config.settings import HostPort
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.handler import ProduceHandler
from forebay_proxy.realms.realm import Realm, Shared
from forebay_proxy.security.authenticator import AuthenticationFailed
from forebay_proxy.security.logins import DelegatedLogin, Login
from forebay_proxy.security.principals import Principals

BESIDE_S: Final = 0.5
"""Seconds after which another broker is asked beside one that has not answered."""
AT_ONCE: Final = 2
SWEEP_S: Final = 1.0
AGAIN_S: Final = 30.0
"""A login that a broker refuses and another accepts is at most so often taken for a good one again."""

log = RateLimited(get_logger())


class ClientRealm:
    """A realm whose connections log in as one user; what of it runs, runs while it has clients or records."""

    def __init__(self, shared: Shared, connector: Connector, stats: MetricRegistry) -> None:
        self.connector = connector
        self.stats = stats
        self.realm = Realm(shared, connector, stats, asks=True)
        self._tasks: list[asyncio.Task[None]] = []
        self._login: Login | None = None
        """What is presented."""
        self._presented_at = -math.inf
        self._longer: Login | None = None
        """What was presented before, is good for longer, and was refused."""
        self._gateways: dict[Gateway, Gateway] = {}
        self._ended: Callable[[], None] | None = None
        """To be told once it is not needed any more."""

    @property
    def awake(self) -> bool:
        """Whether its connections log in."""
        return bool(self._tasks)

    def gateway(self, of: Gateway) -> Gateway:
        """What it sees of a listener."""
        found = self._gateways.get(of)
        if found is None:
            found = self._gateways[of] = of.within(self.realm.view, self.realm.departing)
        return found

    def wake(self, login: Login, now: float, ended: Callable[[asyncio.Task[None]], None]) -> None:
        """A client has come: connections log in so, by the token that is good for longest where there are several.

        Where a broker has refused that one, the client's, which was accepted just now, though it may not be good for as
        long. `now` as time.monotonic; `ended` is told of a part that ends by itself.
        """
        if isinstance(login, DelegatedLogin):
            self._ended = partial(login.tokens.end, login.username)
        if self._login is None or not self._tasks or login.expires_at > self._login.expires_at:
            self._present(login, now)
        elif self._may_try_again(now):
            self._present(login, now, self._login if login != self._login else None)
        if not self._tasks:
            self._tasks = [asyncio.get_running_loop().create_task(part) for part in self.realm.run()]
            for task in self._tasks:
                task.add_done_callback(ended)

    def look(self, now: float) -> None:
        """Where brokers refuse a token by now, because it is over, say, the one that is good for longer once more."""
        if self._longer is not None and self._may_try_again(now):
            self._present(self._longer, now)

    def _may_try_again(self, now: float) -> bool:
        return self.connector.is_refused and now >= self._presented_at + AGAIN_S

    def _present(self, login: Login, now: float, longer: Login | None = None) -> None:
        self.connector.present(login)
        self._login, self._longer, self._presented_at = login, longer, now

    def rest(self) -> None:
        """Nobody is there: the login is forgotten, connections stand for a while."""
        self.connector.withdraw()
        self._login = self._longer = None
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    def close(self) -> None:
        """Nothing of it goes on."""
        self.rest()
        self.realm.close()
        if self._ended is not None:
            self._ended()


class Membership:
    """One connection's place in a realm (login_watch.Member)."""

    def __init__(self, principal: str, home: ClientRealm, gateway: Gateway, left: Callable[[], None]) -> None:
        self.principal = principal
        """By what this connection has presented, whatever realm it got into: see one_principal."""
        self._home = home
        self._left = left
        self.gateway = gateway

    @property
    def handler(self) -> ProduceHandler:
        return self._home.realm.handler

    @property
    def metadata(self) -> MetadataHandler:
        return self._home.realm.metadata

    @property
    def lifetime(self) -> float:
        return self._home.connector.lifetime

    @property
    def refused(self) -> bool:
        return self._home.connector.is_refused

    def leave(self) -> None:
        self._left()


class ClientRealms:
    """No login is another's realm, not even one of the same user with another password, which brokers may tell apart.
    Tokens that say the same of the same user are one login.

    `known` is Forebay's own realm, where brokers are looked up. `ended` is told of a realm's part that ends by itself.
    """

    def __init__(
        self,
        shared: Shared,
        known: Realm,
        connector: Connector,
        stats: MetricRegistry,
        ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._shared = shared
        self._known = known
        self._connector = connector
        self._stats = stats
        self._ended = ended
        self._most = shared.settings.max_identities
        self._principals = Principals()
        settings = shared.settings
        pauses_s = settings.reconnect_backoff_ms / 1000, settings.reconnect_backoff_max_ms / 1000
        self._refusals = Refusals(*pauses_s, shared.rng)
        """Of logins that were to be proved."""
        self._proofs: dict[str, asyncio.Task[None]] = {}
        """Under way."""
        self._realms: dict[str, ClientRealm] = {}
        self._identities = Identities(self._most, lambda key: self._realms[key].rest(), self._forget)
        self._retired = False
        stats.gauge("forebay_identities", lambda: len(self._identities))
        known.view.cluster.on_node(self._node_known)

    def __iter__(self) -> Iterator[Realm]:
        return iter([each.realm for each in self._realms.values()])

    # Clients

    def join(self, login: Login, gateway: Gateway) -> Membership | None:
        """A broker has accepted `login` (login_watch.Realms)."""
        principal = self._principals.of(login)
        identity = self._identities.enter(principal, monotonic())
        if identity is None:
            becomes = "records go on untouched" if gateway.own_logins else "login is refused"
            log.warning(f"too many identities, a client's {becomes}", most=self._most)
            return None
        home = self._realms.get(principal)
        if home is None:
            home = self._realms[principal] = self._made()
        home.wake(login, monotonic(), self._ended)
        return Membership(principal, home, home.gateway(gateway), partial(self._leave, identity))

    async def prove(self, login: Login) -> None:
        """Have a broker accept `login` (login_watch.Realms): one connection, unless it is in use and not refused.

        One that was refused a moment ago is refused without asking, and all who come while a broker is asked share its
        answer. With another password it is another login.
        """
        principal = self._principals.of(login)
        home = self._realms.get(principal)
        if home is not None and home.awake and not home.connector.is_refused:
            return
        if (why := self._refusals.now(principal, monotonic())) is not None:
            raise AuthenticationFailed(why)
        proof = self._proofs.get(principal)
        if proof is None:
            proof = self._proofs[principal] = asyncio.get_running_loop().create_task(self._asked(principal, login))
            proof.add_done_callback(partial(self._proved, principal))
        await asyncio.wait((proof,))  # which goes on where who asked leaves: others may wait, and a refusal counts
        proof.result()

    def _proved(self, principal: str, proof: asyncio.Task[None]) -> None:
        del self._proofs[principal]
        if not proof.cancelled():
            proof.exception()  # nobody may wait for it any more

    async def _asked(self, principal: str, login: Login) -> None:
        """One broker after the other, and the next beside one that takes longer than BESIDE_S: all who wait for this
        have less time than a broker that hangs has to answer. No third beside two: brokers count who is refused."""
        connector = self._connector.of_clients(self._principals)
        connector.present(login)
        error: Exception = ConnectionError("no broker is known")
        asking: list[asyncio.Task[None]] = []
        addresses = self._known.view.addresses.of(None)
        try:
            while addresses or asking:
                if addresses and len(asking) < AT_ONCE:
                    asking.append(asyncio.get_running_loop().create_task(_logs_in(connector, addresses.pop(0))))
                alone = bool(addresses) and len(asking) < AT_ONCE
                await asyncio.wait(asking, timeout=BESIDE_S if alone else None, return_when=asyncio.FIRST_COMPLETED)
                said = [each.exception() for each in asking if each.done()]
                asking = [each for each in asking if not each.done()]
                if None in said:
                    self._refusals.accepted(principal)
                    return
                for each in said:
                    assert each is not None
                    if isinstance(each, AuthenticationFailed):
                        self._refusals.refused(principal, str(each), monotonic())
                        raise each
                    if not isinstance(each, OSError | UnicodeError | Malformed):
                        raise each
                    error = each
            raise ConnectionError(str(error))
        finally:
            for left in asking:
                left.cancel()

    def _leave(self, identity: Identity) -> None:
        self._identities.leave(identity, monotonic())

    # Realms come and go

    def _made(self) -> ClientRealm:
        stats = self._stats.part()
        made = ClientRealm(self._shared, self._connector.of_clients(self._principals), stats)
        cluster, known = made.realm.view.cluster, self._known.view.cluster
        now = monotonic()
        for node in list(known.nodes.values()):
            cluster.learn(node.id, node.host, node.port, now)
        cluster.on_node(lambda node: _tell(node, known.learn))
        if self._retired:
            made.realm.dispatcher.retire()
        return made

    def _node_known(self, node: Node) -> None:
        for each in self._realms.values():
            _tell(node, each.realm.view.cluster.learn)

    def _forget(self, principal: str) -> None:
        gone = self._realms.pop(principal)
        gone.close()
        self._stats.end(gone.stats)
        if not self._realms:
            self._shared.described.clear()

    # Life

    async def run(self) -> None:
        """The task: see who is not needed any more."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep(monotonic())

    def sweep(self, now: float) -> None:
        """Look once."""
        for each in self._realms.values():
            each.look(now)
        self._identities.sweep(now, lambda key: not self._realms[key].realm.at_rest)

    def retire(self) -> None:
        """The process is leaving."""
        self._retired = True
        for realm in self:
            realm.dispatcher.retire()

    def close(self) -> None:
        """Nothing of any realm goes on."""
        for each in self._realms.values():
            each.close()
        for proof in self._proofs.values():
            proof.cancel()


def _tell(node: Node, learn: Callable[[int, str, int, float], Node]) -> None:
    if not node.gone:
        learn(node.id, node.host, node.port, monotonic())


async def _logs_in(connector: Connector, address: HostPort) -> None:
    connection = await connector.open(*address)
    connection.close()
