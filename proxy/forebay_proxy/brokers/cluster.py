"""What the proxy knows of the cluster: its brokers, which of them can be reached, and the leaders of its topics.

In: Metadata responses, addresses seen in clients' responses, and what connecting to a broker showed. Out: nodes for
listeners and senders, and the leaders and available partitions that accumulator and partitioners work with.
No I/O: whoever registered for a change acts on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from forebay_codecs import error_codes
from forebay_codecs.metadata import Metadata, Topic
from forebay_policies.accumulator import Accumulator, PartitionQueue, TopicQueues
from forebay_policies.described_topic import NO_IDS, NOWHERE, DescribedTopic, DescribedTopics, available

NEVER_LOST: Final = float("-inf")


@dataclass(slots=True, eq=False)
class Node:
    """A broker. `down`: the last attempt to send it records failed to connect, so that partitioners leave it out.
    `gone`: metadata has not named it for so long that it is forgotten. `lost_at`: when anybody, a client's connection
    included, last failed to connect, and its topics were invalidated because of that."""

    id: int
    host: str
    port: int
    last_seen: float
    rack: str = ""
    down: bool = False
    gone: bool = False
    lost_at: float = NEVER_LOST

    @property
    def up(self) -> bool:
        """Whether whoever last had to connect to it could; True where nobody had to."""
        return not self.down and self.lost_at == NEVER_LOST


@dataclass(slots=True, eq=False)
class TopicState:
    """A topic as metadata has it. `error_code` is not 0 where the brokers do not know it, or will not tell."""

    queues: TopicQueues
    internal: bool = False
    error_code: int = error_codes.NONE
    topic_id: str = ""
    """As Kafka writes it; empty if the brokers have none."""
    updated_at: float = 0.0
    used_at: float = 0.0
    nodes: frozenset[int] = NO_IDS
    described: DescribedTopic | None = None
    """Where the leaders are those of a description; None: it is not known, or one has moved since."""


class Cluster:
    """Holds one consistent view: leaders, available partitions and listeners follow from the same metadata.

    Times are in seconds of `time.monotonic`. `described` may be shared with others.
    """

    def __init__(self, accumulator: Accumulator, described: DescribedTopics | None = None) -> None:
        self._described = described if described is not None else DescribedTopics()
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicState] = {}
        self.updated_at: float | None = None
        self._id: str | None = None
        self._on_node: list[Callable[[Node], None]] = []
        self._on_partitions_gone: list[Callable[[list[PartitionQueue]], None]] = []
        self._on_available: list[Callable[[TopicQueues], None]] = []
        self._on_forgotten: list[Callable[[str], None]] = []
        self._accumulator = accumulator
        self._avoided: frozenset[int] = NO_IDS

    def on_node(self, observer: Callable[[Node], None]) -> None:
        """`observer` is told of each broker that is new, has another address, or is `gone`."""
        self._on_node.append(observer)

    def on_partitions_gone(self, observer: Callable[[list[PartitionQueue]], None]) -> None:
        """`observer` is told of partitions with records that the brokers do not know any more."""
        self._on_partitions_gone.append(observer)

    def on_available(self, observer: Callable[[TopicQueues], None]) -> None:
        """`observer` is told of each topic of which no partition was available, and some are now."""
        self._on_available.append(observer)

    def on_forgotten(self, observer: Callable[[str], None]) -> None:
        """`observer` is told the name of each topic that is not produced to any more."""
        self._on_forgotten.append(observer)

    def _changed(self, node: Node) -> None:
        for observer in self._on_node:
            observer(node)

    def learn(self, node_id: int, host: str, port: int, now: float) -> Node:
        """A broker named in any response. Its listener stands when this returns, if it can stand."""
        node = self.nodes.get(node_id)
        if node is None:
            node = self.nodes[node_id] = Node(node_id, host, port, now)
            self._changed(node)
        elif (node.host, node.port) != (host, port):
            node.host, node.port = host, port
            self.set_down(node, down=False)
            self._changed(node)
        node.last_seen = now
        return node

    def apply(self, metadata: Metadata, asked: set[str], now: float, max_age: float) -> None:
        """Take in a Metadata response to the topics `asked`. Brokers unseen for `max_age` seconds are gone."""
        if metadata.cluster_id is not None:
            if self._id not in (None, metadata.cluster_id):  # wiped, or another one has its addresses
                self._accumulator.renew_ids()
            self._id = metadata.cluster_id
        for node_id, broker in metadata.brokers.items():
            self._set_rack(self.learn(node_id, broker.host, broker.port, now), broker.rack or "")
        for node in [node for node in self.nodes.values() if now - node.last_seen > max_age]:
            del self.nodes[node.id]
            node.gone = True
            self._changed(node)
        self.apply_topics(metadata.topics, asked, now)
        self.updated_at = now

    def apply_topics(self, topics: Iterable[Topic], asked: set[str], now: float) -> None:
        """Take in what was told of the topics `asked`; those that are not there are unknown."""
        answered = set()
        gone = set()
        for topic in topics:
            if topic.name is not None:
                answered.add(topic.name)
                if self._apply_topic(topic.name, topic, now):
                    gone.add(topic.name)
        for name in asked - answered:
            if self._apply_topic(name, None, now):
                gone.add(name)
        if gone:  # perhaps by whoever wiped the cluster, and left it its id
            self._accumulator.renew_ids(gone)

    def _set_rack(self, node: Node, rack: str) -> None:
        if node.rack == rack:
            return
        node.rack = rack
        for state in self.topics.values():
            if node.id in state.nodes:
                self._refresh_available(state)

    def set_leaders(self, name: str, named: Mapping[int, int], now: float) -> None:
        """Some partitions have other leaders. Takes as long as the topic is large."""
        state = self.topics.get(name)
        if state is None:
            return
        leaders = list(state.queues.leaders)
        for partition, leader_id in named.items():
            if 0 <= partition < len(leaders):
                leaders[partition] = leader_id
        state.described = None
        state.nodes = frozenset(leaders)
        self._accumulator.set_leaders(state.queues, leaders, now)
        self._refresh_available(state)

    def _apply_topic(self, name: str, topic: Topic | None, now: float) -> bool:
        """Whether a topic is not there any more that was, or another has its name now."""
        described = self._described.of(topic) if topic is not None else None
        state = self.topics.get(name)
        if state is None:
            state = self.topics[name] = TopicState(self._accumulator.topic(name), used_at=now)
        state.updated_at = now
        state.error_code = error_codes.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
        if described is None or described.topic.error_code == error_codes.UNKNOWN_TOPIC_OR_PARTITION:
            was_there = state.queues.partition_count > 0
            state.described, state.nodes = None, NO_IDS
            self._accumulator.set_leaders(state.queues, (), now)
            state.queues.available, state.queues.racks = (), {}
            self._gone(state.queues)
            return was_there
        if described.placement is not NOWHERE:
            state.internal = described.topic.is_internal
            state.error_code = error_codes.NONE
            was, state.topic_id = state.topic_id, described.printable_id
            state.described = described
            leaders, replicas, state.nodes = described.placement
            self._accumulator.set_leaders(state.queues, leaders, now, replicas)
            self._refresh_available(state)
            if was and state.topic_id and was != state.topic_id:
                self._gone(state.queues)
                return True
        return False

    def _gone(self, queues: TopicQueues) -> None:
        """The topic is not there any more, or another has its name: tell of partitions that there are no more."""
        gone = [queue for queue in queues.queues() if queue.batches and queue.index >= queues.partition_count]
        for observer in self._on_partitions_gone:
            observer(gone)

    def set_down(self, node: Node, *, down: bool) -> bool:
        """Note whether the broker can be reached. True where that is news."""
        if not down:
            node.lost_at = NEVER_LOST
        if node.down == down:
            return False
        node.down = down
        for state in self.topics.values():
            if node.id in state.nodes:
                self._refresh_available(state)
        return True

    def avoid(self, node_ids: frozenset[int]) -> None:
        """The partitions of these brokers are available only where a topic has no others; all others are again."""
        if node_ids == self._avoided:
            return
        self._avoided = node_ids
        for state in self.topics.values():
            self._refresh_available(state)

    def _refresh_available(self, state: TopicState) -> None:
        nodes = self.nodes
        up = frozenset((id_, nodes[id_].rack) for id_ in state.nodes if id_ in nodes and not nodes[id_].down)
        if self._avoided:
            up = frozenset((id_, rack) for id_, rack in up if id_ not in self._avoided) or up
        described = state.described
        found = described.available(up) if described is not None else available(state.queues.leaders, up)
        # The same objects mean: nothing has changed.
        if found.racks != state.queues.racks:
            state.queues.racks = found.racks
        was = state.queues.available
        if found.partitions != was:
            state.queues.available = found.partitions
            self._accumulator.pool.changed()  # what may go to any of them may fit now
            if not was:
                for observer in self._on_available:
                    observer(state.queues)

    def rack_of(self, node_id: int) -> str:
        """The broker's rack; empty where it is not known."""
        node = self.nodes.get(node_id)
        return node.rack if node is not None else ""

    def is_internal(self, name: str) -> bool:
        """Whether brokers call the topic internal; False for one that is not known."""
        state = self.topics.get(name)
        return state is not None and state.internal

    def has_choice(self, name: str) -> bool:
        """Whether a record of the topic could be on more than one partition, as far as is known."""
        state = self.topics.get(name)
        return state is None or state.queues.partition_count != 1

    def usable(self, name: str) -> TopicState | None:
        """The topic, if its partitions are known."""
        state = self.topics.get(name)
        return state if state is not None and state.queues.partition_count else None

    def lacks(self, name: str, partition: int) -> bool:
        """Whether the partition is not known to be there."""
        state = self.usable(name)
        return state is None or not 0 <= partition < state.queues.partition_count

    def why_unknown(self, name: str) -> int:
        """The error code for a partition that is not, after asking: the brokers' own, if they told one."""
        state = self.topics.get(name)
        code = state.error_code if state is not None else error_codes.NONE
        return code or error_codes.UNKNOWN_TOPIC_OR_PARTITION

    def waits_for_leader(self, name: str) -> bool:
        """Whether records wait for a partition of which nobody knows who leads it."""
        state = self.topics.get(name)
        queues = state.queues.queues() if state is not None else ()
        return any(queue.batches and queue.leader not in self.nodes for queue in queues)

    def forget_idle(self, now: float, max_idle: float) -> None:
        """Drop topics that nothing was produced to for `max_idle` seconds, so that the table does not only grow."""
        for name in [name for name, state in self.topics.items() if now - state.used_at > max_idle]:
            self._forget(name)

    def forget_unknown(self, name: str) -> None:
        """Drop a topic without partitions, now that those who waited for it know: clients may name any number."""
        if name in self.topics and not self.topics[name].queues.partition_count:
            self._forget(name)

    def _forget(self, name: str) -> None:
        if not self.topics[name].queues.loads():
            del self.topics[name]
            self._accumulator.forget(name)
            for observer in self._on_forgotten:
                observer(name)
