"""docs/rollout.md, as somebody new follows it: from an empty folder, before the brokers of deploy/compose, with old
producers that send all the time.

Settings and commands are the document's own, in its order; addresses are changed to those that are free here.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.chaos.load import Carriers, Clients, Loader, patient
from tests.chaos.reconcile import reconcile
from tests.chaos.tally import Tally
from tests.kit.browser import Browser
from tests.kit.compose import compose_cluster
from tests.kit.paths import JARS, ROOT
from tests.kit.ports import LOOPBACK, accepts, free_port, free_run
from tests.kit.server import Server
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.whole, pytest.mark.timeout(3600)]

DOCUMENT = ROOT / "docs" / "rollout.md"
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOPICS = ("orders", "clicks")
PARTITIONS = 6
SOON = 120.0
JOB_SECONDS = 900.0
CLIENTS_SECONDS = 1900.0
SOME = 50
"""Acknowledgements of each client: it flows."""


def blocks(heading: str) -> list[str]:
    """What stands in fences under a heading."""
    _, _, rest = DOCUMENT.read_text().partition(f"\n## {heading}\n")
    return BLOCK.findall(rest.partition("\n## ")[0])


class Newcomer:
    """Somebody at a terminal in an empty folder."""

    def __init__(self, folder: Path, addresses: Mapping[str, str]) -> None:
        self.folder = folder
        self._addresses = addresses
        self._settings: dict[str, Any] = {}
        programs = folder.parent / "bin"
        programs.mkdir()
        for name, module in (("forebay", "forebay_proxy.commands.cli"), ("forebay-pipeline", "forebay_pipeline.cli")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m {module} "$@"\n')
            program.chmod(0o755)
        # A file of the journal can be read when it is closed: here in seconds instead of minutes.
        self._env = {"PATH": f"{programs}:{os.environ['PATH']}", "FOREBAY_JOURNAL_ROLL_MS": "15000"}

    def _here(self, text: str) -> str:
        for there, here in self._addresses.items():
            text = text.replace(there, here)
        return text

    def change(self, text: str) -> None:
        """Puts settings into forebay.toml, in the place of those that have the same names."""
        self._settings |= tomllib.loads(self._here(text))
        lines = (f'"{name}" = {msgspec.json.encode(value).decode()}' for name, value in self._settings.items())
        (self.folder / "forebay.toml").write_text("\n".join([*lines, ""]))

    def type(self, text: str, seconds: float = SOON) -> str:
        """Commands, one after the other; what they print. They exit with 0."""
        printed = ""
        for line in self._here(text).splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[0] == "forebay-pipeline":
                words += ["--jars", str(JARS / "spark-kafka"), "--master", "local[2]"]
            done = subprocess.run(
                words, cwd=self.folder, env=os.environ | self._env, capture_output=True, text=True, timeout=seconds
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            printed += done.stdout
        return printed

    def session(self, text: str) -> None:
        """Commands with what they print, as the document shows it."""
        typed = re.split(r"^(?=\$ )", text, flags=re.MULTILINE)[1:]
        for command, _, said in (each.partition("\n") for each in typed):
            assert self.type(command) == self._here(said)

    @contextmanager
    def running(self, command: str) -> Iterator[Server]:
        words = shlex.split(self._here(command))
        log = self.folder.parent / "forebay.log"
        program = self.folder.parent / "bin" / words[0]
        server = Server("forebay", ["env", "-C", str(self.folder), str(program), *words[1:]], log, self._env)
        try:
            yield server
        finally:
            server.kill()


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return msgspec.json.decode(answer.read())


def sentence(url: str) -> str:
    """What the page says first."""
    with Browser() as browser:
        page = browser.visit(url, width=1400)
        page.until("document.querySelector('.sentence')?.textContent.includes('records/s in')")
        said: str = page.ask("document.querySelector('main').innerText")
    return said


def old_producers(clients: Clients, stage: str) -> list[tuple[Loader, str]]:
    """Whom nobody will upgrade, each with its topic. Every second record has a key."""
    java_1, java_2, _, librdkafka, _ = clients.loaders
    pairs = ((java_1, "orders"), (librdkafka, "orders"), (java_2, "clicks"))
    return [(replace(loader, name=f"{loader.name}-{stage}"), topic) for loader, topic in pairs]


def send(bootstrap: str, producers: Sequence[tuple[Loader, str]]) -> tuple[Carriers, list[Tally]]:
    tallies = [loader.tally(topic) for loader, topic in producers]
    accounts = [(loader, tally) for (loader, _), tally in zip(producers, tallies, strict=True)]
    return Carriers(bootstrap, accounts, CLIENTS_SECONDS), tallies


def test_every_step_of_the_how_to(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    port = free_run(6)
    bootstrap, admin = f"{LOOPBACK}:{port}", f"{LOOPBACK}:{free_port()}"
    url = f"http://{admin}"
    first, start, who, predict, exclude = blocks("1. Observe")
    move, reload_it, proof = blocks("2. One topic")
    more, reload_more, everything, reload_all, later = blocks("3. More topics, then all")
    one_back, reload_one, all_back, reload_back = blocks("Back")

    shown = re.search(r"--from (\S+)", proof)
    assert shown is not None

    def closed() -> int:
        return len(list(folder.glob("journal/dt=*/hour=*/*")))

    def by_topic(field: str) -> dict[str, int]:
        return {row["topic"]: row[field] for row in get(f"{url}/api/v1/topics")["rows"]}

    def grows(field: str, since: dict[str, int]) -> bool:
        return all(count > since[topic] for topic, count in by_topic(field).items())

    def records_pass() -> None:
        passed = by_topic("untouched_total")
        wait_until(lambda: grows("untouched_total", passed), SOON, "records pass")

    def treated(topic: str, client: str = "shop") -> str:
        return newcomer.type(f"forebay explain --topic {topic} --client-id {client} --url http://127.0.0.1:9091")

    with compose_cluster() as (cluster, toxiproxy), Clients(patient) as clients, TopicLog(cluster.internal) as log:
        for topic in TOPICS:
            cluster.create_topic(topic, PARTITIONS)
        toxiproxy.add_latency("kafka-1", 20)
        brokers = {f"kafka-{node}:9092": f"{LOOPBACK}:{cluster.advertised[node]}" for node in cluster.nodes}
        newcomer = Newcomer(folder, brokers | {"0.0.0.0:19092": bootstrap, "127.0.0.1:9091": admin})
        direct, tallies = send(cluster.bootstrap, old_producers(clients, "before"))
        with direct:
            direct.flows(SOME, SOON)
            newcomer.change(first)
            check, run = start.splitlines()
            assert "Forebay would serve" in newcomer.type(check)
            with newcomer.running(run) as forebay:
                forebay.wait_until(lambda: accepts(port), SOON)
                direct.end()
                through, more_tallies = send(bootstrap, old_producers(clients, "through"))
                tallies += more_tallies
                with through:
                    # 1
                    through.flows(SOME, SOON)
                    assert "apache-kafka-java 2.8.2" in newcomer.type(who)
                    wait_until(lambda: by_topic("untouched_total").keys() >= set(TOPICS), SOON, "topics are seen")
                    assert set(by_topic("records_total").values()) == {0}
                    assert "would" in sentence(url)
                    wait_until(lambda: closed() > 0, SOON, "a closed file of the journal")
                    assert "requests" in newcomer.type(predict, JOB_SECONDS)

                    # 2
                    newcomer.change(move)
                    newcomer.session(reload_it)
                    since, before = datetime.now(UTC) + timedelta(seconds=1), closed()  # in whole ones
                    wait_until(lambda: by_topic("records_total")["orders"] > 0, SOON, "orders are merged")
                    through.flows(SOME, SOON)
                    assert by_topic("records_total")["clicks"] == 0
                    wait_until(lambda: closed() > before, SOON, "another closed file of the journal")
                    proof = f"{proof.strip()} --settle 0"  # its files are closed, and nobody else writes any
                    said = newcomer.type(proof.replace(shown[1], f"{since:%Y-%m-%dT%H:%M:%SZ}"), JOB_SECONDS)
                    assert "Clean" in said

                    # 3
                    newcomer.change(more)
                    newcomer.type(reload_more)
                    wait_until(lambda: by_topic("records_total")["clicks"] > 0, SOON, "clicks are merged")
                    newcomer.change(everything)
                    newcomer.type(reload_all)
                    assert "may touch them" in treated("anything")
                    newcomer.change(later)
                    newcomer.change(exclude)
                    newcomer.type(reload_all)
                    assert "(observed)" in treated("invoices-2026")
                    assert "(observed)" in treated("orders", "till-7")
                    assert "client.ids.exclude has billing-*" in treated("orders", "billing-1")
                    through.flows(SOME, SOON)

                    # Back
                    newcomer.change(one_back)
                    newcomer.type(reload_one)
                    assert "(observed)" in treated("orders")
                    newcomer.change(all_back)
                    newcomer.type(reload_back)
                    assert "(observed)" in treated("clicks")
                    through.flows(SOME, SOON)
                    records_pass()  # what is shown may be some seconds old
                    touched = by_topic("records_total")
                    records_pass()
                    assert by_topic("records_total") == touched
                    through.end()
                after, last_tallies = send(cluster.bootstrap, old_producers(clients, "after"))
                tallies += last_tallies
                with after:
                    after.flows(SOME, SOON)
                    assert forebay.terminate() == 0
                    after.flows(SOME, SOON)
                    after.end()
        found = {topic: log.read(topic, dict.fromkeys(range(PARTITIONS), 0)) for topic in TOPICS}
        assert "Traceback" not in forebay.log.read_text()
    for topic in TOPICS:
        findings = reconcile([tally for tally in tallies if tally.spec.topic == topic], found[topic])
        findings.check(topic)
        assert findings.refused == findings.unknown == 0
