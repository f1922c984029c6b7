"""Clients that log in at Forebay itself, which logs in at the brokers: real ones, and byte by byte beside a broker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.integration.checks import each_exactly_once, every_record_acknowledged
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.logins import USERS, Logins, password_of
from tests.kit.ports import LOOPBACK
from tests.kit.sasl import MODULES, give_scram_password, login_line, quoted
from tests.kit.spec import ProduceSpec
from tests.kit.topic_log import TopicLog

pytestmark = pytest.mark.integration
whole = pytest.mark.whole

REAUTH_MS = 2_000
"""Of a login by PLAIN, at the brokers and at Forebay's listener without TLS."""
COUNT = 200
PLAIN = "PLAIN"
SERVICE = "forebay"
CLIENTS = (
    "java-0.10.2.2",  # SaslHandshake v0
    "java-4.3.1",
    "confluent",
    "kafka-python",
    pytest.param("aiokafka", marks=whole),
    pytest.param("java-2.8.2", marks=whole),
)


@dataclass
class Stage:
    """A cluster with users, and Forebay before it with a user of its own, where the same users log in."""

    logins: Logins
    cluster: KafkaCluster
    log: TopicLog
    forebay: ForebayProcess


def secret(folder: Path, name: str, text: str) -> str:
    """A reference to a file of that content."""
    path = folder / name
    path.touch(mode=0o600)
    path.write_text(text)
    return f"${{dir:{folder}:{name}}}"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("terminated")
    logins = Logins(folder, "SASL_PLAINTEXT")
    more = {
        "listener.name.client.plain.connections.max.reauth.ms": str(REAUTH_MS),
        "super.users": f"User:ANONYMOUS;User:{SERVICE}",
    }
    users = " ".join(f"user_{user}={quoted(password_of(user))}" for user in USERS)
    told = {
        "client.authentication": "terminate",
        "upstream.identity": "service",
        "sasl.enabled.mechanisms": PLAIN,
        "plain.sasl.jaas.config": secret(folder, "users", f"{MODULES[PLAIN]} required {users};"),
    }
    settings = {
        **logins.forebay_settings(),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": secret(folder, "service", login_line("SCRAM-SHA-512", "its=own", SERVICE)),
        "upstream.identity.shared": "true",
        "journal.dir": str(folder),
        "journal.ledger": "true",
        **{f"listener.name.sasl_plaintext.{name}": value for name, value in told.items()},
        "listener.name.sasl_plaintext.connections.max.reauth.ms": str(REAUTH_MS),
    }
    with (
        KafkaCluster("4.3.1", brokers=2, settings=logins.broker_settings() | more) as cluster,
        TopicLog(cluster.internal) as log,
    ):
        logins.add_users(cluster)
        give_scram_password(cluster, SERVICE, "its=own")
        keystore = logins.authority.issue("forebay", LOOPBACK, "localhost")
        with ForebayProcess(
            cluster.bootstrap,
            cluster.nodes,
            settings=settings,
            tls={"ssl.keystore.location": str(keystore), **told},
            protocols=("SASL_PLAINTEXT", "SASL_SSL"),
        ) as forebay:
            yield Stage(logins, cluster, log, forebay)


@pytest.mark.parametrize("name", CLIENTS)
def test_records_of_a_client_that_logs_in_here_are_merged_and_sent(stage: Stage, name: str) -> None:
    """Two users at the same time, on one topic."""
    topic = f"terminated-{name}"
    stage.cluster.create_topic(topic, 4)
    before = stage.forebay.metrics()
    specs = {user: ProduceSpec(topic, f"{user}-{name}", count=COUNT, keys="mixed") for user in USERS}
    with ExitStack() as stack, ThreadPoolExecutor(len(USERS)) as pool:
        make = partial(stage.logins.client, name, mechanism=PLAIN, protocol="SASL_SSL")
        clients = {user: stack.enter_context(closing(make(user=user))) for user in USERS}
        work = {user: pool.submit(clients[user].produce, stage.forebay.tls_bootstrap, specs[user]) for user in USERS}
        for user, spec in specs.items():
            every_record_acknowledged(spec, work[user].result())
    found = stage.log.read(topic, dict.fromkeys(range(4), 0), at_least=2 * COUNT)
    for spec in specs.values():
        each_exactly_once(spec, [each for each in found if (each.value or b"").startswith(f"{spec.name}-".encode())])
    now = stage.forebay.metrics()
    fates = {fate: f'forebay_records_total{{fate="{fate}"}}' for fate in ("kept", "moved", "untouched")}
    told = {fate: now[sample] - before[sample] for fate, sample in fates.items()}
    assert told["kept"] + told["moved"] == 2 * COUNT
    assert told["moved"] > 0
    assert told["untouched"] == 0
    shown = {who for row in stage.forebay.clients("--url", stage.forebay.admin_url) for who in row["principals"]}
    assert shown == {f"User:{user}" for user in USERS}
