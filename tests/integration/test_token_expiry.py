"""Clients whose tokens are good for seconds, merged: nothing is lost as they expire, and nobody writes as another."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from threading import Event
from time import monotonic

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.logins import USERS, Logins
from tests.kit.ports import LOOPBACK, free_ports
from tests.kit.topic_log import TopicLog
from tests.kit.toxiproxy import ToxiproxyServer

pytestmark = pytest.mark.integration

TOKEN_S = 5
RATE = 50
"""Records a second of each client."""
CLIENTS = 2
"""Of each user."""
PARTITIONS = 4
FAULT_S = 4.0
AUTHORIZED = re.compile(r"Principal = (\S+) is Allowed operation = WRITE .* on resource = Topic:LITERAL:(\S+) for")


def produce(logins: Logins, bootstrap: str, user: str, name: str, until: float) -> list[bytes]:
    """At a steady rate; the values that were acknowledged. Whatever fails raises."""
    acknowledged: list[bytes] = []
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is not None or value is None:
            failures.append(str(error))
        else:
            acknowledged.append(value)

    props = logins.librdkafka_props(user, "OAUTHBEARER", "SASL_SSL")
    producer = Producer({**props, "bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    pace, begun, sent = Event(), monotonic(), 0
    while monotonic() < until:
        pace.wait(max(0.0, begun + sent / RATE - monotonic()))
        producer.produce(f"{user}-expiry", b"%s-%d" % (name.encode(), sent), on_delivery=delivered)
        producer.poll(0)
        sent += 1
    assert producer.flush(120) == 0
    assert failures == []
    assert len(acknowledged) == sent
    return acknowledged


def faults(toxiproxy: ToxiproxyServer, hops: list[str], until: float) -> Iterator[str]:
    """One after the other, each over when the next is asked for."""
    for hop in cycle(hops):
        for milliseconds in (50, 300):
            if monotonic() >= until:
                return
            toxiproxy.add_latency(hop, milliseconds, milliseconds // 2)
            yield f"{hop} answers {milliseconds} ms late"
            toxiproxy.remove_latency(hop)
        if monotonic() >= until:
            return
        toxiproxy.cut(hop)
        toxiproxy.mend(hop)
        yield f"{hop} has lost its connections"


@pytest.mark.whole  # test_sasl_upstream.py renews tokens under load, test_identities.py has who writes as whom
@pytest.mark.parametrize("seconds", [3 * TOKEN_S, pytest.param(600, marks=pytest.mark.timeout(1000))])
def test_nothing_is_lost_and_nobody_writes_as_another(tmp_path: Path, seconds: int) -> None:
    logins = Logins(tmp_path, "SASL_PLAINTEXT", token_s=TOKEN_S)
    settings = logins.broker_settings()
    audit = {"kafka.authorizer.logger": "debug"}
    with ExitStack() as stack:
        toxiproxy = stack.enter_context(ToxiproxyServer())
        ports = dict(enumerate(free_ports(2)))
        advertised = {node: toxiproxy.proxy(f"broker-{node}", port) for node, port in ports.items()}
        cluster = stack.enter_context(
            KafkaCluster("4.3.1", brokers=2, ports=ports, advertised=advertised, settings=settings, loggers=audit)
        )
        log = stack.enter_context(TopicLog(cluster.internal))
        logins.add_users(cluster)
        for user in USERS:
            cluster.create_topic(f"{user}-expiry", PARTITIONS)
        keystore = logins.authority.issue("forebay", LOOPBACK, "localhost")
        forebay = stack.enter_context(
            ForebayProcess(
                cluster.bootstrap,
                cluster.nodes,
                settings=logins.forebay_settings(),
                tls={"ssl.keystore.location": str(keystore), "upstream.identity": "client"},
                protocols=("SASL_PLAINTEXT", "SASL_SSL"),
            )
        )
        pool = stack.enter_context(ThreadPoolExecutor(CLIENTS * len(USERS)))
        until = monotonic() + seconds
        at_work = {
            (user, number): pool.submit(produce, logins, forebay.tls_bootstrap, user, f"{user}{number}", until)
            for user in USERS
            for number in range(CLIENTS)
        }
        pause = Event()
        for fault in faults(toxiproxy, [f"broker-{node}" for node in cluster.nodes], until):
            print(f"{until - monotonic():5.0f} s left: {fault}", flush=True)
            pause.wait(min(FAULT_S, max(0.0, until - monotonic())))
        acknowledged = {of: job.result() for of, job in at_work.items()}
        for user in USERS:
            told = [value for (whose, _), values in acknowledged.items() if whose == user for value in values]
            found = log.read(f"{user}-expiry", dict.fromkeys(range(PARTITIONS), 0), at_least=len(told))
            missing = Counter(told) - Counter(record.value or b"" for record in found)
            assert not missing, f"acknowledged and not there: {list(missing)[:5]}"
        merged = forebay.metrics()['forebay_records_total{fate="moved"}']
        assert merged > 0, "they are merged, and move"
        said = forebay.log.read_text()
        assert "Traceback" not in said
        lines = [line for node in cluster.nodes for line in cluster.log(node).read_text().splitlines()]
    wrote = {match.groups() for line in lines if (match := AUTHORIZED.search(line))}
    assert wrote == {(f"User:{user}", f"{user}-expiry") for user in USERS}
