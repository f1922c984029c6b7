"""What a lost broker makes old, and who has it up again."""

from __future__ import annotations

from random import Random
from time import monotonic
from typing import cast

from forebay_policies.metadata_cache import Ages, MetadataCache
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.broker_versions import BrokerVersions, OnReady
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.brokers.reachability import Reachability
from forebay_proxy.config.settings import HostPort
from tests.kit import fakes_proxy as fakes

BOOTSTRAP = (HostPort("first.example", 9092), HostPort("1.example", 9092))


class Noted:
    """Cache, updater and versions, as far as they are told something. `answers`: what a broker that is asked says."""

    def __init__(self) -> None:
        self.cluster: Cluster = fakes.known(fakes.accumulator(), {"ponds": [0, 1], "lakes": [1]}, nodes=(0, 1, 2))
        self.ages = Ages(60, 300, 300)
        self.told: list[tuple[object, ...]] = []
        self.asked: list[int] = []
        self.answers: bytes | None = None
        self.reachability = Reachability(
            self.cluster, cast(MetadataCache, self), cast(MetadataUpdater, self), cast(BrokerVersions, self)
        )

    def get(self, node_id: int, version: int, ready: OnReady) -> None:
        assert version == 0, "which every broker knows"
        self.asked.append(node_id)
        ready(self.answers)

    def forget(self, node_id: int) -> None:
        self.told.append(("versions", node_id))

    def invalidate_node(self, node_id: int, now: float) -> None:
        self.told.append(("cache", node_id))

    def invalidate(self, names: list[str], cause: str) -> None:
        self.told.append(("updater", *names, cause))


def test_a_lost_broker_makes_its_versions_and_its_topics_old() -> None:
    noted = Noted()
    noted.reachability.lost(noted.cluster.nodes[1])
    assert noted.told == [("versions", 1), ("cache", 1), ("updater", "ponds", "lakes", "connection")]


def test_clients_that_try_again_and_again_say_it_once_a_second() -> None:
    noted = Noted()
    for _ in range(5):
        noted.reachability.not_reached(0)
    assert [told for told in noted.told if told[0] == "cache"] == [("cache", 0)]


def test_an_unknown_broker_is_nobodys_loss() -> None:
    noted = Noted()
    noted.reachability.not_reached(None)
    noted.reachability.not_reached(9)
    assert noted.told == []


def test_a_broker_with_another_address_may_be_another_version() -> None:
    noted = Noted()
    noted.cluster.learn(1, "moved.example", 9092, 1.0)
    assert noted.told == [("versions", 1)]


def test_a_broker_that_is_reached_again_counts_as_any_other() -> None:
    noted = Noted()
    addresses = BrokerAddresses(noted.cluster, BOOTSTRAP, Random(1))
    for node in (1, 2):
        noted.reachability.not_reached(node)
    assert {addresses.any_node() for _ in range(50)} == {0}
    noted.reachability.reached(1)
    noted.reachability.reached(None)
    assert {addresses.any_node() for _ in range(50)} == {0, 1}


def test_who_cannot_connect_has_a_broker_not_up_but_a_client_leaves_its_partitions_available() -> None:
    noted = Noted()
    cluster = noted.cluster
    assert noted.reachability.up() == {0: True, 1: True, 2: True}
    noted.reachability.not_reached(0)
    cluster.nodes[1].last_seen = monotonic()
    cluster.set_down(cluster.nodes[1], down=True)
    assert noted.reachability.up() == {0: False, 1: False, 2: True}
    assert cluster.topics["ponds"].queues.available == [0], "what a client meets moves no records"
    noted.reachability.reached(0)
    noted.reachability.reached(1)
    assert noted.reachability.up() == {0: True, 1: False, 2: True}, "the sender finds out by itself"


def test_a_connection_of_the_senders_has_a_broker_up_that_clients_could_not_be_connected_to() -> None:
    noted = Noted()
    noted.reachability.not_reached(0)
    assert not noted.cluster.set_down(noted.cluster.nodes[0], down=False), "it never was"
    assert noted.reachability.up()[0]


def test_brokers_that_clients_have_lost_are_asked_until_they_answer() -> None:
    noted = Noted()
    noted.cluster.set_down(noted.cluster.nodes[1], down=True)
    noted.reachability.look_again()
    assert noted.asked == [], "none but the sender, which tries again, has lost any"
    noted.reachability.not_reached(0)
    told = len(noted.told)
    for _ in range(2):
        noted.reachability.look_again()
        assert not noted.reachability.up()[0]
    noted.answers = b"versions"
    noted.reachability.look_again()
    assert noted.reachability.up()[0]
    noted.reachability.look_again()
    assert noted.asked == [0, 0, 0]
    assert len(noted.told) == told, "nothing more has become old"


def test_a_broker_that_is_not_up_is_left_out_once_nobody_names_or_tries_it_any_more() -> None:
    noted = Noted()
    node, other, unused = noted.cluster.nodes.values()
    node.last_seen = other.last_seen = unused.last_seen = monotonic() - noted.ages.max - 1
    noted.reachability.not_reached(node.id)
    assert noted.reachability.up() == {0: False, 1: True, 2: True}, "it was just tried"
    node.lost_at = other.lost_at = monotonic() - noted.ages.max - 1
    noted.cluster.learn(other.id, other.host, other.port, monotonic())
    assert noted.reachability.up() == {1: False, 2: True}, "the other was just named"
    noted.reachability.look_again()
    assert noted.asked == [1]
