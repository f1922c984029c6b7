"""The Dockerfile, as far as it can be tried without Docker: what it copies builds, and its health check checks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY
from tests.kit.certificates import Authority, server_context
from tests.kit.paths import ROOT

DOCKERFILE = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")


def copied() -> list[tuple[list[str], str]]:
    """(sources, destination) of each COPY from the project."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return [(words[:-1], words[-1]) for words in (line.split() for line in lines)]


def test_a_container_is_given_longer_than_the_drain() -> None:
    """By default Docker kills it after ten seconds."""
    (command,) = re.findall(r"^# Run: (docker run .+)$", DOCKERFILE, re.MULTILINE)
    (patience,) = re.findall(r" --stop-timeout (\d+) ", command)
    settings = tomllib.loads((DEPLOY / "forebay.toml").read_text())
    assert int(patience) * 1000 > settings["shutdown.timeout.ms"]


def test_what_it_copies_is_enough_to_build(tmp_path: Path) -> None:
    source, wheels = tmp_path / "src", tmp_path / "wheels"
    for names, destination in copied():
        for name in names:
            here = ROOT / name
            if here.is_dir():
                shutil.copytree(here, source / destination, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (source / destination).mkdir(parents=True, exist_ok=True)
                shutil.copy(here, source / destination)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        f"-w{wheels}",
        str(source),
    ]
    answer = subprocess.run(
        command, env=os.environ | {"FOREBAY_NO_COMPILE": "1"}, capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, answer.stderr
    (wheel,) = wheels.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")


def test_docker_is_sent_what_it_copies() -> None:
    """All is ignored but what is named with an exclamation mark."""
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignore.index("*") < min(number for number, line in enumerate(ignore) if line.startswith("!"))
    sent = {line[1:] for line in ignore if line.startswith("!")}
    assert sent == {name for names, _ in copied() for name in names}


def test_it_runs_as_somebody_without_rights() -> None:
    last_stage = DOCKERFILE.rpartition("\nFROM ")[2]
    (user,) = re.findall(r"^USER (\d+):\d+$", last_stage, re.MULTILINE)
    assert int(user) != 0


@contextmanager
def admin_that_answers(status: int, keystore: Path | None = None) -> Iterator[int]:
    """A server on a free port whose /healthz answers with `status`; everything else is 404. With TLS by `keystore`."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        if keystore is not None:
            context = server_context(keystore)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def health_check(port: int) -> int:
    """The exit status of the image's health check, with `port` as the admin port."""
    (words,) = re.findall(r"HEALTHCHECK .* CMD (\[.+\])", DOCKERFILE)
    assert re.search(r"FOREBAY_ADMIN=127\.0\.0\.1:\d+", DOCKERFILE)
    command = [sys.executable, *json.loads(words)[1:]]
    environment = os.environ | {"FOREBAY_ADMIN": f"127.0.0.1:{port}"}
    return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, timeout=60).returncode


@pytest.mark.parametrize(("status", "exit_status"), [(200, 0), (503, 1)])
@pytest.mark.parametrize("tls", [False, True])
def test_the_health_check_follows_healthz(status: int, exit_status: int, tls: bool, tmp_path: Path) -> None:
    keystore = Authority(tmp_path).issue("admin", "forebay.example.org") if tls else None
    with admin_that_answers(status, keystore) as port:
        assert health_check(port) == exit_status


def test_the_health_check_fails_where_nothing_listens() -> None:
    with admin_that_answers(200) as port:
        pass
    assert health_check(port) == 1
