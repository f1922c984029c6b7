"""Prometheus, scraping what it is told to and judging it by rules.

with Prometheus([forebay.admin_port], rules=[path]) as prometheus:
    … prometheus.query("sum(forebay_ready)") …
"""

from __future__ import annotations

import json
import shutil
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kit.paths import program
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.server import Server

EVERY = "1s"
"""How often it scrapes, and looks at the rules."""
_START_SECONDS = 60
_ANSWER_SECONDS = 30


class Refused(Exception):
    """Prometheus does not take a query; the message is its own."""


class Prometheus:
    """Scrapes /metrics of `ports` on this machine, as the job `job`, while it is entered."""

    def __init__(self, ports: Sequence[int], rules: Sequence[Path] = (), job: str = "forebay") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="prometheus-"))
        self.port = free_port()
        self._config: dict[str, Any] = {
            "global": {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [{"job_name": job, "static_configs": [{"targets": [f"{LOOPBACK}:{p}" for p in ports]}]}],
        }
        self._server: Server | None = None

    def __enter__(self) -> Self:
        config = self.folder / "prometheus.yml"
        config.write_text(json.dumps(self._config))  # which is YAML, too
        command = [str(program("prometheus")), f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'data'}"]
        listen = f"--web.listen-address={LOOPBACK}:{self.port}"
        self._server = Server("prometheus", [*command, listen], self.folder / "prometheus.log")
        self._server.wait_until(self._ready, _START_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._server is not None
        self._server.terminate()
        shutil.rmtree(self.folder)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/-/ready", timeout=_ANSWER_SECONDS):
                return True
        except OSError:  # refused, or not ready yet
            return False

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The samples of an expression now: {"metric": labels, "value": [time, number as text]}. Raises Refused."""
        answer: list[dict[str, Any]] = self._get("query", query=expr)["result"]
        return answer

    def alerts(self) -> dict[str, str]:
        """Alerts that are about to fire or do: name → pending or firing."""
        return {alert["labels"]["alertname"]: alert["state"] for alert in self._get("alerts")["alerts"]}

    def _get(self, path: str, **arguments: str) -> Any:
        url = f"http://{LOOPBACK}:{self.port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise Refused(f"{arguments}: {error.read().decode()}") from None
