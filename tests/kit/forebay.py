"""Forebay as a user starts it: the command `forebay run` as a child process before a cluster.

    with ForebayProcess(cluster.bootstrap, nodes=cluster.nodes) as forebay:
        … forebay.bootstrap …

The bootstrap port is P, broker n is on P + 1 + n, and P is chosen so that all of them are free.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kit.ports import LOOPBACK, free_port, free_run
from tests.kit.server import Server

START_SECONDS = 60
_ANSWER_SECONDS = 30
_TRIED_SEVERAL_TIMES = 3
"""Lines that tell of it: at the first try, the second, the fourth."""


class ForebayProcess:
    """`settings` go to `--set`; `options` are further words of the command line."""

    def __init__(
        self,
        bootstrap_servers: str,
        nodes: Iterable[int],
        *,
        settings: Mapping[str, str] | None = None,
        options: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
        tls: Mapping[str, str] | None = None,
        protocols: tuple[str, str] = ("PLAINTEXT", "SSL"),
        producers_only: bool = False,
        sasl: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
    ) -> None:
        """`tls`: settings of a listener with TLS beside the first, behind its brokers' ports (`tls_bootstrap`).

        `protocols`: of the first, and of that one. `producers_only`: it has one port, and no other listener.
        `sasl`: what its only listener is told, which is one for SASL_PLAINTEXT.
        `under`: a command that runs it, as valgrind does.
        """
        self.nodes = sorted(nodes)
        self.port = free_run(2 * (2 + self.nodes[-1]))
        self.tls_port = self.port + 2 + self.nodes[-1]
        self._tls = tls
        self._protocols = protocols
        self._producers_only = producers_only
        self._sasl = sasl
        self._under = under
        self.admin_port = free_port()
        self._upstream = bootstrap_servers
        self._settings = dict(settings or {})
        self._options = list(options)
        self._env = dict(env or {})
        self.log = Path(tempfile.gettempdir()) / f"forebay-{self.port}-{secrets.token_hex(4)}" / "forebay.log"
        self._server: Server | None = None

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def tls_bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.tls_port}"

    @property
    def tls_addresses(self) -> set[str]:
        """As `addresses`, for clients of the listener with TLS."""
        return {f"{LOOPBACK}:{self.tls_port + 1 + node}" for node in self.nodes}

    @property
    def addresses(self) -> set[str]:
        """Where clients may believe brokers to be: nowhere else."""
        if self._producers_only:
            return {self.bootstrap}
        return {f"{LOOPBACK}:{self.node_port(node)}" for node in self.nodes}

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    def node_port(self, node: int) -> int:
        return self.port + 1 + node

    def command(self) -> list[str]:
        sets = [word for name, value in self._settings.items() for word in ("--set", f"{name}={value}")]
        listen = ["--listen", self.bootstrap]
        if self._tls is not None:
            first, second = self._protocols
            both = f"listeners={first}://{self.bootstrap},{second}://{self.tls_bootstrap}"
            told = [f"listener.name.{second.lower()}.{name}={value}" for name, value in self._tls.items()]
            listen = [word for assignment in (both, *told) for word in ("--set", assignment)]
        elif self._sasl is not None:
            told = [f"listener.name.sasl_plaintext.{name}={value}" for name, value in self._sasl.items()]
            listen = [
                word for each in (f"listeners=SASL_PLAINTEXT://{self.bootstrap}", *told) for word in ("--set", each)
            ]
        elif self._producers_only:
            only = (f"listeners=PLAINTEXT://{self.bootstrap}", "listener.name.plaintext.producers.only=true")
            listen = [word for assignment in only for word in ("--set", assignment)]
        listen += ["--admin", f"{LOOPBACK}:{self.admin_port}"]
        run = [sys.executable, "-m", "forebay_proxy.commands.cli", "run", "--bootstrap-servers", self._upstream]
        return [*self._under, *run, *listen, *sets, *self._options]

    def start(self, seconds: float = START_SECONDS) -> Self:
        """Raises ServerFailed where it is not ready within `seconds`."""
        self._server = Server("forebay", self.command(), self.log, self._env)
        self._server.wait_until(self.ready, seconds)
        return self

    def fails_to_start(self) -> str:
        """Its log, once it has asked brokers several times in vain and is not ready. Both are gone then."""
        self._server = Server("forebay", self.command(), self.log, self._env)
        try:
            self._server.wait_until(self._has_tried, START_SECONDS)
            assert not self.ready()
        finally:
            self.kill()
        said = self.log.read_text()
        shutil.rmtree(self.log.parent)
        return said

    def _has_tried(self) -> bool:
        return self.log.read_text().count("metadata refresh failed") >= _TRIED_SEVERAL_TIMES

    def ready(self) -> bool:
        try:
            self.get("/readyz", 5)
        except OSError:  # refused, reset, or an answer that is not 200
            return False
        return True

    def get(self, path: str, seconds: float = _ANSWER_SECONDS) -> str:
        """The admin endpoint's answer; an answer that is not 200 raises urllib.error.HTTPError, an OSError."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.admin_port}{path}", timeout=seconds) as answer:
            body: bytes = answer.read()
        return body.decode()

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics: `name{labels}` as it is written → value."""
        lines = (line for line in self.get("/metrics").splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    @property
    def admin_url(self) -> str:
        return f"http://{LOOPBACK}:{self.admin_port}"

    def clients(self, *how: str) -> list[dict[str, Any]]:
        """What `forebay clients` says; `how` are --url or --bootstrap-servers with their values."""
        command = [sys.executable, "-m", "forebay_proxy.commands.cli", "clients", "--format", "json", *how]
        rows: list[dict[str, Any]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return rows

    def stop(self) -> None:
        """SIGTERM; anything but a clean end raises, and only then the log stays."""
        if self._server is None:
            return
        server, self._server = self._server, None
        code = server.terminate()
        if code != 0:
            raise server.failed(f"ended with {code} after SIGTERM")
        if "Exception in callback" in self.log.read_text():
            raise server.failed("an exception escaped a callback")
        shutil.rmtree(self.log.parent)

    def kill(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.stop()
        else:  # the test's own failure is the one to show
            self.kill()
