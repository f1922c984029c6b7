"""`forebay users` before a real Kafka: what is in the file is what the brokers have, and clients log in with it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.conn import ScramAuthenticator  # type: ignore[import-untyped]
from click.testing import CliRunner
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from scramp import ScramMechanism

from forebay_codecs.sasl import parse_authenticate
from forebay_codecs.scram import HASHES, ScramClient
from forebay_proxy.commands import cli
from forebay_proxy.security.credentials_file import read
from tests.kit.kafka import KafkaCluster
from tests.kit.login_wire import Wire, authenticate, handshake
from tests.kit.sasl import PASSWORD, USER, Secured, login_line
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

MECHANISMS = list(HASHES)
SECONDS = 30


class Stage:
    def __init__(self, secured: Secured, cluster: KafkaCluster, folder: Path) -> None:
        self.secured = secured
        self.cluster = cluster
        self.file = str(folder / "credentials.json")
        self.admin = folder / "admin.properties"
        self.admin.touch(mode=0o600)
        lines = (
            "security.protocol=SASL_SSL",
            f"ssl.truststore.location={secured.authority.pem}",
            "sasl.mechanism=PLAIN",
            f"sasl.jaas.config={login_line('PLAIN')}",
        )
        self.admin.write_text("\n".join(lines))

    def users(self, *arguments: str, password: str = "") -> str:
        where = ("--bootstrap-servers", self.cluster.bootstrap, "--command-config", str(self.admin))
        words = ("users", *arguments, *where, "--credentials", self.file)
        result = CliRunner().invoke(cli.main, words, input=f"{password}\n")
        assert result.exit_code == 0, result.output
        return result.output

    def logs_in(self, user: str, password: str, mechanism: str) -> bool:
        """Whether librdkafka does, at the broker itself."""
        props = self.secured.librdkafka_props(mechanism) | {"sasl.username": user, "sasl.password": password}
        try:
            AdminClient({"bootstrap.servers": self.cluster.bootstrap, **props}).list_topics(timeout=2)
        except KafkaException:
            return False
        return True

    def challenge(self, user: str, mechanism: str) -> tuple[bytes, int]:
        """Salt and iterations, as the broker tells whoever begins to log in."""
        client = ScramClient(mechanism, user, "nonce-of-a-test")
        with Wire(self.cluster.bootstrap, self.secured.authority.client_context()) as wire:
            assert wire.say(handshake(1, mechanism)) is not None
            answer = wire.say(authenticate(client.first()))
        assert answer is not None
        return client.challenge(parse_authenticate(answer, 1).auth_bytes)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("users")
    secured = Secured(folder)
    with KafkaCluster("4.3.1", brokers=1, settings=secured.broker_settings()) as cluster:
        secured.add_users(cluster)
        yield Stage(secured, cluster, folder)


def verified(path: str, user: str, mechanism: str, password: str) -> None:
    """A client that others wrote logs in at a server that others wrote, which has what is in the file."""
    kept = read("s", path)[user, mechanism]
    asked: list[str] = []

    def of(name: str) -> object:
        asked.append(name)
        return kept.salt, kept.stored_key, kept.server_key, kept.iterations

    server = ScramMechanism(mechanism).make_server(of)
    client = ScramAuthenticator(
        loop=None, sasl_plain_password=password, sasl_plain_username=user, sasl_mechanism=mechanism
    ).authenticator_scram()
    first, _ = next(client)
    server.set_client_first(first.decode())
    final, _ = client.send(server.get_server_first().encode())
    server.set_client_final(final.decode())
    with pytest.raises(StopIteration):  # it has verified the server's signature, too
        client.send(server.get_server_final().encode())
    assert asked == [user]


def test_a_user_logs_in_at_the_broker_and_by_what_is_in_the_file(stage: Stage) -> None:
    user, password = "alice", "p, =ä\"'\\"
    stage.users("add", user, "--iterations", "8192", password=password)
    kept = read("s", stage.file)
    for mechanism in MECHANISMS:
        wait_until(lambda mechanism=mechanism: stage.logs_in(user, password, mechanism), SECONDS, mechanism)  # type: ignore[misc]
        assert stage.challenge(user, mechanism) == (kept[user, mechanism].salt, 8192)
        verified(stage.file, user, mechanism, password)


def test_another_password_counts_on_both_sides_and_the_one_before_on_none(stage: Stage) -> None:
    user, old, new = "bob", "old-1", "new-2"
    for password in (old, new):
        stage.users("add", user, "--mechanism", "SCRAM-SHA-512", password=password)
    wait_until(lambda: stage.logs_in(user, new, "SCRAM-SHA-512"), SECONDS, "the new password")
    assert not stage.logs_in(user, old, "SCRAM-SHA-512")
    verified(stage.file, user, "SCRAM-SHA-512", new)
    with pytest.raises(Exception, match=r"(?i)proof"):
        verified(stage.file, user, "SCRAM-SHA-512", old)


def test_users_of_brokers_alone_are_told_apart_and_the_deleted_are_gone(stage: Stage) -> None:
    stage.users("add", "carol", password="secret-3")
    known = stage.users("list")
    ends = {tuple(line.split(maxsplit=3)[::3]) for line in known.splitlines()[2:] if line.strip("─ ")}
    assert {("carol", "both"), (USER, "brokers only")} <= ends
    stage.users("delete", "carol", "--mechanism", "SCRAM-SHA-256")
    stage.users("delete", "carol")
    assert "carol" not in stage.users("list")
    assert not {key for key in read("s", stage.file) if key[0] == "carol"}
    assert not stage.logs_in("carol", "secret-3", "SCRAM-SHA-512")


def test_nothing_that_is_secret_is_in_the_file(stage: Stage) -> None:
    stage.users("add", "dave", password="canary-5c2")
    text = Path(stage.file).read_bytes()
    assert b"dave" in text
    assert b"canary" not in text
    assert base64.b64encode(b"canary-5c2").rstrip(b"=") not in text
    assert PASSWORD.encode() not in text
