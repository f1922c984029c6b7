"""The admin endpoint, asked over HTTP."""

from __future__ import annotations

import asyncio
import json
import math
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from forebay_proxy.commands.admin_endpoint import AdminError, by_url
from forebay_proxy.commands.clients import as_table, fetch
from forebay_proxy.commands.command_config import read
from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import HostPort
from forebay_proxy.errors import StartError
from forebay_proxy.inherited import Inherited
from forebay_proxy.metrics import admin_door
from forebay_proxy.metrics.admin import Admin, bound
from forebay_proxy.metrics.clients_seen import MAX_CLIENTS, SeenClient
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.metrics.traffic import RenewalMetrics
from forebay_proxy.security.renewals import Renewals
from tests.kit.app import settings
from tests.kit.certificates import Authority
from tests.kit.event_loop import in_loop, soon, turns, until
from tests.kit.ports import LOOPBACK, accepts, free_port


class Proxy:
    """What the endpoint is told."""

    def __init__(self) -> None:
        self.unready: str | None = None
        self.unhealthy: str | None = None

    async def metrics(self) -> tuple[bytes, str]:
        return b"forebay_up 1\n", "text/plain; version=1.0.0; charset=utf-8"

    async def clients(self) -> list[SeenClient]:
        return [SeenClient("till-7", "10.0.0.1", None, None, 1, requests={1: 3})]


@asynccontextmanager
async def serving(proxy: Proxy) -> AsyncIterator[str]:
    admin = Admin(proxy.metrics, proxy.clients, lambda: proxy.unready, lambda: proxy.unhealthy)
    address = HostPort("127.0.0.1", free_port())
    await admin.start(settings((), 1, admin=address))
    try:
        yield f"http://{address}"
    finally:
        await admin.stop()


