"""What systemd would hear, on a socket like its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay_proxy.demo.mock_cluster import MockCluster
from forebay_proxy.process.service_manager import SOCKET, notify
from tests.kit.forebay import ForebayProcess

SECONDS = 30


class Listening:
    def __init__(self, name: str) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        self._socket.settimeout(SECONDS)

    def hears(self) -> list[str]:
        """The next message's lines."""
        return self._socket.recv(4096).decode().split("\n")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["a path", "an abstract name"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listening]:
    name = str(tmp_path / "notify") if request.param == "a path" else f"@{tmp_path}"
    listening = Listening(name)
    yield listening
    listening.close()


def test_it_hears_what_it_is_told(systemd: Listening) -> None:
    notify("READY=1\nSTATUS=serving", {SOCKET: systemd.name})
    assert systemd.hears() == ["READY=1", "STATUS=serving"]


@pytest.mark.parametrize("environ", [{}, {SOCKET: ""}, {SOCKET: "/nowhere/at/all"}])
def test_where_nobody_listens_nothing_happens(environ: dict[str, str]) -> None:
    notify("READY=1", environ)


@pytest.mark.parametrize("workers", [1, 2])
def test_forebay_says_when_it_serves_and_when_it_leaves(systemd: Listening, workers: int) -> None:
    with MockCluster(1) as cluster:
        env = {SOCKET: systemd.name}
        forebay = ForebayProcess(cluster.bootstrap, [1], options=["--workers", str(workers)], env=env)
        with forebay:
            assert systemd.hears()[0] == "READY=1"
            with socket.create_connection(("127.0.0.1", forebay.port), SECONDS):
                pass
        assert systemd.hears() == ["STOPPING=1", "STATUS=draining", "EXTEND_TIMEOUT_USEC=40000000"]
