"""An object store that speaks S3: SeaweedFS, a real one, on loopback, with one bucket and one user.

with ObjectStore() as store:
    store.put("journal/a", b"…")        # store.at("journal/a"), s3a://lake-24117/journal/a
    … store.settings …                  # Hadoop's, with which Spark reaches it
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import msgspec

from tests.kit.paths import JARS, SEAWEEDFS, NotSetUp
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.server import InFolder, Server

_USER: Final = "forebay"
_SECRET: Final = "a-secret-of-the-store"
_BYTES: Final = "application/octet-stream"
_START_SECONDS: Final = 120


def s3_jars() -> list[Path]:
    """Hadoop's file system for S3, and what it needs that Spark does not bring."""
    return sorted(jar for jar in (JARS / "spark-s3").glob("*.jar") if not jar.name.startswith("slf4j"))


class ObjectStore(InFolder):
    def __init__(self) -> None:
        super().__init__("object-store")
        self._filer, self._s3 = free_port(), free_port()
        self._bucket = f"lake-{self._s3}"
        """No other store's: Hadoop takes a session's first store with it for all of that name, whatever is set."""

    def __enter__(self) -> Self:
        weed = SEAWEEDFS / "bin" / "weed"
        if not weed.exists():
            raise NotSetUp(f"{weed} is missing: run `python -m tests.kit.setup`")
        users = self._folder / "users.json"
        keys = [{"accessKey": _USER, "secretKey": _SECRET}]
        actions = ["Admin", "Read", "Write", "List"]
        users.write_bytes(
            msgspec.json.encode({"identities": [{"name": _USER, "credentials": keys, "actions": actions}]})
        )
        (self._folder / "data").mkdir()
        options = {
            "dir": self._folder / "data",
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            **{f"{part}.port{kind}": free_port() for part in ("master", "volume") for kind in ("", ".grpc")},
            "filer.port": self._filer,
            "filer.port.grpc": free_port(),
            "s3.port": self._s3,
            "s3.port.grpc": free_port(),
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.config": users,
            "volume.max": 20,
            "volume.preStopSeconds": 0,
            "master.volumeSizeLimitMB": 64,
            "master.telemetry": "false",
        }
        words = [
            str(weed),
            "-logtostderr=true",
            "server",
            "-s3",
            *(f"-{name}={value}" for name, value in options.items()),
        ]
        self._server = Server("SeaweedFS", words, self._folder / "log")
        self._server.wait_until(lambda: self._answers(f"http://{LOOPBACK}:{self._s3}/status"), _START_SECONDS)
        self._server.wait_until(lambda: self._answers(self._of_filer("/"), b""), _START_SECONDS)
        return self

    @property
    def settings(self) -> Mapping[str, str]:
        """Hadoop's, for a session that has s3_jars."""
        return {
            "fs.s3a.endpoint": f"http://{LOOPBACK}:{self._s3}",
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.access.key": _USER,
            "fs.s3a.secret.key": _SECRET,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
        }

    @property
    def of_iceberg(self) -> dict[str, str]:
        """The same for readers of Iceberg's own."""
        return {
            "s3.endpoint": self.settings["fs.s3a.endpoint"],
            "s3.region": self.settings["fs.s3a.endpoint.region"],
            "s3.access-key-id": _USER,
            "s3.secret-access-key": _SECRET,
        }

    @property
    def of_command_line(self) -> dict[str, str]:
        """The same and the jars for it, as Spark's settings of a process of its own."""
        told = {f"spark.hadoop.{name}": value for name, value in self.settings.items()}
        return {**told, "spark.jars": ",".join(map(str, s3_jars()))}

    def at(self, name: str) -> str:
        """Its address for Spark."""
        return f"s3a://{self._bucket}/{name}"

    def put(self, name: str, content: bytes) -> None:
        assert self._answers(self._of_filer(f"/{name}"), content)

    def put_all(self, folder: Path, name: str) -> None:
        """All that is in the folder."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{name}/{path.relative_to(folder)}", path.read_bytes())

    def _of_filer(self, path: str) -> str:
        """Past S3, so that what is there was not put there by what is tested."""
        return f"http://{LOOPBACK}:{self._filer}/buckets/{self._bucket}{path}"

    def _answers(self, url: str, content: bytes | None = None) -> bool:
        method = "GET" if content is None else "PUT" if content else "POST"
        try:
            kind = {"Content-Type": _BYTES} if content else {}
            asked = urllib.request.Request(url, content or None, kind, method=method)
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return bool(200 <= answer.status < 300)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
