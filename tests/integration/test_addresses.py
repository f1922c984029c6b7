"""No client is ever told where a broker really is: by what it says it knows, and by where its sockets lead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.route import Route
from tests.kit.clients import CLIENT_NAMES, Client
from tests.kit.connections import ConnectionWatch
from tests.kit.java import JavaClient
from tests.kit.spec import ProduceSpec

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("version", ["4.3.1", pytest.param("3.9.2", marks=pytest.mark.whole)])
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_what_clients_know(
    open_route: Callable[[str], Route], get_client: Callable[[str], Client], name: str, version: str
) -> None:
    route = open_route(version)
    assert get_client(name).brokers(route.bootstrap, route.topic_for("addresses")) == route.addresses


def watch(route: Route) -> ConnectionWatch:
    """Over the real CLIENT ports, to which only the brokers and Forebay may be connected."""
    brokers = [route.cluster.pid(node) for node in route.cluster.nodes]
    allowed = [route.forebay.pid] if route.forebay else []
    return ConnectionWatch(route.cluster.ports.values(), [*brokers, *allowed])


def use_much(bootstrap: str, route: Route, client: Client) -> None:
    """Metadata, a group's coordinator, a transaction's coordinator, and an admin client where there is one."""
    topic = route.topic_for("addresses")
    for transactional_id in (None, route.new_name("txn")):
        client.produce(bootstrap, ProduceSpec(topic, "watched", count=50, transactional_id=transactional_id))
    client.consume(bootstrap, topic, route.new_name("group"), 100)
    if isinstance(client, JavaClient) and client.version >= "3.2":
        client.admin(bootstrap, "list_groups")


@pytest.mark.parametrize("version", ["4.3.1", "3.9.2"])
def test_whom_clients_connect_to(
    open_route: Callable[[str], Route], get_client: Callable[[str], Client], version: str
) -> None:
    route = open_route(version)
    with watch(route) as connections:
        for name in ("java-1.1.1", "java-2.8.2", "java-4.3.1", "confluent", "aiokafka"):
            use_much(route.bootstrap, route, get_client(name))
    if route.moves:
        assert connections.strangers == set()


def test_the_watch_sees_whoever_goes_around(route: Route, get_client: Callable[[str], Client]) -> None:
    with watch(route) as connections:
        use_much(route.cluster.bootstrap, route, get_client("java-2.8.2"))
    assert any("kit.Session" in stranger for stranger in connections.strangers)
