"""Which addresses are tried, and in which order."""

from __future__ import annotations

from random import Random

from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.config.settings import HostPort
from tests.kit import fakes_proxy as fakes

BOOTSTRAP = (HostPort("first.example", 9092), HostPort("1.example", 9092))


def known() -> Cluster:
    return fakes.known(fakes.accumulator(), {"ponds": [0, 1], "lakes": [1]}, nodes=(0, 1, 2))


def test_a_known_broker_has_one_address_and_an_unknown_one_none() -> None:
    addresses = BrokerAddresses(known(), BOOTSTRAP, Random(1))
    assert addresses.of(1) == [("1.example", 9092)]
    assert addresses.of(9) == []


def test_any_broker_is_a_known_one_then_one_that_is_down_then_the_bootstrap_servers_each_once() -> None:
    cluster = known()
    cluster.set_down(cluster.nodes[0], down=True)
    found = [BrokerAddresses(cluster, BOOTSTRAP, Random(seed)).of(None) for seed in range(20)]
    hosts = {tuple(address.host for address in order) for order in found}
    assert hosts == {
        ("1.example", "2.example", "0.example", "first.example"),
        ("2.example", "1.example", "0.example", "first.example"),
    }


def test_learned_are_those_that_are_no_bootstrap_servers() -> None:
    learned = BrokerAddresses(known(), BOOTSTRAP, Random(1)).learned
    assert learned == [("0.example", 9092), ("2.example", 9092)]


def test_a_bootstrap_connection_gets_a_broker_that_was_last_reached() -> None:
    cluster = known()
    addresses = BrokerAddresses(cluster, BOOTSTRAP, Random(1))
    assert {addresses.any_node() for _ in range(50)} == {0, 1, 2}
    cluster.set_down(cluster.nodes[0], down=True)
    cluster.nodes[2].lost_at = 5.0
    assert {addresses.any_node() for _ in range(50)} == {1}
    cluster.nodes[1].lost_at = 9.0
    assert {addresses.any_node() for _ in range(50)} == {2}
    cluster.set_down(cluster.nodes[0], down=False)
    assert {addresses.any_node() for _ in range(50)} == {0}


def test_one_that_metadata_does_not_name_any_more_comes_behind_those_that_can_be_reached() -> None:
    cluster = known()
    cluster.apply(fakes.metadata({}, (0, 1)), set(), 100.0, 300.0)
    addresses = BrokerAddresses(cluster, (), Random(1))
    assert {addresses.any_node() for _ in range(50)} == {0, 1}
    assert {addresses.of(None)[-1].host for _ in range(50)} == {"2.example"}
    cluster.nodes[0].lost_at = 101.0
    cluster.set_down(cluster.nodes[1], down=True)
    assert {addresses.any_node() for _ in range(50)} == {2}
    cluster.nodes[2].lost_at = 99.0
    assert {addresses.any_node() for _ in range(50)} == {0}
    cluster.learn(2, "2.example", 9092, 102.0)
    assert {addresses.any_node() for _ in range(50)} == {2}, "named by another answer, and lost before the others"


def test_where_metadata_never_came_all_that_are_known_are_alike() -> None:
    """Clients log in themselves, and brokers are learned from what they are told."""
    cluster = Cluster(fakes.accumulator())
    for node_id in (0, 1):
        cluster.learn(node_id, f"{node_id}.example", 9092, float(node_id))
    addresses = BrokerAddresses(cluster, BOOTSTRAP, Random(1))
    assert {addresses.any_node() for _ in range(50)} == {0, 1}


def test_where_no_broker_is_known_there_is_none() -> None:
    cluster = fakes.known(fakes.accumulator(), {}, nodes=())
    assert BrokerAddresses(cluster, BOOTSTRAP, Random(1)).any_node() is None


def test_another_broker_than_one_that_does_not_answer() -> None:
    cluster = fakes.known(fakes.accumulator(), {"ponds": [0]}, nodes=(0, 1))
    addresses = BrokerAddresses(cluster, BOOTSTRAP, Random(1))
    assert {addresses.any_node(0) for _ in range(50)} == {1}
    assert {addresses.any_node(1) for _ in range(50)} == {0}
