"""Passwords and secrets that change in Forebay's files, and are then worth nothing at a real Kafka: no record fails.

Sessions last for some seconds, so that each of them is renewed with what is new.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.integration.load import PACE_S, Load, values
from tests.kit.certificates import server_context
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK
from tests.kit.sasl import PASSWORD, Secured, login_line, plain_users
from tests.kit.topic_log import TopicLog
from tests.kit.unsigned_tokens import unsigned_tokens
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.whole]  # test_rotation.py has certificates

REAUTH_MS = 2_000
RECORDS = int(2 * 1.5 * REAUTH_MS / 1000 / PACE_S)
"""What two producers that stay send in one and a half lifetimes of a session."""
TRIES = 3
"""Where a session was not renewed in time, of which little is left then, it is done once more: the machine may have
stood still just then."""
TOKEN_S = 10
SECONDS = 60
OLD, NEW = "canary-old-4c", "canary-new-81"


class Stage:
    def __init__(self, secured: Secured, cluster: KafkaCluster, folder: Path) -> None:
        self.secured = secured
        self.cluster = cluster
        self.folder = folder

    def write(self, name: str, text: str) -> str:
        """A file that nobody else can read, in one move; the reference to it."""
        aside = self.folder / f"{name}.next"
        aside.touch(mode=0o600)
        aside.write_text(text)
        os.replace(aside, self.folder / name)
        return f"${{dir:{self.folder}:{name}}}"

    def forebay(self, mechanism: str, **more: str) -> ForebayProcess:
        settings = self.secured.forebay_settings(mechanism, **more)
        return ForebayProcess(self.cluster.bootstrap, self.cluster.nodes, settings=settings)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    secured = Secured(tmp_path_factory.mktemp("sasl"), REAUTH_MS)
    settings = {**secured.broker_settings(), **plain_users(forebay=OLD, next=NEW)}
    with KafkaCluster("4.3.1", brokers=1, settings=settings) as cluster:
        yield Stage(secured, cluster, tmp_path_factory.mktemp("files"))


def renew(forebay: ForebayProcess) -> None:
    """Say that files have changed, and wait until what is in them is used."""
    renewed = 'forebay_security_reloads_total{outcome="renewed",side="upstream"}'
    before = forebay.metrics()[renewed]
    os.kill(forebay.pid, signal.SIGHUP)
    wait_until(lambda: forebay.metrics()[renewed] > before, SECONDS, "secrets are renewed")


def refusals(forebay: ForebayProcess) -> float:
    return forebay.metrics()['forebay_errors_total{kind="authentication",side="upstream"}']


def begins(load: Load) -> None:
    wait_until(lambda: load.acknowledged > 100, SECONDS, "records are acknowledged")


def goes_on(load: Load) -> None:
    """Until every session that stood has had to be renewed."""
    enough = load.acknowledged + RECORDS
    wait_until(lambda: load.acknowledged >= enough or load.failures, SECONDS, "records are acknowledged")
    assert load.failures == []


def unharmed(forebay: ForebayProcess) -> bool:
    """Whether no connection has ended with what was written to it."""
    metrics, log = forebay.metrics(), forebay.log.read_text()
    assert "broker unreachable" not in log
    for text in (OLD, NEW, PASSWORD, "Traceback"):
        assert text not in log
    return metrics['forebay_errors_total{kind="outcome_unknown",side="upstream"}'] == 0


@pytest.mark.parametrize("times", [2, 20])
def test_a_password_that_is_changed_in_the_file_and_then_at_the_broker(stage: Stage, times: int) -> None:
    """In between logins are refused: records wait, and are written once."""
    assert any(passwords_are_changed(stage, f"scram-{times}-{number}", times) for number in range(TRIES))


def passwords_are_changed(stage: Stage, topic: str, times: int) -> bool:
    stage.secured.add_users(stage.cluster, OLD)
    stage.cluster.create_topic(topic, 2)
    line = stage.write("scram", login_line("SCRAM-SHA-512", OLD))
    with (
        stage.forebay("SCRAM-SHA-512", **{"sasl.jaas.config": line}) as forebay,
        TopicLog(stage.cluster.internal) as log,
    ):
        since = log.ends(topic)
        with Load(forebay.bootstrap, topic) as load:
            begins(load)
            for number in range(times):
                password, before = f"{NEW}-{number}", refusals(forebay)
                stage.write("scram", login_line("SCRAM-SHA-512", password))
                renew(forebay)
                wait_until(lambda before=before: refusals(forebay) > before, SECONDS, "the new one is refused")  # type: ignore[misc]
                stage.secured.add_users(stage.cluster, password)
                goes_on(load)
        assert load.failures == []
        assert values(log.read(topic, since, at_least=len(load.sent))) == sorted(load.sent)
        # A login with the old one that was under way when the new one came may end the first row of refusals.
        assert times <= forebay.log.read_text().count("broker refuses Forebay's login") <= 2 * times
        return unharmed(forebay)


def test_another_user_whose_predecessor_is_then_struck_off(stage: Stage) -> None:
    """As API keys are exchanged: both count for a while, and PLAIN forgets the first when the broker starts again."""
    stage.cluster.create_topic("plain", 2)
    line = stage.write("plain", login_line("PLAIN", OLD))
    with stage.forebay("PLAIN", **{"sasl.jaas.config": line}) as forebay, TopicLog(stage.cluster.internal) as log:
        since = log.ends("plain")
        with Load(forebay.bootstrap, "plain") as load:
            begins(load)
            stage.write("plain", login_line("PLAIN", NEW, user="next"))
            renew(forebay)
            goes_on(load)
            assert refusals(forebay) == 0
            stage.cluster.change(plain_users(next=NEW))
            stage.cluster.shut_down(0)
            stage.cluster.start_node(0)
            goes_on(load)
        assert load.failures == []
        # A broker that ends leaves open what it had written last: clients send that again.
        assert set(values(log.read("plain", since, at_least=len(load.sent)))) == set(load.sent)
        assert refusals(forebay) == 0
    struck_off = {**stage.secured.librdkafka_props("PLAIN"), "sasl.password": OLD}
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": stage.cluster.bootstrap, **struck_off}).list_topics(timeout=5)


def test_a_client_secret_that_is_revoked_at_a_token_endpoint_with_a_certificate_of_its_own(stage: Stage) -> None:
    assert any(a_secret_is_revoked(stage, f"oauth-{number}") for number in range(TRIES))


def a_secret_is_revoked(stage: Stage, topic: str) -> bool:
    stage.cluster.create_topic(topic, 2)
    context = server_context(stage.secured.authority.issue("tokens", LOOPBACK))
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    trusted = f'{module} required ssl.truststore.location="{stage.secured.authority.pem}";'
    with unsigned_tokens(TOKEN_S, context) as endpoint:
        endpoint.secrets = {OLD, NEW}
        settings = {
            "sasl.jaas.config": stage.write("oauth", trusted),
            "sasl.oauthbearer.token.endpoint.url": endpoint.url,
            "sasl.oauthbearer.client.credentials.client.id": "forebay",
            "sasl.oauthbearer.client.credentials.client.secret": stage.write("secret", OLD),
        }
        with stage.forebay("OAUTHBEARER", **settings) as forebay, TopicLog(stage.cluster.internal) as log:
            since = log.ends(topic)
            with Load(forebay.bootstrap, topic) as load:
                begins(load)
                stage.write("secret", NEW)
                renew(forebay)
                endpoint.secrets = {NEW}
                goes_on(load)
                assert NEW in endpoint.shown
            assert load.failures == []
            assert values(log.read(topic, since, at_least=len(load.sent))) == sorted(load.sent)
            assert refusals(forebay) == 0
            return unharmed(forebay)
