"""Secrets are planted wherever one can be set, and then looked for wherever Forebay says something.

Working and failing: what is refused, and files that turn bad, are told, and must be told without them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer

from forebay_proxy.security import pem
from tests.kit.children import children
from tests.kit.forebay import ForebayProcess
from tests.kit.journal import closed_files, lines_of
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK
from tests.kit.sasl import PASSWORD, Secured
from tests.kit.unsigned_tokens import unsigned_tokens
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

KEY_PASSWORD = "canary-key-password-5d1"
CLIENT_SECRET = "canary-client-secret-9ab"
TOKEN = "canary-bearer-token-77c"
BROKEN = "canary-broken-login-31f"
SECONDS = 60
WORKERS = 2


class Stage:
    """A Kafka that wants logins; secrets in files, and in variables as text."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secured = Secured(folder)
        self.cluster = KafkaCluster("4.3.1", brokers=1, settings=self.secured.broker_settings())
        own = self.secured.authority.issue("own", "forebay.example").read_text()
        self.key = pem.private_key("", own)
        self.keystore = self.secured.authority.issue("listener", LOOPBACK, password=KEY_PASSWORD)
        for name, secret in (("key-password", KEY_PASSWORD), ("client-secret", CLIENT_SECRET), ("token", TOKEN)):
            self.write(name, secret)
        self.env = {
            "FOREBAY_SSL_KEYSTORE_KEY": self.key,
            "FOREBAY_SSL_KEYSTORE_CERTIFICATE_CHAIN": pem.certificates("", own),
        }
        self.tls = {"ssl.keystore.location": str(self.keystore), "ssl.key.password": f"${{dir:{folder}:key-password}}"}

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)

    def settings(self, mechanism: str, token_url: str, journal: Path) -> dict[str, str]:
        return {
            **self.secured.forebay_settings(mechanism),
            "sasl.oauthbearer.token.endpoint.url": token_url,
            "sasl.oauthbearer.client.credentials.client.id": "forebay",
            "sasl.oauthbearer.client.credentials.client.secret": f"${{dir:{self.folder}:client-secret}}",
            "admin.bearer.token": f"${{dir:{self.folder}:token}}",
            "workers": str(WORKERS),
            "log.level": "debug",
            "journal.dir": str(journal),
            "journal.ledger": "true",
        }

    @property
    def secrets(self) -> list[str]:
        """Of a key, any line of it."""
        return [PASSWORD, KEY_PASSWORD, CLIENT_SECRET, TOKEN, BROKEN, *self.key.splitlines()[1:-1]]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("canary"))
    with stage.cluster:
        stage.secured.add_users(stage.cluster)
        stage.cluster.create_topic("canary", 2)
        yield stage


def asked(forebay: ForebayProcess, page: str, token: str = "") -> str:
    request = urllib.request.Request(f"{forebay.admin_url}/{page}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            body: bytes = answer.read()
            return f"{answer.headers} {body.decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.headers} {error.read().decode()}"


def command_lines(forebay: ForebayProcess) -> str:
    workers = children(forebay.pid)
    assert len(workers) == WORKERS
    return "".join(Path(f"/proc/{process}/cmdline").read_text() for process in (forebay.pid, *workers))


def produce(bootstrap: str, props: Mapping[str, str | bool]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **props})
    for number in range(50):
        producer.produce("canary", str(number))
    assert producer.flush(SECONDS) == 0


def config(forebay: ForebayProcess, env: Mapping[str, str], *words: str) -> str:
    """What `forebay config` prints of the settings that `forebay run` has."""
    command = forebay.command()
    at = command.index("run")
    command[at : at + 1] = ["config", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, **env}, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", pytest.param("OAUTHBEARER", marks=pytest.mark.whole)])
