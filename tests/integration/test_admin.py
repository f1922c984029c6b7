"""Admin operations over the route do to the cluster what they say, and show no address but the route's."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest

from tests.integration.route import Route
from tests.kit.clients import Client
from tests.kit.java import JavaClient
from tests.kit.spec import ProduceSpec

pytestmark = pytest.mark.integration

# Newer than what the kit's Admin class was compiled against; older clients' metadata is in test_addresses.py.
ADMIN_CLIENTS = ("java-3.2.3", "java-3.9.2", "java-4.3.1")
SECONDS = 60


@pytest.fixture(params=["4.3.1", "3.9.2"])
def either_route(open_route: Callable[[str], Route], request: pytest.FixtureRequest) -> Route:
    return open_route(request.param)


@pytest.fixture(params=ADMIN_CLIENTS)
def admin(
    either_route: Route, get_client: Callable[[str], Client], request: pytest.FixtureRequest
) -> Callable[..., Any]:
    client = get_client(request.param)
    assert isinstance(client, JavaClient)

    def admin(op: str, name: str = "", **arguments: object) -> Any:
        return client.admin(either_route.bootstrap, op, name, **arguments)

    return admin


def addresses_in(answer: Any) -> set[str]:
    """Every address anywhere in an answer of Admin.java."""
    if isinstance(answer, dict):
        own = {answer["address"]} if "address" in answer else set()
        return own.union(*map(addresses_in, answer.values()))
    if isinstance(answer, list):
        return set().union(*map(addresses_in, answer))
    return set()


def test_topics(either_route: Route, admin: Callable[..., Any]) -> None:
    topic = either_route.new_name("made-by-admin")
    admin("create_topic", topic, partitions=2, replicas=3)
    # Another node than the one that made it may answer, and be a moment behind.
    until(lambda: admin("list_topics"), lambda names: topic in names)
    admin("create_partitions", topic, partitions=4)
    either_route.cluster.await_topic(topic, 4)
    described = until(lambda: admin("describe_topic", topic), lambda answer: len(answer["partitions"]) == 4)
    assert addresses_in(described) == either_route.addresses
    admin("delete_topic", topic)
    until(lambda: admin("list_topics"), lambda names: topic not in names)


def test_configs(either_route: Route, admin: Callable[..., Any]) -> None:
    topic = either_route.new_topic()
    admin("alter_config", topic, key="max.message.bytes", value="123456")
    until(lambda: admin("describe_configs", topic), lambda answer: answer["max.message.bytes"] == "123456")


def test_cluster(either_route: Route, admin: Callable[..., Any]) -> None:
    cluster = admin("describe_cluster")
    assert {node["id"] for node in cluster["nodes"]} == set(either_route.cluster.nodes)
    assert addresses_in(cluster) == either_route.addresses


def test_groups(either_route: Route, admin: Callable[..., Any], newest_java: JavaClient) -> None:
    topic, group = either_route.new_topic(), either_route.new_name("group")
    newest_java.produce(either_route.bootstrap, ProduceSpec(topic, "read", count=30))
    newest_java.consume(either_route.bootstrap, topic, group, 30)
    assert group in admin("list_groups")
    described = admin("describe_group", group)
    assert described["members"] == 0
    assert addresses_in(described) <= either_route.addresses
    assert sum(admin("group_offsets", group).values()) == 30
    admin("delete_group", group)
    assert group not in admin("list_groups")


def until(ask: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    """The first good answer; each question takes a round trip, so there is no need to sleep between them."""
    deadline = monotonic() + SECONDS
    while not good(answer := ask()):
        assert monotonic() < deadline, f"the last answer: {answer}"
    return answer
