"""An App that tells what it is told, for the tests of processes and signals; run as a program it is `forebay` with it.

A client of its port says one line: `count` (a record was moved), `hold` (the drain will not end by itself), `fail`
(a part of it has ended), `die`. It answers with the number of its process. A client.rack of `fails` or `fails in 1` (as
worker 1) does not start, one of `waits` is not ready, and with one of `differs in 1` nothing is renewed there.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

from forebay_proxy.config.live import LIVE
from forebay_proxy.config.settings import Settings
from forebay_proxy.config.values import SETTINGS
from forebay_proxy.errors import StartError
from forebay_proxy.inherited import Inherited
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.security.renewals import Outcome

APP = "tests.proxy.process.fake_app:FakeApp"


class FakeApp:
    def __init__(self, settings: Settings, stats: MetricRegistry, worker: int, inherited: Inherited) -> None:
        self._inherited = inherited
        if settings.advertised_host == "bad.example":
            raise StartError("advertised.host: bad.example will not do")
        if settings.client_rack in ("fails", f"fails in {worker}"):
            raise StartError("client.rack: it fails")
        self._settings = settings
        self._worker = worker
        self._moved = stats.counter("forebay_records_total", fate="moved")
        self._may_drain = asyncio.Event()
        self._may_drain.set()
        self._listening: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._failed: str | None = None

    async def start(self) -> None:
        get_logger().info("begins", topics=list(self._settings.topics_include), rack=self._settings.client_rack)
        address = self._settings.listen
        assert address is not None
        reuse_port = self._settings.workers > 1
        try:
            found = self._inherited.take(socket.AF_INET, (address.host, address.port))
            if found:
                get_logger().info("accepts from what it inherited", sockets=len(found))
            self._listening = found or [socket.create_server((address.host, address.port), reuse_port=reuse_port)]
            self._servers = [await asyncio.start_server(self._serve, sock=each) for each in self._listening]
        except OSError as error:
            raise StartError(f"listen = {address}: {error.strerror}") from error

    def prepare(self, settings: Settings) -> Callable[[], None]:
        if "refused" in settings.topics_include:
            raise StartError("refused is refused")
        if "unprepared" in settings.topics_include:
            raise RuntimeError("a fault of ours")

        def commit() -> None:
            if "broken" in settings.topics_include:
                raise RuntimeError("a fault of ours")
            changed = {name: getattr(settings, SETTINGS[name].attribute) for name in sorted(LIVE)}
            get_logger().info("committed", topics=list(settings.topics_include), live=changed)

        return commit

    def dump(self) -> dict[str, Any]:
        return {"topics": list(self._settings.topics_include)}

    def reload(self) -> asyncio.Future[list[Outcome]]:
        get_logger().info("reloading")
        done: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        error = "they differ" if self._settings.client_rack == f"differs in {self._worker}" else ""
        done.set_result([Outcome("connections to brokers", error), Outcome("listener ssl")])
        return done

    def ready(self) -> str | None:
        if self._settings.client_rack == "waits":
            return "no broker yet"
        return None if self._servers else "no listener yet"

    def unhealthy(self) -> str | None:
        return self._failed

    def listening(self) -> list[socket.socket]:
        return self._listening

    async def drain(self, *, succeeded: bool = False) -> None:
        for server in self._servers:
            server.close()
        await self._may_drain.wait()

    async def cut_off(self) -> None:
        get_logger().info("cut off")

    def abort(self) -> None:
        for server in self._servers:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        command = (await reader.readline()).strip()
        if command == b"count":
            self._moved.value += 1
        elif command == b"hold":
            self._may_drain.clear()
        elif command == b"fail":
            self._failed = "a part has failed"
        elif command == b"die":
            os._exit(3)
        writer.write(b"%d\n" % os.getpid())
        writer.close()


if __name__ == "__main__":  # workers need none of it, and each would wait for it
    import functools

    from forebay_proxy.commands import cli
    from forebay_proxy.process import supervisor

    supervisor.run = functools.partial(supervisor.run, app=APP)
    cli.main(prog_name="forebay")
