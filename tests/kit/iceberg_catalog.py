"""A catalog of Iceberg tables as a service: the one of Iceberg's own compatibility tests, over SQLite, on a free port.

with IcebergCatalog() as catalog:
    … catalog.uri …
"""

from __future__ import annotations

from typing import Final, Self

from tests.kit.paths import classpath
from tests.kit.ports import LOOPBACK, accepts, free_port
from tests.kit.server import InFolder, Server

_JVM: Final = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_START_SECONDS: Final = 240


class IcebergCatalog(InFolder):
    def __init__(self) -> None:
        super().__init__("iceberg-catalog")
        self._port = free_port()
        self.uri = f"http://{LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        path = ":".join(map(str, classpath("iceberg-rest")))
        settings = {
            "CATALOG_REST_PORT": str(self._port),
            "CATALOG_URI": f"jdbc:sqlite:{self._folder}/catalog.db",
            "CATALOG_WAREHOUSE": f"{self._folder}/warehouse",
        }
        command = [*_JVM, "-cp", path, "org.apache.iceberg.rest.RESTCatalogServer"]
        self._server = Server("Iceberg's catalog", command, self._folder / "log", settings)
        self._server.wait_until(lambda: accepts(self._port), _START_SECONDS)
        return self
