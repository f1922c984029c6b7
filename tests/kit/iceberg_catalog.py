"""A catalog of Iceberg tables as a service: the one of Iceberg's own compatibility tests, over SQLite, on a free port.

with IcebergCatalog() as catalog:
    … catalog.uri …

Of tables in an object store (`store`) it reads and writes what it keeps there itself.
"""

from __future__ import annotations

from typing import Final, Self

from tests.kit.object_store import ObjectStore, s3_jars
from tests.kit.paths import classpath
from tests.kit.ports import LOOPBACK, accepts, free_port
from tests.kit.server import InFolder, Server

_JVM: Final = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_START_SECONDS: Final = 240


class IcebergCatalog(InFolder):
    def __init__(self, store: ObjectStore | None = None) -> None:
        super().__init__("iceberg-catalog")
        self._store = store
        self._port = free_port()
        self.uri = f"http://{LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        path = [self._folder, *classpath("iceberg-rest")]
        if self._store is not None:
            path[1:1] = s3_jars()  # before the server's: Iceberg's tests have a class of this file system of their own
            told = "".join(
                f"<property><name>{name}</name><value>{value}</value></property>"
                for name, value in self._store.settings.items()
            )
            (self._folder / "core-site.xml").write_text(f"<configuration>{told}</configuration>")
        settings = {
            "CATALOG_REST_PORT": str(self._port),
            "CATALOG_URI": f"jdbc:sqlite:{self._folder}/catalog.db",
            "CATALOG_WAREHOUSE": f"{self._folder}/warehouse",
        }
        command = [*_JVM, "-cp", ":".join(map(str, path)), "org.apache.iceberg.rest.RESTCatalogServer"]
        self._server = Server("Iceberg's catalog", command, self._folder / "log", settings)
        self._server.wait_until(lambda: accepts(self._port), _START_SECONDS)
        return self
