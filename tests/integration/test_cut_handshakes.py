"""Handshakes with a broker that are cut or hang in the middle, in TLS and in the login behind it.

toxiproxy stands before each of two brokers. What is asked of the other broker meanwhile is a bystander's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial

import pytest

from forebay_proxy.brokers.connector import Connector
from forebay_proxy.config.secret import Secret
from forebay_proxy.metrics.registry import MetricRegistry
from tests.chaos.bystander import DIRECT, THROUGH, Bystanders, Post, Way
from tests.integration.load import Load, values
from tests.kit.app import settings
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.sasl import Secured, login_line
from tests.kit.topic_log import TopicLog
from tests.kit.toxiproxy import ToxiproxyServer
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.whole]  # test_tls_upstream.py has handshakes that fail

CUT, SPARED = 0, 1
NAME = f"broker-{CUT}"
SETUP_MS = 2_000
TRIES = 4
MOST_CUTS = 3
"""As with other faults it is cut once more where bystanders waited too long."""
BESIDE = "beside"
SOME = 200
SECONDS = 60
FAULTS = {
    "in TLS": ("limit_data", {"bytes": 700}, "in the middle of the handshake"),
    "in the login": ("limit_data", {"bytes": 3_700}, "was lost"),
    "reset": ("reset_peer", {"timeout": 5}, "reset by peer"),
    "without an answer": ("timeout", {"timeout": 0}, "did not answer within 2 s"),
}
"""toxiproxy's toxic, toward Forebay, and how a connector tells it. A broker's handshake takes 1,370 bytes; with it, its
session tickets and its versions it has said 3,460, and 3,920 when it has taken the login.
"""


class Stage:
    def __init__(
        self, secured: Secured, cluster: KafkaCluster, forebay: ForebayProcess, toxiproxy: ToxiproxyServer
    ) -> None:
        self._secured = secured
        self.cluster = cluster
        self.forebay = forebay
        self.toxiproxy = toxiproxy

    def cut_there(self, why: str) -> None:
        """A connection with a login comes to nothing for this reason."""
        told = {
            "security_protocol": "SASL_SSL",
            "ssl_truststore_location": str(self._secured.authority.pem),
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_jaas_config": Secret(login_line("SCRAM-SHA-512")),
            "socket_connection_setup_timeout_ms": SETUP_MS,
        }

        async def connect() -> None:
            await Connector(settings((), 0, **told), MetricRegistry()).open(LOOPBACK, self.cluster.advertised[CUT])

        with pytest.raises(OSError, match=why):
            asyncio.run(connect())

    def tries(self) -> float:
        return self.forebay.metrics()['forebay_errors_total{kind="connect",side="upstream"}']

    def has_tried(self, times: float) -> bool:
        return self.tries() >= times

    def bystanders(self) -> Bystanders:
        """At the broker that is spared."""
        ports: dict[Way, int] = {DIRECT: self.cluster.internal_ports[SPARED], THROUGH: self.forebay.node_port(SPARED)}
        return Bystanders([Post(way, SPARED, port, BESIDE) for way, port in ports.items()])

    def came(self) -> float:
        """Connections of clients; an idempotent one's has one of its own to the broker."""
        metrics = self.forebay.metrics()
        return sum(value for name, value in metrics.items() if name.startswith("forebay_connections_total"))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    secured = Secured(tmp_path_factory.mktemp("sasl"))
    ports = {node: free_port() for node in (CUT, SPARED)}
    with ToxiproxyServer() as toxiproxy:
        advertised = {node: toxiproxy.proxy(f"broker-{node}", port) for node, port in ports.items()}
        cluster = KafkaCluster(
            "4.3.1", brokers=2, ports=ports, advertised=advertised, settings=secured.broker_settings()
        )
        told = secured.forebay_settings("SCRAM-SHA-512", **{"socket.connection.setup.timeout.ms": str(SETUP_MS)})
        with cluster:
            secured.add_users(cluster)
            cluster.create_topic(BESIDE, assignment=[[SPARED]])
            with ForebayProcess(cluster.bootstrap, cluster.nodes, settings=told) as forebay:
                yield Stage(secured, cluster, forebay, toxiproxy)


def more_than(load: Load, acknowledged: int) -> bool:
    return load.acknowledged > acknowledged


@pytest.mark.parametrize("where", FAULTS)
def test_a_broker_whose_handshakes_fail_costs_no_record_and_delays_nobody_elsewhere(stage: Stage, where: str) -> None:
    name = where.replace(" ", "-").lower()
    topics = {node: f"{name}-{node}" for node in (CUT, SPARED)}
    for node, topic in topics.items():
        stage.cluster.create_topic(topic, assignment=[[node]])
    toxic, attributes, why = FAULTS[where]
    log_before = len(stage.forebay.log.read_text())
    with TopicLog(stage.cluster.internal) as log:
        since = {node: log.ends(topic) for node, topic in topics.items()}
        with Load(stage.forebay.bootstrap, topics[CUT]) as hit, Load(stage.forebay.bootstrap, topics[SPARED]) as spared:
            wait_until(lambda: min(hit.acknowledged, spared.acknowledged) > SOME, SECONDS, "all goes well")
            cuts, noticed = 0, True
            while noticed:
                cuts += 1
                with stage.bystanders() as bystanders:
                    stage.toxiproxy.cut(NAME)  # so that every connection is made anew
                    stage.toxiproxy.add(NAME, toxic, "downstream", **attributes)
                    stage.toxiproxy.mend(NAME)
                    stage.cut_there(why)
                    began, came, before = time.monotonic(), stage.came(), stage.tries()
                    wait_until(partial(stage.has_tried, before + TRIES), SECONDS, "handshakes are tried")
                    # 0.05, 0.1, 0.2, 0.4, 0.8 s, then one a second, 20 % less at most; one for each client that came
                    own, ended = stage.tries() - before - (stage.came() - came), time.monotonic()
                    assert own <= 6 + (ended - began) / 0.8
                    waits = bystanders.stop()
                stage.toxiproxy.remove(NAME, toxic)
                wait_until(partial(more_than, hit, hit.acknowledged + SOME), SECONDS, "it is over")
                direct, through = (waits.latency(way, {SPARED}, began, ended) for way in (DIRECT, THROUGH))
                noticed = through.worst > 1 + 3 * direct.worst or through.errors > 0
                assert not noticed or cuts < MOST_CUTS, (direct, through)
        assert hit.failures == spared.failures == []
        assert values(log.read(topics[SPARED], since[SPARED], at_least=len(spared.sent))) == sorted(spared.sent)
        # What was written before connections ended may be sent again by its clients.
        assert set(values(log.read(topics[CUT], since[CUT], at_least=len(hit.sent)))) == set(hit.sent)
    said = stage.forebay.log.read_text()[log_before:]
    assert said.count("broker unreachable") == cuts
    assert "refuses Forebay's login" not in said
    assert "Traceback" not in said
