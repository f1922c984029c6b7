"""deploy/Dockerfile built into an image, and the image started, on a machine without a container engine.

    with Built() as image, image.start(mounts={folder: "/etc/forebay"}) as container:
        … container.exec(*image.health_check) …

In: the rights of root (mounts, chroot), and apt-get. Out: an image that buildah made of the Dockerfile's steps, in a
chroot, on a base of Debian's packages, since no registry of images is asked for one; and a process that runc started
from it as a kubelet would: the image's user, environment and entrypoint, a root that is read-only, no capabilities. It
is on this machine's network. The programs are Debian's, unpacked in .cache/, where the base is kept, too; the image is
gone at the end. ImageFailed: the command, and the end of what it printed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kit.paths import CACHE, ROOT
from tests.kit.server import Server
from tests.kit.setup import libraries, unpack_debian

_SUITE = "trixie"
"""Debian 13, whose Python is the 3.13 of the Dockerfile's own base."""
_IN_BASE = "ca-certificates,python3-dev,python3-venv"
_BASE = CACHE / "images" / f"{_SUITE}.tar"
_TAG = "localhost/forebay"
_MINUTES = 60.0


class ImageFailed(Exception):
    """A command failed; says which, and how its output ends."""


def _run(command: Sequence[str], minutes: float = 5, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=minutes * _MINUTES, env={**os.environ, **(env or {})}
    )
    if done.returncode != 0:
        raise ImageFailed(f"{' '.join(command)}\nended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def _unpacked(package: str) -> Path:
    folder = CACHE / package
    if not folder.exists():
        unpack_debian(package, folder)
    return folder


def _base() -> Path:
    """A root with Python and apt-get, as an archive."""
    if not _BASE.exists():
        _BASE.parent.mkdir(parents=True, exist_ok=True)
        part = _BASE.with_suffix(".part.tar")
        program = _unpacked("mmdebstrap") / "usr/bin/mmdebstrap"
        _run([str(program), "--mode=root", "--variant=apt", f"--include={_IN_BASE}", _SUITE, str(part)], minutes=10)
        part.rename(_BASE)
    return _BASE


def _pip_settings() -> tuple[str, list[Path]]:
    """What pip is told on this machine, but for folders of it, as a pip.conf; and the files that it names."""
    told = _run([sys.executable, "-m", "pip", "config", "list"]).splitlines()
    # `global.cert='…'`, then `:env:.cert='…'`: the later wins.
    settings = {name.rpartition(".")[2]: value.strip("'") for name, _, value in (line.partition("=") for line in told)}
    settings.pop("find-links", None)
    lines = ["[global]", *(f"{name} = {value}" for name, value in settings.items())]
    return "\n".join([*lines, ""]), [Path(settings[name]) for name in ("cert",) if name in settings]


class Built:
    """The image, while it is entered; it and all that came before it are gone afterwards."""

    def __init__(self, minutes: float = 60) -> None:
        self._minutes = minutes

    def __enter__(self) -> Self:
        (CACHE / "images").mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="build-", dir=CACHE / "images"))
        try:
            self._make_findable(_unpacked("buildah"))
            self._import_base()
            self._build()
            self.root = self._root().resolve()  # runc takes no path through a link
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make_findable(self, folder: Path) -> None:
        """buildah starts itself anew without an environment, so that LD_LIBRARY_PATH does not do for its libraries."""
        self._linker_cache = self._folder / "ld.so.cache"
        conf = self._folder / "ld.so.conf"
        conf.write_text(libraries(folder).replace(":", "\n") + "\ninclude /etc/ld.so.conf\n")
        _run([shutil.which("ldconfig") or "/sbin/ldconfig", "-X", "-C", str(self._linker_cache), "-f", str(conf)])
        self._program = folder / "usr/bin/buildah"
        self._policy = folder / "etc/containers/policy.json"
        self._registries = self._folder / "registries.conf"
        self._registries.touch()  # none: whatever an image is made of is here

    def _buildah(self, *words: str, minutes: float = 5) -> str:
        with_its_libraries = 'mount --bind "$0" /etc/ld.so.cache && exec "$@"'
        alone = ["unshare", "--mount", "sh", "-c", with_its_libraries, str(self._linker_cache)]
        store = [f"--root={self._folder / 'store'}", f"--runroot={self._folder / 'run'}", "--storage-driver=vfs"]
        store.append(f"--registries-conf={self._registries}")
        return _run([*alone, str(self._program), *store, *words], minutes).strip()

    def _import_base(self) -> None:
        container = self._buildah("from", "scratch")
        self._buildah("add", "--quiet", container, str(_base()), "/")
        self._buildah("commit", f"--signature-policy={self._policy}", "--rm", container, f"{_TAG}-base")

    def _build(self) -> None:
        settings, files = _pip_settings()
        conf = self._folder / "pip.conf"
        conf.write_text(settings)
        mounts = {conf: "/etc/pip.conf"} | {file: str(file) for file in files}
        self._buildah(
            "bud",
            "--isolation=chroot",
            "--format=docker",  # the other one knows no health checks
            f"--signature-policy={self._policy}",
            *(f"--volume={here}:{there}:ro" for here, there in mounts.items()),
            f"--build-arg=BASE={_TAG}-base",
            f"--ignorefile={ROOT / 'deploy' / 'Dockerfile.dockerignore'}",
            f"--file={ROOT / 'deploy' / 'Dockerfile'}",
            f"--tag={_TAG}",
            str(ROOT),
            minutes=self._minutes,
        )

    def _root(self) -> Path:
        container = self._buildah("from", f"--signature-policy={self._policy}", "--pull-never", _TAG)
        return Path(self._buildah("mount", container))

    @cached_property
    def config(self) -> dict[str, Any]:
        """As Docker has it: User, Env, Entrypoint, Cmd, Healthcheck, StopSignal."""
        config: dict[str, Any] = json.loads(self._buildah("inspect", "--type=image", _TAG))["Docker"]["config"]
        return config

    @property
    def health_check(self) -> list[str]:
        kind, *command = self.config["Healthcheck"]["Test"]
        assert kind == "CMD"
        return [str(word) for word in command]

    def start(
        self,
        arguments: Sequence[str] | None = None,
        mounts: Mapping[Path, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Container:
        """`arguments` instead of the image's own, `env` over its own; folders of this machine → where they are read."""
        words = self.config["Cmd"] if arguments is None else arguments
        return Container(self, list(words), mounts or {}, env or {})


_PLACES: dict[str, dict[str, Any]] = {
    "/proc": {"type": "proc", "source": "proc"},
    "/dev": {"type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
}


class Container:
    def __init__(self, image: Built, arguments: list[str], mounts: Mapping[Path, str], env: Mapping[str, str]) -> None:
        folder = _unpacked("runc")
        self._image = image
        self._folder = Path(tempfile.mkdtemp(prefix="forebay-"))
        self._name = self._folder.name
        self._env = {"LD_LIBRARY_PATH": libraries(folder)}
        state = self._folder / "state"
        self._runc = [str(folder / "usr/sbin/runc"), f"--root={state}"]
        self.log = self._folder / "log"
        bundle = self._folder / "bundle"
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(self._described(arguments, mounts, env)))
        self._bundle = bundle

    def _described(self, arguments: list[str], mounts: Mapping[Path, str], env: Mapping[str, str]) -> dict[str, Any]:
        """For runc (the runtime specification of the Open Container Initiative)."""
        config = self._image.config
        user, group = (int(each) for each in config["User"].split(":"))
        readable: dict[str, dict[str, Any]] = {
            there: {"type": "bind", "source": str(here), "options": ["rbind", "ro"]} for here, there in mounts.items()
        }
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": user, "gid": group},
                "args": [*config["Entrypoint"], *arguments],
                "env": [*config["Env"], *(f"{name}={value}" for name, value in env.items())],
                "cwd": config["WorkingDir"] or "/",
                "noNewPrivileges": True,
                "capabilities": {},
            },
            "root": {"path": str(self._image.root), "readonly": True},
            "mounts": [{"destination": there, **how} for there, how in (_PLACES | readable).items()],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]},
        }

    def __enter__(self) -> Self:
        self._server = Server("runc", [*self._runc, "run", f"--bundle={self._bundle}", self._name], self.log, self._env)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._server.running():
            subprocess.run([*self._runc, "delete", "--force", self._name], env={**os.environ, **self._env})
        self._server.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def identity(self) -> tuple[int, int]:
        """User and group of its first process, as this machine knows them."""
        return self._status("Uid"), self._status("Gid")

    def capabilities(self) -> int:
        return self._status("CapEff", 16)

    def _status(self, name: str, base: int = 10) -> int:
        pid = json.loads(_run([*self._runc, "state", self._name], env=self._env))["pid"]
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith(f"{name}:"))
        return int(line.split()[1], base)

    def exec(self, *command: str) -> str:
        """What a command prints in it. ImageFailed where it does not exit with 0."""
        return _run([*self._runc, "exec", self._name, *command], env=self._env)

    def stop(self) -> int:
        """The image's stop signal; its exit code."""
        number = signal.Signals[self._image.config.get("StopSignal") or "SIGTERM"]
        _run([*self._runc, "kill", self._name, str(int(number))], env=self._env)
        return self.wait()

    def wait(self, seconds: float = 60) -> int:
        """Its exit code."""
        return self._server.process.wait(seconds)

    def wait_until_ready(self, url: str, seconds: float = 60) -> None:
        self._server.wait_until(lambda: _answers(url), seconds)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False
