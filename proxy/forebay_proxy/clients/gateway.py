"""How client connections of one listener reach everything else: a broker, the addresses they are told, what is offered.

In: what a client's connection asks. Out: addresses of that listener's ports instead of brokers', connections
to brokers, and news for everybody in what one client was answered.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from forebay_codecs import one_broker, produce_response, producers_only
from forebay_codecs.api_versions import NO_LIMITS
from forebay_codecs.apis import OF_ONES_OWN_USER
from forebay_codecs.errors import Malformed
from forebay_codecs.produce_response import ProduceResponse
from forebay_policies import retry
from forebay_policies.leader_handover import NOWHERE
from forebay_policies.response_memory import ResponseMemory
from forebay_policies.topic_changes import SETTLE_S, TopicChanges
from forebay_proxy.brokers.broker_view import BrokerView
from forebay_proxy.brokers.cluster import Node
from forebay_proxy.brokers.session import Session
from forebay_proxy.clients.client_upstream import Departing
from forebay_proxy.clients.listener import Listener
from forebay_proxy.clients.opaque_connection import OpaqueConnection
from forebay_proxy.config.listeners import ClientListener
from forebay_proxy.config.settings import Settings
from forebay_proxy.security.authenticator import AuthenticationFailed


def _hidden(listener: ClientListener) -> frozenset[int]:
    hidden: frozenset[int] = producers_only.NOT_OFFERED if listener.producers_only else frozenset()
    own_names = listener.told.upstream_identity in ("client", "delegation_token")
    return hidden | OF_ONES_OWN_USER if listener.terminates and not own_names else hidden


class Gateway:
    """Never tells a client a broker's own address: only those of ports that stand, of the listener that it came by."""

    def __init__(
        self,
        settings: Settings,
        view: BrokerView,
        listener: Listener,
        responses: ResponseMemory,
        departing: set[Departing],
        of: Gateway | None = None,
    ) -> None:
        """`of`: the listener's own, of which this is what one identity sees; its connections log in as that."""
        self.responses = responses
        """What is gathered of brokers' responses, for all clients."""
        self.departing = departing
        """Of clients that are gone: a drain waits for these, and so does the end of the login that they need."""
        self.own_logins = listener.settings.passes_logins
        self._cluster = view.cluster
        self._caches = view.caches
        self._updater = view.updater
        self._versions = view.versions
        self._addresses = view.addresses
        self._reachability = view.reachability
        self._connector = view.connector
        self._listener = listener
        self._told = listener.settings
        self.producers_only = listener.settings.producers_only
        self.hidden = _hidden(listener.settings)
        """Keys of APIs that clients of the listener are not offered."""
        self.at_most = producers_only.AT_MOST if self.producers_only else NO_LIMITS
        """The highest versions that they are offered, by key."""
        self._changes: TopicChanges = of._changes if of is not None else TopicChanges(monotonic)
        self._logs_in = of is not None or not self.own_logins
        self._settings = settings
        self.patience = settings.delivery_timeout_ms / 1000
        """Seconds that a request may take at most."""
        if of is None and not self.producers_only:
            view.cluster.on_node(self._node_changed)

    def within(self, view: BrokerView, departing: set[Departing]) -> Gateway:
        """What an identity that knows brokers by `view` sees of this listener."""
        return Gateway(self._settings, view, self._listener, self.responses, departing, self)

    def _node_changed(self, node: Node) -> None:
        if node.gone:
            self._listener.close_node(node.id)
        else:
            self._listener.open_node(node.id)

    def translate(
        self, advertised_host: str, node_id: int, host: str, port: int, *, cached: bool = False
    ) -> tuple[str, int] | None:
        """(host, port) of the broker's listener, bound by now; None: it cannot be bound, so the broker is not named.

        `advertised_host` is the address that the client connected to; what the listener advertises comes before it.
        `cached`: that the broker is at `host` and `port` is no news; other answers may have told of a move since.
        """
        if self.producers_only:
            return self._told.advertised(one_broker.NODE_ID, advertised_host, self._told.port)
        if not (cached and node_id in self._cluster.nodes):
            self._cluster.learn(node_id, host, port, monotonic())
        node_port = self._listener.port(node_id)
        if node_port is None or not self._listener.open_node(node_id):
            return None
        return self._told.advertised(node_id, advertised_host, node_port)

    def any_node(self) -> int | None:
        """A broker for a bootstrap connection, for as long as it lasts; None where none is known yet.

        What ApiVersions tells on it must hold for what comes after: brokers may differ while they are upgraded.
        """
        return self._addresses.any_node()

    def another_node(self, node_id: int | None) -> int | None:
        """A broker to ask what that one does not tell; None where no other is known."""
        return self._addresses.any_node(node_id)

    def stands_in(self, node_id: int) -> bool:
        """Whether nobody has told yet where that broker is. Any other may tell a client that logs in."""
        return self.own_logins and node_id not in self._cluster.nodes

    async def connect(self, node_id: int | None, protocol: OpaqueConnection) -> Session | None:
        """Connect `protocol` to a broker (None: to any), logged in where Forebay logs in; then its session.

        Forebay never for clients that log in themselves: whoever they are, they are not Forebay. As one of them it
        does, where it has seen how. Raises OSError, UnicodeError or Malformed where none can be reached.
        """
        if node_id is not None and self.stands_in(node_id):
            node_id = None
        error: Exception = ConnectionError("the broker is no longer known")
        for host, port in self._addresses.of(node_id):
            try:
                session = await self._connector.connect(host, port, protocol, logs_in=self._logs_in)
            except (OSError, UnicodeError, Malformed) as failure:  # TimeoutError is one of the first
                error = failure
            else:
                self._reachability.reached(node_id)
                return session
        if not isinstance(error, AuthenticationFailed):
            self._reachability.not_reached(node_id)
        raise error

    def produce_answered(self, response: bytes, version: int) -> None:
        """A broker's answer to untouched records: what it says of leaders holds for everybody. Raises Malformed."""
        if not produce_response.is_plain(response, version):
            self.leaders_told(produce_response.parse(response, version))

    def leaders_told(self, response: ProduceResponse) -> None:
        """What a broker's answer says of leaders holds for everybody."""
        for node_id, host, port in response.nodes:
            self._cluster.learn(node_id, host, port, monotonic())
        for topic, partitions in response.topics:
            refused = [partition for partition in partitions if retry.leads_no_more(partition.error_code)]
            named = {each.partition: each.current_leader for each in refused if each.current_leader is not None}
            if named:
                self._updater.leaders_named(topic, named)
            if len(named) < len(refused):
                self._updater.leader_changed(topic)

    # Leaders, for requests that are divided

    def knows(self, topic: str, partition: int) -> bool:
        """Whether the partition is known to be there."""
        if self._cluster.lacks(topic, partition):
            return False
        self._cluster.topics[topic].used_at = monotonic()
        return True

    def why_unknown(self, topic: str) -> int:
        """The error code for a partition that is not, after asking."""
        return self._cluster.why_unknown(topic)

    def leader(self, topic: str, partition: int) -> int:
        """The node id of the partition's leader; NOWHERE where it has none that is known."""
        leader = self._cluster.topics[topic].queues.leader_of(partition)
        return leader if leader in self._cluster.nodes else NOWHERE

    def want(self, topic: str, ready: Callable[[], None]) -> None:
        """Ask a broker about the topic; `ready` is called once it has answered."""
        self._updater.want(topic, ready, anew=self._cluster.usable(topic) is not None)

    def forget(self, topic: str, ready: Callable[[], None]) -> None:
        """`ready` is not wanted any more."""
        self._updater.forget(topic, ready)

    def leader_lost(self, topic: str) -> None:
        """The leader that was known of a partition did not take records."""
        self._updater.leader_changed(topic)

    def takes(self, api_key: int, version: int) -> bool:
        """Whether brokers take such requests, as far as is known."""
        return self._updater.takes(api_key, version)

    def topics_changed(self, node_id: int | None, client_host: str) -> None:
        """A client has created, deleted, widened or moved topics. Nothing is answered from a cache until all know."""
        for cache in self._caches:
            cache.invalidate_all(monotonic() + SETTLE_S)
        self._changes.changed(node_id, client_host)

    def topics_settle(self, node_id: int | None, client_host: str) -> bool:
        """Whether that broker, by which the client changed topics, may be the only one to know."""
        return self._changes.settle(node_id, client_host)

    def api_versions(self, node_id: int | None, version: int, ready: Callable[[bytes | None], None]) -> None:
        """`ready` gets a broker's ApiVersions response, cut to what is understood; None: no broker answers."""

        def told(response: bytes | None) -> None:
            if response is None:
                self._reachability.not_reached(node_id)
            ready(response)

        self._versions.get(node_id, version, told)

    def last_api_versions(self, version: int) -> bytes | None:
        """What any broker answered last in that version, cut as well; None: none has."""
        return self._versions.last(version)
