"""A real API server of Kubernetes over a real etcd: no nodes, so that pods are made and never run.

    with ApiServer() as kubernetes:
        kubernetes.make({"kind": "Namespace", …})
        kubernetes.dry_run({"kind": "Pod", …})      # as it would be stored

kube-apiserver is built of its Go module the first time, which takes minutes of two cores; etcd is Debian's. Both stay
in .cache/. Refused: with the server's own words.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tests.kit.certificates import Authority
from tests.kit.paths import BIN, CACHE
from tests.kit.ports import LOOPBACK, accepts, free_port
from tests.kit.server import Server
from tests.kit.setup import libraries, run, unpack_debian
from tests.kit.waiting import wait_until

VERSION = "1.37.2"
_PROGRAM = BIN / f"kube-apiserver-{VERSION}"
_TOKEN = "kit"
_SECONDS = 120


class Refused(Exception):
    """What the API server said."""


def _build() -> None:
    """Its own go.mod refers to folders of its repository; here each is the module that is published of it."""
    folder = CACHE / "kube-apiserver"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module kit/apiserver\n")
    source = _told(["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}"], folder)
    theirs = _told(["go", "mod", "edit", "-json", source["GoMod"]], folder)
    modules = [each["Old"]["Path"] for each in theirs["Replace"]]
    edits = [f"-replace={module}={module}@v0.{VERSION.partition('.')[2]}" for module in modules]
    edits += [f"-go={theirs['Go']}", f"-require=k8s.io/kubernetes@v{VERSION}"]
    run(["go", "mod", "edit", *edits], folder)
    program = _PROGRAM.with_suffix(".part")
    build = ["go", "build", "-mod=mod", "-ldflags=-s -w", f"-o={program}"]
    run([*build, "k8s.io/kubernetes/cmd/kube-apiserver"], folder)
    program.rename(_PROGRAM)


def _told(command: list[str], folder: Path) -> Any:
    """What a command prints as JSON."""
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return msgspec.json.decode(done.stdout)


class ApiServer:
    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="kubernetes-"))
        self._port = free_port()
        self._servers: list[Server] = []

    def __enter__(self) -> Self:
        if not _PROGRAM.exists():
            _build()
        etcd = CACHE / "etcd-server"
        if not etcd.exists():
            unpack_debian("etcd-server", etcd)
        client, peer = f"http://{LOOPBACK}:{free_port()}", f"http://{LOOPBACK}:{free_port()}"
        store = [str(etcd / "usr/bin/etcd"), f"--data-dir={self._folder / 'etcd'}"]
        store += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
        store += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
        store += [f"--initial-cluster=default={peer}"]
        self._start("etcd", store, {"LD_LIBRARY_PATH": libraries(etcd)}, int(client.rpartition(":")[2]))

        authority = Authority(self._folder)
        identity = authority.issue("kubernetes", LOOPBACK)
        self._context = authority.client_context()
        (self._folder / "tokens").write_text(f'{_TOKEN},kit,kit,"system:masters"\n')
        server = [
            str(_PROGRAM),
            f"--etcd-servers={client}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self._port}",
            f"--tls-cert-file={identity}",
            f"--tls-private-key-file={identity}",
            f"--token-auth-file={self._folder / 'tokens'}",
            "--authorization-mode=AlwaysAllow",
            f"--service-account-key-file={identity}",
            f"--service-account-signing-key-file={identity}",
            "--service-account-issuer=https://kit",
            "--service-cluster-ip-range=10.0.0.0/24",
            # Nobody makes accounts for namespaces here.
            "--disable-admission-plugins=ServiceAccount",
        ]
        self._start("kube-apiserver", server, {}, self._port)
        self._servers[-1].wait_until(self._ready, _SECONDS)
        return self

    def _start(self, name: str, command: list[str], env: Mapping[str, str], port: int) -> None:
        server = Server(name, command, self._folder / f"{name}.log", env)
        self._servers.append(server)
        server.wait_until(lambda: accepts(port), _SECONDS)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for server in reversed(self._servers):
            server.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ready(self) -> bool:
        try:
            return self._ask("GET", "/readyz") == b"ok"
        except (OSError, Refused):
            return False

    def make(self, what: Mapping[str, Any]) -> list[str]:
        """As `kubectl create` does; what the server warned of."""
        warnings: list[str] = []
        self._post(what, "", warnings)
        return warnings

    def dry_run(self, what: Mapping[str, Any]) -> Any:
        """What would be stored."""
        return msgspec.json.decode(self._post(what, "?dryRun=All", []))

    def wait_until_it_mutates(self, what: Mapping[str, Any], so: Callable[[Any], bool]) -> None:
        """A policy counts some time after it was made."""
        wait_until(lambda: so(self.dry_run(what)), _SECONDS, "the policy is in force")

    def _post(self, what: Mapping[str, Any], query: str, warnings: list[str]) -> bytes:
        version, kind = what["apiVersion"], what["kind"].lower()
        root = "/api" if version == "v1" else "/apis"
        plural = f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"
        namespace = what["metadata"].get("namespace")
        within = f"/namespaces/{namespace}" if namespace else ""
        return self._ask("POST", f"{root}/{version}{within}/{plural}{query}", what, warnings)

    def _ask(self, method: str, path: str, body: Any = None, warnings: list[str] | None = None) -> bytes:
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"}
        data = None if body is None else msgspec.json.encode(body)
        request = urllib.request.Request(f"https://{LOOPBACK}:{self._port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._context) as answer:
                if warnings is not None:
                    warnings += answer.headers.get_all("Warning") or []
                told: bytes = answer.read()
                return told
        except urllib.error.HTTPError as error:
            raise Refused(error.read().decode()) from None
