"""Clients that guess passwords at Forebay, as fast as they are let: neighbours notice little, and nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from time import monotonic

from click.testing import CliRunner

from forebay_proxy.commands import cli
from tests.chaos.bystander import DIRECT, THROUGH, Bystanders, Latency, Post, Way
from tests.chaos.fault import worst
from tests.kit.certificates import Authority
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.memory import resident
from tests.kit.paths import ROOT
from tests.kit.ports import LOOPBACK
from tests.kit.sasl import MODULES

GUESSERS = 48
SECONDS = 10.0 if os.environ.get("WHOLE") else 5.0
TRIES = 3
"""As with other faults it is done again where bystanders waited too long: the machine may have been busy elsewhere."""
MOST_BYTES = 30_000_000
TOPIC = "bystanders"


def credentials(folder: Path, internal: str) -> Path:
    path = folder / "credentials.json"
    where = ("--bootstrap-servers", internal, "--credentials", str(path))
    added = CliRunner().invoke(cli.main, ("users", "add", "alice", *where), input="hers, and long\n")
    assert added.exit_code == 0, added.output
    return path


def line(folder: Path) -> str:
    """A reference to a broker's line of users."""
    path = folder / "users"
    path.touch(mode=0o600)
    path.write_text(f'{MODULES["PLAIN"]} required user_alice="hers, and long";')
    return f"${{dir:{folder}:users}}"


def test_who_guesses_costs_neighbours_little_and_leaves_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with KafkaCluster("4.3.1", brokers=1) as cluster:
        tls = {
            "ssl.keystore.location": str(authority.issue("forebay", LOOPBACK, "localhost")),
            "client.authentication": "terminate",
            "upstream.identity": "service",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "plain.sasl.jaas.config": line(tmp_path),
            "scram.credentials.location": str(credentials(tmp_path, cluster.internal)),
        }
        cluster.create_topic(TOPIC, 2)
        with ForebayProcess(cluster.bootstrap, cluster.nodes, tls=tls, protocols=("PLAINTEXT", "SASL_SSL")) as forebay:
            ports: dict[Way, int] = {DIRECT: int(cluster.bootstrap.rpartition(":")[2]), THROUGH: forebay.node_port(0)}
            posts = [Post(way, 0, ports[way], TOPIC, partition) for way in ports for partition in range(2)]
            before = resident(forebay.pid)
            refused = 0
            for _ in range(TRIES):
                more, direct, through = _guessed(posts, forebay.tls_bootstrap, authority.pem)
                refused += more
                print(f"{more} guesses; {direct} {through}")
                if worst(direct, through) and not through.errors:
                    break
            counted = sum(
                number
                for name, number in forebay.metrics().items()
                if name.startswith("forebay_client_logins_total") and 'result="refused"' in name
            )
            took = resident(forebay.pid) - before
            text = forebay.log.read_text()
    print(f"{took / 1e6:.1f} MB")
    assert more > GUESSERS, "they were many"
    assert counted >= refused
    assert worst(direct, through)
    assert through.errors == 0
    assert took < MOST_BYTES
    assert "Traceback" not in text
    assert "a guess" not in text


def _guessed(posts: Sequence[Post], bootstrap: str, authority: Path) -> tuple[int, Latency, Latency]:
    """Some seconds of it: how many guesses were refused, and what bystanders waited, directly and through Forebay."""
    command = [sys.executable, "-m", "tests.chaos.guesser", bootstrap, str(authority), str(GUESSERS)]
    with Bystanders(posts) as bystanders:
        guessing = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert guessing.stdout is not None
            assert guessing.stdout.readline(), "nobody was refused"
            begun = monotonic()
            Event().wait(SECONDS)  # that is how long it lasts
            ended = monotonic()
            said, _ = guessing.communicate(timeout=60)
        finally:
            guessing.kill()
        waits = bystanders.stop()
    direct, through = (waits.latency(way, {0}, begun, ended) for way in (DIRECT, THROUGH))
    return int(said), direct, through
