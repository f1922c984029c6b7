"""What clients present where their logins end at Forebay, and what stands for it: looked for wherever Forebay speaks.

Logins that succeed and that fail, by each mechanism; files that turn bad, which is told, and must be told without it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from forebay_codecs.sasl import BEARER_REFUSED, bearer, parse_authenticate, plain
from forebay_codecs.scram import ScramClient, salt_password
from forebay_proxy.commands import cli
from tests.integration.test_canary import BROKEN, SECONDS, WORKERS, asked, command_lines, config, wait_for
from tests.kit.forebay import ForebayProcess
from tests.kit.issuer import AUDIENCE, ISSUER, Issuer
from tests.kit.journal import closed_files, lines_of
from tests.kit.kafka import KafkaCluster
from tests.kit.login_wire import Wire, authenticate, handshake
from tests.kit.sasl import MODULES, PASSWORD, USER, Secured, login_line

pytestmark = [pytest.mark.integration, pytest.mark.whole]  # test_canary.py has the secrets of TLS

SCRAM = "SCRAM-SHA-512"
HERS = "canary-hers-1a9"
"""Of alice, by PLAIN and by SCRAM."""
WRONG = "canary-wrong-2b8"
TOPIC = "canary-logins"
FILES = ("users", "credentials.json", "identities.toml", "at-brokers")
"""What Forebay reads; each may turn bad."""


class Stage:
    """A Kafka that wants logins, and files with what Forebay needs to take clients' and to make its own."""

    def __init__(self, folder: Path, issuer: Issuer) -> None:
        self.folder = folder
        self.issuer = issuer
        self.secured = Secured(folder)
        self.cluster = KafkaCluster("4.3.1", brokers=1, settings=self.secured.broker_settings())

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        return str(path)

    def prepare(self) -> None:
        self.secured.add_users(self.cluster)
        self.cluster.create_topic(TOPIC, 2)
        credentials = ("--credentials", str(self.folder / "credentials.json"))
        where = ("--bootstrap-servers", self.cluster.internal, *credentials)
        added = CliRunner().invoke(cli.main, ("users", "add", "alice", "--mechanism", SCRAM, *where), input=f"{HERS}\n")
        assert added.exit_code == 0, added.output
        self.write("users", f"{MODULES['PLAIN']} required user_alice='{HERS}' user_eve='{HERS}';")
        self.write("at-brokers", login_line(SCRAM, PASSWORD, USER))
        self.write(
            "identities.toml",
            f'[identities.own]\n"sasl.mechanism" = "{SCRAM}"\n'
            f'"sasl.jaas.config" = "${{dir:{self.folder}:at-brokers}}"\n'
            '[principals]\n"User:alice" = "own"\n',
        )

    def listener(self) -> dict[str, str]:
        """What Forebay's is told."""
        return {
            "client.authentication": "terminate",
            "sasl.enabled.mechanisms": f"PLAIN,{SCRAM},OAUTHBEARER",
            "plain.sasl.jaas.config": f"${{dir:{self.folder}:users}}",
            "scram.credentials.location": str(self.folder / "credentials.json"),
            "sasl.oauthbearer.jwks.endpoint.url": self.issuer.jwks_url,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "upstream.identity": "mapped",
            "upstream.identities.location": str(self.folder / "identities.toml"),
        }

    def forebay(self, journal: Path, **listener: str) -> ForebayProcess:
        settings = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.secured.authority.pem),
            "workers": str(WORKERS),
            "log.level": "debug",
            "journal.dir": str(journal),
            "journal.ledger": "true",
        }
        return ForebayProcess(
            self.cluster.bootstrap, self.cluster.nodes, settings=settings, sasl={**self.listener(), **listener}
        )

    @property
    def secrets(self) -> list[str]:
        file: dict[str, Any] = json.loads((self.folder / "credentials.json").read_text())
        (entry,) = file["credentials"]
        kept = [file["phantom_key"], entry["salt"], entry["stored_key"], entry["server_key"]]
        return [PASSWORD, HERS, WRONG, BROKEN, *kept]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Issuer() as issuer:
        stage = Stage(tmp_path_factory.mktemp("canary"), issuer)
        with stage.cluster:
            stage.prepare()
            yield stage


