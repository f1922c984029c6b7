"""docs/recipes.md: each settings file, run as it stands there, before a Kafka that is configured as that place is.

Put in are only addresses, the folder with the secrets, and user and password. Public authorities are not at hand: where
a recipe trusts the system's, SSL_CERT_FILE says to OpenSSL that the system's is the test's.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from forebay_proxy.security import pem
from tests.kit.certificates import Authority
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.paths import ROOT
from tests.kit.ports import LOOPBACK
from tests.kit.sasl import PASSWORD, USER, Secured, login_line

pytestmark = [pytest.mark.integration, pytest.mark.whole]  # test_sasl_upstream.py has what they are made of

FOLDER = "/etc/kafka"
TEXT = (ROOT / "docs" / "recipes.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = {
    section.partition("\n")[0]: {found[1]: found[2] for found in BLOCK.finditer(section)}
    for section in TEXT.split("\n## ")[1:]
}
RECIPES = {place: blocks for place, blocks in BLOCKS.items() if "toml" in blocks}
WITH_LOGIN = [place for place, blocks in RECIPES.items() if "SASL_SSL" in blocks["toml"]]
(WITH_CERTIFICATE,) = set(RECIPES) - set(WITH_LOGIN)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Secured, KafkaCluster]]:
    """It takes logins over TLS only, and knows one user."""
    secured = Secured(tmp_path_factory.mktemp("logins"))
    with KafkaCluster("4.3.1", brokers=1, settings=secured.broker_settings()) as cluster:
        secured.add_users(cluster)
        yield secured, cluster


def forebay(cluster: KafkaCluster, place: str, mounted: Path, env: Mapping[str, str] | None = None) -> ForebayProcess:
    """Started with the recipe for `place`, whose files lie in `mounted`; the command line puts addresses in."""
    recipe = RECIPES[place]["toml"]
    assert tomllib.loads(recipe)["listen"].startswith(f"{LOOPBACK}:")
    config = mounted / "forebay.toml"
    config.write_text(recipe.replace(FOLDER, str(mounted)))
    return ForebayProcess(cluster.bootstrap, cluster.nodes, options=["--config", str(config)], env=env)


def write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def mount(place: str, folder: Path, authority: Authority) -> dict[str, str]:
    """The files that the recipe refers to, and the variables of a host that has the authority in its store."""
    if "properties" in RECIPES[place]:
        text = RECIPES[place]["properties"]
        assert text.count('"USER"') == text.count('"PASSWORD"') == 1
        write(folder / "kafka.properties", text.replace("USER", USER).replace("PASSWORD", PASSWORD))
        return {"SSL_CERT_FILE": str(authority.pem)}
    write(folder / "sasl.jaas.config", login_line("SCRAM-SHA-512"))
    (folder / "ca.crt").write_bytes(authority.pem.read_bytes())
    return {}


def send_and_read(bootstrap: str, topic: str) -> bytes | None:
    """One record there and back, by a client that knows neither TLS nor a login."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 30_000, "linger.ms": 0})
    producer.produce(topic, b"a record", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        reader.subscribe([topic])
        message = reader.poll(60)
    finally:
        reader.close()
    assert message is not None
    assert message.error() is None
    return message.value()


def test_there_is_a_recipe_for_every_place() -> None:
    assert list(RECIPES) == [
        "Strimzi, client certificate",
        "Strimzi, SCRAM",
        "Amazon MSK, SASL/SCRAM",
        "Confluent Cloud",
    ]


@pytest.mark.parametrize("place", WITH_LOGIN)
def test_records_by_a_login(secured: tuple[Secured, KafkaCluster], place: str, tmp_path: Path) -> None:
    kafka, cluster = secured
    topic = re.sub(r"\W+", "-", place)
    cluster.create_topic(topic, 1)
    with forebay(cluster, place, tmp_path, mount(place, tmp_path, kafka.authority)) as started:
        assert send_and_read(started.bootstrap, topic) == b"a record"


def test_records_by_a_client_certificate(tmp_path: Path) -> None:
    """Strimzi has an authority for brokers and one for clients, and gives a user's certificate and key as two files."""
    (tmp_path / "clients").mkdir()
    brokers, clients = Authority(tmp_path), Authority(tmp_path / "clients")
    settings = brokers.broker_settings(brokers.issue("broker", LOOPBACK), client_auth="required")
    settings["listener.name.client.ssl.truststore.location"] = str(clients.pem)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    user = clients.issue("user", "my-user", subject="my-user").read_text()
    write(mounted / "user.crt", pem.certificates("", user))
    write(mounted / "user.key", pem.private_key("", user))
    (mounted / "ca.crt").write_bytes(brokers.pem.read_bytes())
    with KafkaCluster("4.3.1", brokers=1, settings=settings) as cluster:
        cluster.create_topic("certificate", 1)
        with forebay(cluster, WITH_CERTIFICATE, mounted) as started:
            assert send_and_read(started.bootstrap, "certificate") == b"a record"
