"""What the API changes, and how it says that it does not; who may do so is in test_entry.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from forebay_proxy.console.entry import PREFIX
from tests.kit.event_loop import in_loop
from tests.proxy.console.seen import Seen
from tests.proxy.console.served import OVERRIDE, Served, served


@asynccontextmanager
async def steered(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(Seen(), admin_socket=str(tmp_path / "s")) as forebay:
        yield forebay


@in_loop
async def test_a_reload_says_what_has_changed_or_why_nothing_has(tmp_path: Path) -> None:
    async with steered(tmp_path) as forebay:
        told = await forebay.ask("POST", f"{PREFIX}reload", by_socket=True)
        assert told == (200, {"generation": 2, "changes": {"topics.include": "* → a"}})
        forebay.control.refuses = "worker 1: no answer within 10 s"
        told = await forebay.ask("POST", f"{PREFIX}reload", by_socket=True)
        assert told == (409, {"error": "worker 1: no answer within 10 s"})
        assert (await forebay.ask("POST", f"{PREFIX}reload", b'{"x": 1}', by_socket=True))[0] == 400
        assert forebay.control.done == [("reload",)]


@in_loop
async def test_a_restart_says_who_serves_or_why_nobody_else_does(tmp_path: Path) -> None:
    async with steered(tmp_path) as forebay:
        assert await forebay.ask("POST", f"{PREFIX}restart", by_socket=True) == (200, {"process": 4711})
        forebay.control.refuses = "the successor is not ready"
        told = await forebay.ask("POST", f"{PREFIX}restart", by_socket=True)
        assert told == (409, {"error": "the successor is not ready"})
        assert (await forebay.ask("POST", f"{PREFIX}restart"))[0] == 403
        assert forebay.control.done == [("restart",)]


OVERRIDES = f"{PREFIX}overrides"


@in_loop
async def test_overrides_are_added_listed_and_ended(tmp_path: Path) -> None:
    async with steered(tmp_path) as forebay:
        asked = b'{"settings": {"linger.ms": 5, "topics.exclude": ["a"]}, "reason": "a test", "for_ms": 1500}'
        assert await forebay.ask("POST", OVERRIDES, asked, by_socket=True) == (200, {"rows": [OVERRIDE]})
        asked = b'{"settings": {"linger.ms": "5"}, "reason": "a test"}'
        assert (await forebay.ask("POST", OVERRIDES, asked, by_socket=True))[0] == 200
        assert await forebay.ask("GET", OVERRIDES, by_socket=True) == (200, {"rows": [OVERRIDE]})
        assert await forebay.ask("GET", OVERRIDES) == (200, {"rows": [OVERRIDE]}), "whoever may read sees them"
        assert await forebay.ask("DELETE", f"{OVERRIDES}/linger.ms", b"", by_socket=True) == (200, {"rows": []})
        assert forebay.control.done == [
            ("override", {"linger.ms": 5, "topics.exclude": ["a"]}, "a test", 1.5),
            ("override", {"linger.ms": "5"}, "a test", None),
            ("restore", "linger.ms"),
        ]


@in_loop
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "", b"{}", 400),
        ("POST", "", b'{"settings": {"linger.ms": 5}}', 400),
        ("POST", "", b'{"settings": {"linger.ms": 5}, "reason": "x", "for": 5}', 400),
        ("POST", "", b'{"settings": {"linger.ms": 5}, "reason": "x", "for_ms": "5"}', 400),
        ("POST", "", b'{"settings": {"linger.ms": 5}, "reason": "x", "for_ms": 1%b}' % (b"0" * 400), 400),
        ("POST", "", b'{"settings": {"linger.ms": {}}, "reason": "x"}', 400),
        ("POST", "", b'{"settings": {"linger.ms": 5}, "reason": "none"}', 400),
        ("DELETE", "/max.connections", b"", 404),
        ("DELETE", "/linger.ms", b'{"x": 1}', 400),
        ("DELETE", "", b"", 405),
        ("GET", "/linger.ms", b"", 405),
        ("PUT", "", b"{}", 405),
    ],
)
async def test_what_cannot_be_meant_is_said(tmp_path: Path, method: str, path: str, body: bytes, status: int) -> None:
    async with steered(tmp_path) as forebay:
        found, told = await forebay.ask(method, OVERRIDES + path, body, by_socket=True)
        assert found == status
        assert status == 405 or told["error"]
        assert forebay.control.done == []


@in_loop
async def test_whoever_may_only_read_cannot_override() -> None:
    async with served(Seen()) as forebay:
        asked = b'{"settings": {"linger.ms": 5}, "reason": "a test"}'
        assert (await forebay.ask("POST", OVERRIDES, asked))[0] == 403
        assert (await forebay.ask("DELETE", f"{OVERRIDES}/linger.ms", b""))[0] == 403
        assert forebay.control.done == []


BROKER = f"{PREFIX}brokers/3"
WHY = b'{"reason": "a test", "for_ms": 1500}'


@in_loop
async def test_a_broker_is_avoided_and_no_longer(tmp_path: Path) -> None:
    async with steered(tmp_path) as forebay:
        assert await forebay.ask("POST", f"{BROKER}/avoid", WHY, by_socket=True) == (200, {"rows": [OVERRIDE]})
        assert await forebay.ask("DELETE", f"{BROKER}/avoid", b"", by_socket=True) == (200, {"rows": []})
        assert forebay.control.done == [("avoid", 3, "a test", 1.5), ("no longer avoid", 3)]
        forebay.control.refuses = "no other would be left"
        assert (await forebay.ask("POST", f"{BROKER}/avoid", WHY, by_socket=True))[0] == 409


@in_loop
async def test_a_drain_must_be_meant_and_says_what_is_left(tmp_path: Path) -> None:
    left = {"queued_bytes": 5, "in_flight_requests": 1, "drained": False}
    async with steered(tmp_path) as forebay:
        for body in (WHY, b'{"reason": "a test", "confirm": false}'):
            status, told = await forebay.ask("POST", f"{BROKER}/drain", body, by_socket=True)
            assert (status, told) == (400, {"error": "confirm must be true"})
        assert forebay.control.done == []
        meant = b'{"reason": "a test", "confirm": true}'
        told = await forebay.ask("POST", f"{BROKER}/drain", meant, by_socket=True)
        assert told == (200, {"rows": [OVERRIDE], **left})
        assert forebay.control.done == [("avoid", 3, "a test", None)]
        assert await forebay.ask("GET", f"{BROKER}/drain") == (200, left), "whoever may read may look"


@in_loop
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "7/avoid", WHY, 404),
        ("DELETE", "7/avoid", b"", 404),
        ("GET", "7/drain", b"", 404),
        ("POST", "x/avoid", WHY, 404),
        ("POST", "-1/avoid", WHY, 404),
        ("GET", "3/avoid", b"", 405),
        ("POST", "3/avoid", b"{}", 400),
        ("DELETE", "3/drain", b"", 405),
    ],
)
async def test_what_cannot_be_meant_of_a_broker(
    tmp_path: Path, method: str, path: str, body: bytes, status: int
) -> None:
    async with steered(tmp_path) as forebay:
        assert (await forebay.ask(method, f"{PREFIX}brokers/{path}", body, by_socket=True))[0] == status
        assert forebay.control.done == []


@in_loop
async def test_whoever_may_only_read_cannot_avoid() -> None:
    async with served(Seen()) as forebay:
        for path in ("avoid", "drain"):
            assert (await forebay.ask("POST", f"{BROKER}/{path}", WHY))[0] == 403


@in_loop
async def test_a_dump_is_to_be_read() -> None:
    async with served(Seen()) as forebay:
        assert await forebay.ask("GET", f"{PREFIX}debug/dump") == (200, {"workers": []})
        assert (await forebay.ask("POST", f"{PREFIX}debug/dump"))[0] == 405
        assert (await forebay.ask("GET", f"{PREFIX}debug/dump", Host="evil.example"))[0] == 403