def produce(forebay: ForebayProcess, **props: object) -> None:
    """Returns once the records are acknowledged."""
    told = {"bootstrap.servers": forebay.bootstrap, "security.protocol": "SASL_PLAINTEXT", **props}
    producer = Producer(told)
    for number in range(20):
        producer.produce(TOPIC, str(number))
    assert producer.flush(SECONDS) == 0


def is_refused(forebay: ForebayProcess, mechanism: str, *tokens: bytes | Callable[[bytes], bytes]) -> None:
    """A login ends with an error; a token may be made of the answer before it."""
    with Wire(forebay.bootstrap, None) as wire:
        assert wire.say(handshake(1, mechanism)) is not None
        heard = b""
        for token in tokens:
            answer = wire.say(authenticate(token if isinstance(token, bytes) else token(heard)))
            assert answer is not None
            said = parse_authenticate(answer, 1)
            heard = said.auth_bytes
        assert said.error_code == 58


def fail(stage: Stage, forebay: ForebayProcess) -> list[str]:
    """Everything that can be wrong; the tokens that were presented."""
    for user, password in (("alice", WRONG), ("nobody", WRONG), ("eve", HERS), (WRONG, HERS)):
        is_refused(forebay, "PLAIN", plain(user, password))
    for user in ("alice", "nobody"):
        client = ScramClient(SCRAM, user, "nonce")

        def final(heard: bytes, client: ScramClient = client) -> bytes:
            return client.final(salt_password(SCRAM, WRONG, client.challenge(heard)))

        is_refused(forebay, SCRAM, client.first(), final)
    bad = [stage.issuer.token("alice", aud="other"), stage.issuer.token("alice", exp=1)]
    for token in bad:
        is_refused(forebay, "OAUTHBEARER", bearer(token), BEARER_REFUSED)
    return bad


def test_no_secret_of_a_login_is_said_anywhere(stage: Stage, tmp_path: Path) -> None:
    forebay = stage.forebay(tmp_path)
    said: dict[str, str] = {}
    tokens = [stage.issuer.token("alice")]
    with forebay:
        for mechanism in ("PLAIN", SCRAM):
            produce(forebay, **{"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": HERS})
        produce(forebay, **{"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (tokens[0], time.time() + SECONDS)})
        tokens += fail(stage, forebay)
        right = {name: (stage.folder / name).read_text() for name in FILES}
        for texts, told in ((dict.fromkeys(FILES, BROKEN), "secrets cannot be renewed"), (right, "secrets renewed")):
            lines = forebay.log.read_text().count(told)
            for name, text in texts.items():
                stage.write(name, text)
            os.kill(forebay.pid, signal.SIGHUP)
            wait_for(forebay, told, lines + WORKERS, "files")
        for page in ("metrics", "clients", "healthz", "readyz", "api/v1/clients", "api/v1/config"):
            said[page] = asked(forebay, page)
        assert 'forebay_client_logins_total{mechanism="PLAIN",result="refused"} 4' in said["metrics"]
        assert "User:alice" in said["clients"]
        said["command lines"] = command_lines(forebay)
        said["log"] = forebay.log.read_text()
    for words in (("--format", "list"), ("--format", "json"), ("listener.name.sasl_plaintext.plain.sasl.jaas.config",)):
        said[f"config {words}"] = config(forebay, {}, *words)
    said["journal"] = "".join(line.decode() for path in closed_files(tmp_path) for line in lines_of(path))
    assert "User:alice" in said["journal"]
    for place, text in said.items():
        assert [secret for secret in (*stage.secrets, *tokens) if secret in text] == [], place


def test_what_keeps_it_from_starting_is_said_without_secrets(stage: Stage, tmp_path: Path) -> None:
    broken = stage.write("broken", BROKEN)
    for setting, value in (
        ("plain.sasl.jaas.config", f"${{dir:{stage.folder}:broken}}"),
        ("scram.credentials.location", broken),
        ("upstream.identities.location", broken),
    ):
        command = stage.forebay(tmp_path, **{setting: value}).command()
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        said = done.stdout + done.stderr
        assert done.returncode in (1, 2), said
        assert setting in said
        assert "Traceback" not in said, said
        assert [secret for secret in stage.secrets if secret in said] == []
