"""A stranger's page cannot have what is here, under whatever name it asks."""

from __future__ import annotations

import socket
from threading import Event

import pytest

from forebay_proxy.metrics.own_hosts import OwnHosts
from tests.kit.event_loop import in_loop, until

HOSTS = OwnHosts("proxy-1.example", ("forebay.example.net",))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:9091",
        "10.1.2.3",
        "[::1]:9091",
        "[fe80::1%25eth0]:9091",
        "localhost:9091",
        "x.localhost",
        "proxy-1.example:9091",
        "PROXY-1.example",
        "forebay.example.net",
        socket.gethostname(),
    ],
)
def test_own_names_and_addresses(host: str) -> None:
    assert HOSTS.refusal({"Host": host}) is None
    assert HOSTS.refusal({"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "127.0.0.1.evil.example:9091",
        "localhost.evil.example",
        "forebay.example.net.evil",
        "[::1",
    ],
)
def test_names_that_point_here(host: str) -> None:
    assert HOSTS.refusal({"Host": host}) is not None


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:8080", "http://localhost:9091", "http://[", "http://[x]"],
)
def test_pages_of_others(origin: str) -> None:
    assert HOSTS.refusal({"Host": "127.0.0.1:9091", "Origin": origin}) is not None
    assert HOSTS.refusal({"Host": "127.0.0.1:9091", "Origin": origin, "Sec-Fetch-Site": "cross-site"}) is not None


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_another_site_whatever_origin_they_name(site: str) -> None:
    headers = {"Host": "127.0.0.1:9091", "Origin": "http://127.0.0.1:9091", "Sec-Fetch-Site": site}
    assert HOSTS.refusal(headers) == "asked for by a page of another site"


def test_a_link_from_elsewhere_may_lead_here() -> None:
    assert HOSTS.refusal({"Host": "127.0.0.1:9091", "Sec-Fetch-Site": "cross-site"}) is None


@in_loop
async def test_nobody_waits_for_a_slow_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Event()

    def slow() -> str:
        answers.wait()
        return "Proxy-1.internal.example"

    monkeypatch.setattr(socket, "getfqdn", slow)
    hosts = OwnHosts("127.0.0.1", ())
    assert hosts.refusal({"Host": "proxy-1.internal.example:9091"}) is not None
    answers.set()
    await until(lambda: hosts.refusal({"Host": "proxy-1.internal.example:9091"}) is None)