def test_no_secret_is_said_anywhere(stage: Stage, mechanism: str, tmp_path: Path) -> None:
    with unsigned_tokens(3600) as endpoint:
        settings = stage.settings(mechanism, endpoint.url, tmp_path)
        if mechanism == "OAUTHBEARER":
            del settings["sasl.jaas.config"]
        forebay = ForebayProcess(
            stage.cluster.bootstrap, stage.cluster.nodes, settings=settings, env=stage.env, tls=stage.tls
        )
        said: dict[str, str] = {}
        with forebay:
            produce(forebay.bootstrap, {})
            trusting = {"security.protocol": "SSL", "ssl.ca.location": str(stage.secured.authority.pem)}
            produce(forebay.tls_bootstrap, {**trusting, "enable.idempotence": True})
            break_files(stage, forebay, mechanism)
            for page in ("metrics", "clients", "healthz", "readyz", "other"):
                for token in (TOKEN, TOKEN + "x", ""):
                    said[f"{page} {token}"] = asked(forebay, page, token)
            assert "forebay_records_total" in said[f"metrics {TOKEN}"]
            assert said["metrics "].startswith("401")
            said["command lines"] = command_lines(forebay)
            said["log"] = forebay.log.read_text()
        for words in (("--format", "list"), ("--format", "table"), ("--format", "json"), *((name,) for name in SHOWN)):
            said[f"config {words}"] = config(forebay, stage.env, *words)
            assert "--config" in said[f"config {words}"] or "[hidden]" in said[f"config {words}"], words
        said["journal"] = "".join(line.decode() for path in closed_files(tmp_path) for line in lines_of(path))
        assert len(said["journal"]) > 100
        secrets = [*stage.secrets, *endpoint.given]
        assert bool(endpoint.given) is (mechanism == "OAUTHBEARER")
        for place, text in said.items():
            assert [secret for secret in secrets if secret in text] == [], place


SHOWN = ("ssl.keystore.key", "admin.bearer.token", "listener.name.ssl.ssl.key.password")


def break_files(stage: Stage, forebay: ForebayProcess, mechanism: str) -> None:
    """Wrong contents where secrets stand: each is told, and put right again."""
    names = ["key-password"] if mechanism == "OAUTHBEARER" else ["key-password", f"{mechanism}-{len(PASSWORD)}"]
    for name in names:
        path = stage.folder / name
        right = path.read_text()
        for text, told in ((BROKEN, "secrets cannot be renewed"), (right, "secrets renewed")):
            lines = forebay.log.read_text().count(told)
            path.write_text(text)
            os.kill(forebay.pid, signal.SIGHUP)
            wait_for(forebay, told, lines + WORKERS, name)


def wait_for(forebay: ForebayProcess, told: str, lines: int, what: str) -> None:
    wait_until(lambda: forebay.log.read_text().count(told) >= lines, SECONDS, f"{what}: {told!r}")


@pytest.mark.whole
def test_what_keeps_it_from_starting_is_said_without_secrets(stage: Stage, tmp_path: Path) -> None:
    right = stage.settings("SCRAM-SHA-512", "", tmp_path)
    broken = tmp_path / "broken"
    broken.touch(mode=0o600)
    broken.write_text(BROKEN)
    reference = f"${{dir:{tmp_path}:broken}}"
    for settings, tls, env in (
        ({**right, "sasl.jaas.config": reference}, stage.tls, stage.env),
        (right, {**stage.tls, "ssl.key.password": reference}, stage.env),
        (right, stage.tls, {**stage.env, "FOREBAY_SSL_KEYSTORE_KEY": BROKEN}),
        (right, stage.tls, {**stage.env, "FOREBAY_SSL_KEYSTORE_CERTIFICATE_CHAIN": stage.key}),
        ({**right, "admin.bearer.token": TOKEN}, stage.tls, stage.env),
        ({**right, "admin.bearer.tokens": reference}, stage.tls, stage.env),
    ):
        forebay = ForebayProcess(stage.cluster.bootstrap, stage.cluster.nodes, settings=settings, env=env, tls=tls)
        done = subprocess.run(
            forebay.command(), capture_output=True, text=True, timeout=SECONDS, env={**os.environ, **env}, check=False
        )
        said = done.stdout + done.stderr
        assert done.returncode in (1, 2), said
        assert "Traceback" not in said, said
        assert [secret for secret in stage.secrets if secret in said] == []
