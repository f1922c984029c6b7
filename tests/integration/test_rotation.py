"""Certificates that change under load, toward clients and toward brokers: no handshake fails, and no record is lost.

A signal says that files have changed, as an operator does, so that a thousand changes need no thousand looks.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay_proxy.security import pem
from tests.integration.load import Load, values
from tests.kit.certificates import Authority
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

KINDS = ("leaf", "authority", "wrong key", "half", "brokers' authorities", "half of them")
SECONDS = 60


class Stage:
    """Kafka with TLS; two authorities, of which everybody trusts both, and files of Forebay's that change."""

    def __init__(self, folder: Path) -> None:
        self.authorities = []
        for name in ("one", "other"):
            (folder / name).mkdir()
            self.authorities.append(Authority(folder / name))
        self.both = folder / "both.pem"
        self.trusted = folder / "brokers-ca.pem"
        self.own = folder / "forebay.pem"
        self._certificates = [authority.pem.read_text() for authority in self.authorities]
        self.both.write_text("".join(self._certificates))
        broker = self.authorities[0].issue("broker", LOOPBACK)
        self.cluster = KafkaCluster("4.3.1", brokers=1, settings=self.authorities[0].broker_settings(broker))

    def reset(self) -> None:
        self.trust(self._certificates)
        self.present(self.issue(0))

    def issue(self, authority: int) -> str:
        return self.authorities[authority].issue("next", LOOPBACK).read_text()

    def present(self, text: str) -> None:
        """In one move, as who takes care does."""
        aside = self.own.with_suffix(".next")
        aside.touch(mode=0o600)
        aside.write_text(text)
        os.replace(aside, self.own)

    def trust(self, certificates: list[str]) -> None:
        self.trusted.write_text("".join(certificates))

    def change(self, kind: str) -> tuple[str, str]:
        """Change a file; which side is to make it anew, and with which outcome."""
        rng = random.Random(kind)
        if kind in ("leaf", "authority"):
            if kind == "authority":
                self.authorities.reverse()
            self.present(self.issue(0))
            return "client", "renewed"
        if kind == "wrong key":
            self.present(pem.certificates("", self.issue(0)) + pem.private_key("", self.issue(1)))
            return "client", "failed"
        if kind == "half":
            text = self.issue(0)
            self.own.write_text(text[: rng.randrange(len(text) // 4, len(text) * 3 // 4)])
            return "client", "failed"
        self._certificates.reverse()
        if kind == "brokers' authorities":
            self.trust(self._certificates)
            return "upstream", "renewed"
        self.trusted.write_text("".join(self._certificates)[:-100])
        return "upstream", "failed"

    def forebay(self, workers: int = 1) -> ForebayProcess:
        settings = {"security.protocol": "SSL", "ssl.truststore.location": str(self.trusted), "workers": str(workers)}
        tls = {"ssl.keystore.location": str(self.own)}
        return ForebayProcess(self.cluster.bootstrap, self.cluster.nodes, settings=settings, tls=tls)

    def leaf(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(pem.certificates("", self.own.read_text()).partition("-----END")[0] + END)


END = "-----END CERTIFICATE-----\n"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("rotation"))
    with stage.cluster:
        yield stage


def shown(forebay: ForebayProcess, context: ssl.SSLContext) -> bytes:
    """The certificate of a new connection."""
    with (
        socket.create_connection((LOOPBACK, forebay.tls_port), SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=LOOPBACK) as secured,
    ):
        found = secured.getpeercert(binary_form=True)
        assert found is not None
        return found


class TlsLoad(Load):
    """And handshakes without end."""

    def __init__(self, stage: Stage, forebay: ForebayProcess, topic: str) -> None:
        props = {"security.protocol": "SSL", "ssl.ca.location": str(stage.both)}
        super().__init__(forebay.tls_bootstrap, topic, props, [self._shake])
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.load_verify_locations(stage.both)
        self.handshakes = 0
        self._forebay = forebay

    def _shake(self) -> None:
        shown(self._forebay, self.context)
        self.handshakes += 1


def reloads(forebay: ForebayProcess, side: str, outcome: str) -> float:
    return forebay.metrics()[f'forebay_security_reloads_total{{outcome="{outcome}",side="{side}"}}']


def rotate(stage: Stage, forebay: ForebayProcess, load: TlsLoad, kind: str, workers: int) -> None:
    before = shown(forebay, load.context)
    sides = {(side, outcome): reloads(forebay, side, outcome) for side, outcome in OUTCOMES}
    told = stage.change(kind)
    os.kill(forebay.pid, signal.SIGHUP)
    wait_until(lambda: reloads(forebay, *told) >= sides[told] + workers, SECONDS, f"{kind}: {told[1]}")
    now = shown(forebay, load.context)
    if told == ("client", "renewed"):
        assert now == stage.leaf(), kind
    else:
        assert now == before, kind


OUTCOMES = [(side, outcome) for side in ("client", "upstream") for outcome in ("renewed", "failed")]


@pytest.mark.parametrize(
    ("times", "workers"), [(6, 2), pytest.param(1000, 1, marks=(pytest.mark.whole, pytest.mark.timeout(3600)))]
)
def test_nothing_is_noticed_of_certificates_that_change(stage: Stage, times: int, workers: int) -> None:
    topic = f"rotation-{times}"
    stage.cluster.create_topic(topic, 2)
    stage.reset()
    with stage.forebay(workers) as forebay, TopicLog(stage.cluster.internal) as log:
        since = log.ends(topic)
        with TlsLoad(stage, forebay, topic) as load:
            for number in range(times):
                rotate(stage, forebay, load, KINDS[number % len(KINDS)], workers)
                assert load.failures == []
        assert load.failures == []
        assert load.handshakes > times
        assert values(log.read(topic, since, at_least=len(load.sent))) == sorted(load.sent)
        metrics = forebay.metrics()
        assert metrics['forebay_tls_handshakes_total{result="failed"}'] == 0
        for kind, side in (("connect", "upstream"), ("connection_lost", "upstream"), ("connection_lost", "client")):
            assert metrics[f'forebay_errors_total{{kind="{kind}",side="{side}"}}'] == 0
        text = forebay.log.read_text()
        assert "PRIVATE KEY" not in text
        assert "Traceback" not in text
        assert str(stage.own) in text  # a file that could not be used is named
