"""A standalone cluster of Spark: a master and two workers that have nothing in common with the driver but the network.

    with packed_cluster(folder) as cluster:
        done = cluster.submit("compact", "--journal", "s3a://…", conf=store.of_command_line)

Each worker, with the executors that it starts, has an address of its own, as hosts have: Spark reads the files of an
executor at its own address from disk. It sees folders as another machine would: its own home at /mnt/home, Spark
at /mnt/spark as its distribution has it (the jars and Python files of the PySpark that runs the tests), an empty /tmp,
and nothing of the project, its environment, or whoever's home. Where the tests run as root, they are other users, too.
Their Python is the machine's, without any package. Memory is bounded: two executors of 512 MiB, the driver of 768 MiB.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import py4j
import pyspark

from forebay_pipeline import cli
from forebay_pipeline.pack import PYTHON, pack
from tests.kit.paths import CACHE, ROOT
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.server import Server

_SPARK: Final = Path(pyspark.__file__).parent
_SYSTEM: Final = "/usr/local/bin:/usr/bin:/bin"
_WORKERS: Final = {"127.0.0.2": "nobody", "127.0.0.3": "daemon"}
"""Address → user; every Linux has them."""
_START_SECONDS: Final = 240
_JOB_SECONDS: Final = 500
_SMALL: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
_JVM: Final = ("-Xmx128m", *_SMALL.split())

_CONF: Final[Mapping[str, str]] = {
    "spark.pyspark.python": "./forebay/bin/python",
    "spark.pyspark.driver.python": sys.executable,
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": _SMALL,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _SMALL,
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}

_LIKE_ANOTHER_MACHINE: Final = """\
set -e
mount -t tmpfs none /mnt
mkdir -p /mnt/spark/jars /mnt/spark/python /mnt/home {kept}
mount --bind {jars} /mnt/spark/jars
mount --bind {python} /mnt/spark/python
mount --bind {home} /mnt/home
{keep}
for folder in {hidden}; do mount -t tmpfs none "$folder"; done
{restore}
cd /mnt/home
exec {user} env -i {environ} {command}
"""


@contextmanager
def packed_cluster(folder: Path) -> Iterator[SparkCluster]:
    """One whose executors are sent the environment that runs the tests."""
    folder.chmod(0o755)
    archive = folder / "forebay.tar.gz"
    pack(archive)
    with SparkCluster(folder, archive) as cluster:
        yield cluster


class SparkCluster:
    """`pack` is what `forebay-pipeline pack` wrote. In `folder` are the workers' homes and logs."""

    def __init__(self, folder: Path, pack: Path) -> None:
        self._folder = folder
        self._pack = pack
        self._port = free_port()
        self._homes = [folder / f"home-{number}" for number in range(len(_WORKERS))]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            python = _as_distributed(self._folder / "python")
            master = ["java", *_JVM, "-Dspark.master.rest.enabled=false", "-cp", f"{_SPARK}/jars/*"]
            master += ["org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", str(self._port)]
            self._start(stack, "master", [*master, "--webui-port", "0"], "New state: ALIVE")
            for home, (address, user) in zip(self._homes, _WORKERS.items(), strict=True):
                home.mkdir()
                worker = ["java", *_JVM, "-cp", "/mnt/spark/jars/*", "org.apache.spark.deploy.worker.Worker"]
                worker += ["--host", address, "--webui-port", "0", "--cores", "1", "--memory", "640m"]
                worker += ["--work-dir", "/mnt/home/work", self.master]
                command = _elsewhere(home, python, address, user, worker)
                self._start(stack, home.name, command, "Successfully registered with master")
            self._running = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._running.close()

    def _start(self, stack: ExitStack, name: str, command: list[str], ready: str) -> None:
        server = Server(f"Spark's {name}", command, self._folder / f"{name}.log", {"SPARK_LOCAL_IP": LOOPBACK})
        stack.callback(server.terminate)
        server.wait_until(lambda: ready in server.log.read_text(errors="replace"), _START_SECONDS)

    @property
    def master(self) -> str:
        return f"spark://{LOOPBACK}:{self._port}"

    def submit(
        self, *words: str, conf: Mapping[str, str] | None = None, packed: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """A job by spark-submit. `packed`: whether its executors are sent the pack."""
        settings = {**_CONF, **(conf or {})}
        if packed:
            settings["spark.archives"] = f"{self._pack}#forebay"
        else:
            settings["spark.pyspark.python"] = PYTHON
        told = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [str(_SPARK / "bin" / "spark-submit"), "--master", self.master, *told, cli.__file__, *words]
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
        environ |= {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_HOME": str(_SPARK)}
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=_JOB_SECONDS, check=False)

    def executors(self) -> Iterator[tuple[Path, str]]:
        """Of jobs since the last `clear`: each executor's folder and what it said."""
        for home in self._homes:
            for folder in sorted(home.glob("work/app-*/*")):
                yield folder, (folder / "stderr").read_text(errors="replace")

    def clear(self) -> None:
        """Removes executors' folders: half a gigabyte each."""
        for folder, _ in list(self.executors()):
            shutil.rmtree(folder)


def _as_distributed(python: Path) -> Path:
    """What Spark's distribution has in its folder python/: PyPI's package has the files, but not as archives."""
    lib = python / "lib"
    lib.mkdir(parents=True)
    gateway = Path(py4j.__file__).parent
    version = next((_SPARK / "jars").glob("py4j-*.jar")).stem
    for folder, name in ((_SPARK, "pyspark.zip"), (gateway, f"{version}-src.zip")):
        with zipfile.ZipFile(lib / name, "w") as archive:
            for path in folder.rglob("*"):
                if path.suffix in {".py", ".json"}:
                    archive.write(path, path.relative_to(folder.parent))
    return python


def _elsewhere(home: Path, python: Path, address: str, user: str, command: list[str]) -> list[str]:
    """The command in a namespace of its own, where it sees what another machine has."""
    root = os.geteuid() == 0
    if root:
        shutil.chown(home, user)
    kept = _kept()
    places = [f"/mnt/kept/{number}" for number in range(len(kept))]
    path = ":".join([_SYSTEM, *(f"{folder}/bin" for folder in kept)])
    environ = {"PATH": path, "HOME": "/mnt/home", "SPARK_HOME": "/mnt/spark", "SPARK_LOCAL_IP": address}
    environ |= {"SPARK_LOCAL_DIRS": "/mnt/home/local", "SPARK_SCALA_VERSION": _scala(), "LANG": "C.UTF-8"}
    pairs = [(shlex.quote(str(folder)), place) for folder, place in zip(kept, places, strict=True)]
    script = _LIKE_ANOTHER_MACHINE.format(
        jars=shlex.quote(str(_SPARK / "jars")),
        python=shlex.quote(str(python)),
        home=shlex.quote(str(home)),
        kept=" ".join(places),
        keep="\n".join(f"mount --bind {folder} {place}" for folder, place in pairs),
        hidden=shlex.join(map(str, _hidden())),
        restore="\n".join(f"mkdir -p {folder}; mount --bind {place} {folder}" for folder, place in pairs),
        user=shlex.join(["setpriv", f"--reuid={user}", f"--regid={_group(user)}", "--clear-groups"]) if root else "",
        environ=shlex.join(f"{name}={value}" for name, value in environ.items()),
        command=shlex.join(command),
    )
    return ["unshare", *([] if root else ["--map-root-user"]), "--mount", "sh", "-c", script]


def _scala() -> str:
    """As Spark's own scripts say it: scala-library-2.13.16.jar → 2.13."""
    (library,) = (_SPARK / "jars").glob("scala-library-*.jar")
    return ".".join(library.stem.removeprefix("scala-library-").split(".")[:2])


def _group(user: str) -> int:
    return pwd.getpwnam(user).pw_gid


def _kept() -> list[Path]:
    """Folders in somebody's home that another machine would have elsewhere: Java, and a Python of this version."""
    needed = [("java", 1), (PYTHON, 1)]
    own = f"{_SYSTEM}:{Path(sys.base_prefix, 'bin')}:{os.environ['PATH']}"
    found = [Path(str(shutil.which(name, path=own))).resolve().parents[up] for name, up in needed]
    return [folder for folder in found if not folder.is_relative_to("/usr")]


def _hidden() -> list[Path]:
    """The project, its environment, what it has fetched, homes, temporary files; none within another one."""
    found = {
        ROOT,
        CACHE,
        _SPARK,
        Path(sys.prefix),
        Path.home(),
        Path(tempfile.gettempdir()),
        Path("/tmp"),
        Path("/home"),
    }
    real = sorted({path.resolve() for path in found if path.exists()})
    return [path for path in real if not any(path.is_relative_to(other) for other in real if other != path)]
