"""What a lost broker makes old."""

from __future__ import annotations

from random import Random
from typing import cast

from forebay_policies.metadata_cache import MetadataCache
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.broker_versions import BrokerVersions
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.brokers.reachability import Reachability
from forebay_proxy.config.settings import HostPort
from tests.kit import fakes_proxy as fakes

BOOTSTRAP = (HostPort("first.example", 9092), HostPort("1.example", 9092))


class Noted:
    """Cache, updater and versions, as far as they are told something."""

    def __init__(self) -> None:
        self.cluster: Cluster = fakes.known(fakes.accumulator(), {"ponds": [0, 1], "lakes": [1]}, nodes=(0, 1, 2))
        self.told: list[tuple[object, ...]] = []
        self.reachability = Reachability(
            self.cluster, cast(MetadataCache, self), cast(MetadataUpdater, self), cast(BrokerVersions, self)
        )

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