async def get(url: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, response.headers["Content-Type"], await response.text()


def test_on_all_addresses_of_ipv6_it_takes_ipv4_too() -> None:
    (listening,) = bound(HostPort("::", free_port()), Inherited())
    with listening:
        assert accepts(listening.getsockname()[1])


def test_metrics_pass_the_content_type_through() -> None:
    async def scenario() -> None:
        proxy = Proxy()
        async with serving(proxy) as url:
            status, content_type, body = await get(f"{url}/metrics")
        assert (status, body) == (200, "forebay_up 1\n")
        assert content_type == "text/plain; version=1.0.0; charset=utf-8"

    asyncio.run(scenario())


def test_clients_are_json() -> None:
    async def scenario() -> None:
        async with serving(Proxy()) as url:
            status, content_type, body = await get(f"{url}/clients")
        assert (status, content_type) == (200, "application/json; charset=utf-8")
        (row,) = json.loads(body)["clients"]
        assert (row["client_id"], row["requests"]) == ("till-7", {"Produce": {"1": 3}})

    asyncio.run(scenario())


@in_loop
async def test_very_many_clients_do_not_hold_up_the_loop_and_are_in_order_all_the_same() -> None:
    turn = 0
    rows_made: Counter[int] = Counter()

    class Requests(dict[int, int]):
        def items(self) -> Any:
            rows_made[turn] += 1
            return super().items()

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    class Crowd(Proxy):
        async def clients(self) -> list[SeenClient]:
            return [SeenClient(f"{n:03}", "10.0.0.1", None, None, 1, requests=Requests()) for n in range(199, -1, -1)]

    counting = asyncio.create_task(count_turns())
    async with serving(Crowd()) as url:
        _, _, body = await get(f"{url}/clients")
    counting.cancel()
    assert [row["client_id"] for row in json.loads(body)["clients"]] == [f"{n:03}" for n in range(200)]
    assert max(rows_made.values()) <= 50


@pytest.mark.parametrize(("connected", "full"), [(MAX_CLIENTS - 1, False), (MAX_CLIENTS, True)])
@in_loop
async def test_that_there_may_be_more_clients_is_told(connected: int, full: bool) -> None:
    class Crowd(Proxy):
        async def clients(self) -> list[SeenClient]:
            open_now = [SeenClient(str(n), "10.0.0.1", None, None, 1, requests={1: 4}) for n in range(connected)]
            return [*open_now, SeenClient("gone", "10.0.0.1", None, None, requests={1: 4})][:MAX_CLIENTS]

    async with serving(Crowd()) as url:
        known = await asyncio.to_thread(fetch, by_url(url, read(None)))
    assert (len(known.rows), known.full) == (MAX_CLIENTS, full)
    assert ("More may be connected: no more are kept." in as_table(known, None)) == full


@pytest.mark.parametrize("page", ["readyz", "healthz"])
def test_a_probe_follows_what_the_proxy_says(page: str) -> None:
    async def scenario() -> None:
        proxy = Proxy()
        async with serving(proxy) as url:
            assert (await get(f"{url}/{page}"))[0] == 200
            proxy.unready = proxy.unhealthy = "because"
            status, content_type, body = await get(f"{url}/{page}")
            assert status == 503
            assert content_type.startswith("application/json")
            assert '"reason": "because"' in body
            proxy.unready = proxy.unhealthy = None
            assert (await get(f"{url}/{page}"))[0] == 200

    asyncio.run(scenario())


def test_the_probes_are_independent() -> None:
    async def scenario() -> None:
        proxy = Proxy()
        proxy.unready = "no metadata yet"
        async with serving(proxy) as url:
            assert (await get(f"{url}/healthz"))[0] == 200
            assert (await get(f"{url}/readyz"))[0] == 503
            assert (await get(f"{url}/other"))[0] == 404

    asyncio.run(scenario())


def test_a_port_in_use_is_named() -> None:
    async def scenario() -> None:
        proxy = Proxy()
        async with serving(proxy) as url:
            port = int(url.rpartition(":")[2])
            admin = Admin(proxy.metrics, proxy.clients, lambda: None)
            with pytest.raises(StartError, match=rf"^admin = 127\.0\.0\.1:{port}: "):
                await admin.start(settings((), 1, admin=HostPort("127.0.0.1", port)))
            await admin.stop()

    asyncio.run(scenario())


def test_after_the_end_nobody_listens() -> None:
    async def scenario() -> None:
        async with serving(Proxy()) as url:
            pass
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(f"{url}/healthz")

    asyncio.run(scenario())


TOKEN = "canary-token-1"


@in_loop
async def test_tls_with_a_token_or_a_certificate_and_probes_for_everybody(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    told = {
        "admin_ssl_keystore_location": str(authority.issue("admin", LOOPBACK)),
        "admin_ssl_truststore_location": str(authority.pem),
        "admin_bearer_token": Secret(TOKEN),
    }
    known = authority.client_context(authority.issue("prometheus", subject="prometheus"))
    async with protected(told) as (url, _):
        for page, header, context, status in (
            ("metrics", f"Bearer {TOKEN}", authority.client_context(), 200),
            ("clients", f"bearer {TOKEN}", authority.client_context(), 200),
            ("metrics", f"Bearer {TOKEN}x", authority.client_context(), 401),
            ("metrics", f"Basic {TOKEN}", authority.client_context(), 401),
            ("metrics", "Bearer", authority.client_context(), 401),
            ("metrics", "", authority.client_context(), 401),
            ("nothing", "", authority.client_context(), 401),
            ("healthz", "", authority.client_context(), 200),
            ("readyz", "", authority.client_context(), 200),
            ("metrics", "", known, 200),
        ):
            assert await asking(f"{url}/{page}", header, context) == status, (page, header)


@in_loop
async def test_its_certificate_and_token_change_for_connections_to_come(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    told = {
        "admin_ssl_keystore_location": str(authority.issue("admin", LOOPBACK)),
        "admin_bearer_token": Secret(TOKEN),
    }
    async with protected(told) as (url, admin):
        before = admin.renewable.expires_at()
        told |= {
            "admin_ssl_keystore_location": str(other.issue("admin", LOOPBACK)),
            "admin_bearer_token": Secret("new"),
        }
        admin.renewable.prepare(settings((), 1, **told))()
        assert await asking(f"{url}/metrics", "Bearer new", other.client_context()) == 200
        assert await asking(f"{url}/metrics", f"Bearer {TOKEN}", other.client_context()) == 401
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await asking(f"{url}/metrics", "Bearer new", authority.client_context())
        assert before < math.inf


@in_loop
async def test_a_file_that_is_emptied_takes_its_token_from_nobody(tmp_path: Path) -> None:
    authority, file, stats = Authority(tmp_path), tmp_path / "token", MetricRegistry()
    file.touch(mode=0o600)
    told = {
        "admin_ssl_keystore_location": str(authority.issue("admin", LOOPBACK)),
        "admin_bearer_token": Secret(TOKEN),
        "references": {"admin.bearer.token": f"${{dir:{tmp_path}:token}}"},
    }
    async with protected(told) as (url, admin):
        renewals = Renewals(settings((), 1, **told), RenewalMetrics(stats))
        renewals.add(admin.renewable)
        renewals.now()
        renewing = asyncio.create_task(renewals.run())
        await until(lambda: stats.value("forebay_security_reloads_total", side="admin", outcome="failed"))
        for authorization, status in (("", 401), (f"Bearer {TOKEN}", 200)):
            assert await asking(f"{url}/metrics", authorization, authority.client_context()) == status
        renewing.cancel()


@in_loop
async def test_the_command_reads_it_with_what_its_file_says(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    told = {
        "admin_ssl_keystore_location": str(authority.issue("admin", LOOPBACK)),
        "admin_bearer_token": Secret(TOKEN),
    }
    file = tmp_path / "client.properties"
    file.touch(mode=0o600)
    async with protected(told) as (url, _):
        for lines, why in (
            (f"ssl.truststore.location={authority.pem}\nadmin.bearer.token={TOKEN}\n", ""),
            (f"ssl.truststore.location={authority.pem}\n", "needs a token: set admin.bearer.token"),
            (f"admin.bearer.token={TOKEN}\n", "the certificate is not accepted"),
        ):
            file.write_text(lines)
            asked = asyncio.to_thread(fetch, by_url(url, read(str(file))))
            if why:
                with pytest.raises(AdminError, match=why) as error:
                    await asked
                assert TOKEN not in str(error.value)
            else:
                assert (await asked).rows[0]["client_id"] == "till-7"


@asynccontextmanager
async def protected(told: dict[str, Any]) -> AsyncIterator[tuple[str, Admin]]:
    proxy = Proxy()
    admin = Admin(proxy.metrics, proxy.clients, lambda: None)
    address = HostPort(LOOPBACK, free_port())
    await admin.start(settings((), 1, admin=address, **told))
    try:
        yield f"https://{address}", admin
    finally:
        await admin.stop()


async def asking(url: str, authorization: str, context: ssl.SSLContext) -> int:
    headers = {"Authorization": authorization} if authorization else {}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=context) as response:
        return response.status


@in_loop
async def test_who_comes_while_a_successor_takes_over_is_served_by_one_of_them(tmp_path: Path) -> None:
    address = HostPort(LOOPBACK, free_port())
    told = settings((), 1, admin=address, admin_socket=str(tmp_path / "s"))
    first = Admin(Proxy().metrics, Proxy().clients, lambda: "first")
    second = Admin(Proxy().metrics, Proxy().clients, lambda: "second")
    await first.start(told)

    async def reason(path: str = "") -> str:
        connector = aiohttp.UnixConnector(path) if path else None
        url = f"http://{address}/readyz"
        async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as response:
            return str((await response.json())["reason"])

    second.bind(told, Inherited([each.dup() for each in first.sockets]))
    assert await reason() == "first"
    await first.leave()
    assert first.sockets == []
    waiting = asyncio.create_task(reason())
    await turns()
    assert not waiting.done()
    await second.serve()
    assert await waiting == "second"
    await first.stop()
    assert await reason(str(tmp_path / "s")) == "second"
    await second.stop()
    assert not (tmp_path / "s").exists()


@in_loop
async def test_silent_connections_keep_no_probe_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_door, "MOST", 4)
    async with serving(Proxy()) as url:
        host, _, port = url.removeprefix("http://").rpartition(":")
        crowd = [await asyncio.open_connection(host, int(port)) for _ in range(6)]
        assert await soon(crowd[0][0].read()) == b""
        assert (await get(f"{url}/healthz"))[0] == 200
        for _, writer in crowd:
            writer.close()


@in_loop
async def test_where_everybody_may_read_who_the_clients_are_is_told_under_own_names_only(tmp_path: Path) -> None:
    """A page whose name points here comes by that. Prometheus comes by a service's name, and is told totals only."""
    address = HostPort(LOOPBACK, free_port())
    told: dict[str, Any] = {"admin": address, "admin_hosts": ("ours.example",), "admin_socket": str(tmp_path / "s")}

    async def asked(page: str, host: str, path: str = "", token: str = "") -> int:
        connector = aiohttp.UnixConnector(path) if path else None
        headers = {"Host": host, **({"Authorization": f"Bearer {token}"} if token else {})}
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"http://{address}/{page}", headers=headers) as response,
        ):
            return response.status

    admin = Admin(Proxy().metrics, Proxy().clients, lambda: None)
    await admin.start(settings((), 1, **told))
    assert await asked("clients", "evil.example:9091") == 403
    assert await asked("clients", "ours.example") == 200
    assert await asked("clients", f"{LOOPBACK}:9091") == 200
    assert await asked("metrics", "forebay.monitoring.svc:9091") == 200
    assert await asked("clients", "evil.example", str(tmp_path / "s")) == 200
    alias = by_url(f"http://{address}", read(None))
    alias._headers["Host"] = "alias.example"
    with pytest.raises(AdminError, match=r"403: Host is not a name of this endpoint; admin\.hosts may add it"):
        await asyncio.to_thread(fetch, alias)
    assert (await asyncio.to_thread(fetch, by_url(f"http://{address}", read(None)))).rows
    await admin.stop()
    admin = Admin(Proxy().metrics, Proxy().clients, lambda: None)
    await admin.start(settings((), 1, admin=address, admin_bearer_token=Secret(TOKEN)))
    assert await asked("clients", "by.any.name", token=TOKEN) == 200
    await admin.stop()
