"""HDFS: a real NameNode and a real DataNode, in one JVM, on loopback.

with Hdfs() as hdfs:
    hdfs.put(folder)        # hdfs://127.0.0.1:…/<its name>, which Spark reaches without settings
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final, Self

from tests.kit.paths import classpath
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.server import InFolder, Server

_JVM: Final = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_START_SECONDS: Final = 240
_PUT_SECONDS: Final = 120


class Hdfs(InFolder):
    def __init__(self) -> None:
        super().__init__("hdfs")
        self._port = free_port()

    def __enter__(self) -> Self:
        (self._folder / "core-site.xml").write_text("<configuration/>")  # Hadoop's commands want one
        started = self._folder / "started"
        words = ["-format", "-nnport", str(self._port), "-writeDetails", str(started)]
        command = self._java("org.apache.hadoop.test.MiniDFSClusterManager", *words)
        self._server = Server("HDFS", command, self._folder / "log")
        self._server.wait_until(lambda: started.exists() and started.stat().st_size > 0, _START_SECONDS)
        return self

    def at(self, name: str) -> str:
        """Its address for Spark."""
        return f"hdfs://{LOOPBACK}:{self._port}/{name}"

    def put(self, folder: Path) -> str:
        """By `hdfs dfs -put`, so that what is there was not put there by what is tested; its address."""
        command = self._java("org.apache.hadoop.fs.FsShell", "-put", "-f", str(folder), self.at(""))
        subprocess.run(command, check=True, timeout=_PUT_SECONDS)
        return self.at(folder.name)

    def _java(self, main: str, *words: str) -> list[str]:
        path = ":".join(map(str, [self._folder, *classpath("hdfs")]))
        settings = [f"-Dtest.build.data={self._folder}/data", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        return [*_JVM, *settings, "-cp", path, main, *words]
