"""Real clusters, Forebay before each, and the clients: all started once a run, when the first test asks for them.

A `route` is a way to a cluster. In CI it always leads through Forebay. With FOREBAY_TEST_DIRECT=1 it leads to Kafka
itself, which shows that a test asks of Forebay only what Kafka does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.chaos.load import VERSIONS
from tests.integration.route import Route
from tests.kit.clients import Client, make_client
from tests.kit.forebay import ForebayProcess
from tests.kit.java import JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.paths import ROOT
from tests.kit.spark import pytest_runtest_makereport, spark
from tests.kit.topic_log import TopicLog

__all__ = ["pytest_runtest_makereport", "spark"]

# What these assert is told with its values, as if it stood in a test.
pytest.register_assert_rewrite("tests.integration.checks")

SETTINGS = {
    # Tests send records of 1970, too, which brokers would delete every five minutes.
    "log.retention.ms": "-1",
    # Members of the newer kinds of groups learn by their next heartbeat that they may read: five seconds by default.
    **{f"group.{kind}.heartbeat.interval.ms": "1000" for kind in ("consumer", "consumer.min", "share", "share.min")},
}
DIRECT = os.environ.get("FOREBAY_TEST_DIRECT") == "1"


TAKEN_ONCE = ("spark: SparkSession", "open_route: ")
"""What files want that is not to be there twice: Sparks, of which two at once take longer than one after the other, and
clusters of other versions."""


@cache
def process_of(file: str) -> str:
    """Files of which this is the same go to the same process."""
    text = (ROOT / file).read_text()
    return next((what for what in TAKEN_ONCE if what in text), file)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Of pytest-xdist's own only --dist=loadfile knows files, and that knows nothing else."""

    def _split_scope(self, nodeid: str) -> str:
        return process_of(nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    return ByFile(config, log)


@pytest.fixture(scope="session")
def open_route() -> Iterator[Callable[[str], Route]]:
    """Version → the route to a cluster of that version."""
    routes: dict[str, Route] = {}
    with ExitStack() as stack:

        def open_route(version: str) -> Route:
            if version not in routes:
                cluster = stack.enter_context(KafkaCluster(version, settings=SETTINGS))
                log = stack.enter_context(TopicLog(cluster.internal))
                forebay = None
                if not DIRECT:
                    forebay = stack.enter_context(ForebayProcess(cluster.bootstrap, cluster.nodes))
                routes[version] = Route(cluster, log, forebay)
            return routes[version]

        yield open_route


@pytest.fixture(scope="session")
def route(open_route: Callable[[str], Route]) -> Route:
    """The route to Kafka 4.3.1, which most tests take."""
    return open_route("4.3.1")


@pytest.fixture(scope="session")
def cluster(route: Route) -> KafkaCluster:
    """Kafka 4.3.1, for tests with a Forebay of their own that leave brokers as they are. Others have topics there."""
    return route.cluster


@pytest.fixture(scope="session")
def get_client() -> Iterator[Callable[[str], Client]]:
    """Name → client, kept for the whole run: a JVM is expensive to start."""
    clients: dict[str, Client] = {}

    def get(name: str) -> Client:
        if name not in clients:
            clients[name] = make_client(name)
        return clients[name]

    yield get
    for client in clients.values():
        client.close()


@pytest.fixture(scope="session")
def get_java(get_client: Callable[[str], Client]) -> Callable[[str], JavaClient]:
    """The same by version."""

    def get(version: str) -> JavaClient:
        client = get_client(f"java-{version}")
        assert isinstance(client, JavaClient)
        return client

    return get


@pytest.fixture(scope="session")
def newest_java(get_java: Callable[[str], JavaClient]) -> JavaClient:
    return get_java("4.3.1")


@pytest.fixture(scope="session")
def jvms(get_java: Callable[[str], JavaClient]) -> Mapping[str, JavaClient]:
    """For loads (chaos/load.py)."""
    return {version: get_java(version) for version in VERSIONS}
