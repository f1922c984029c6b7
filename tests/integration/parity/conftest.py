from __future__ import annotations

import pytest

from tests.integration.parity.way import Way, Ways
from tests.integration.route import Route
from tests.kit.ports import LOOPBACK


@pytest.fixture
def ways(route: Route) -> Ways:
    """With FOREBAY_TEST_DIRECT=1 both are direct, which shows that a scenario comes to the same twice."""
    name, cluster = route.new_name("parity"), route.cluster
    brokers = {f"{LOOPBACK}:{port}": node for node, port in cluster.advertised.items()}
    direct = Way(cluster.bootstrap, brokers, f"{name}-direct", cluster)
    forebay = route.forebay
    listeners = {f"{LOOPBACK}:{forebay.node_port(node)}": node for node in forebay.nodes} if forebay else brokers
    return Ways(direct, Way(route.bootstrap, listeners, f"{name}-through", cluster))
