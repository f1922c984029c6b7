"""Who may change things, and by what requests; reading is in test_api.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forebay_proxy.config.secret import Secret
from forebay_proxy.console.entry import PREFIX
from forebay_proxy.metrics.admin import LARGEST_BODY
from tests.kit.event_loop import in_loop
from tests.proxy.console.seen import Seen
from tests.proxy.console.served import served

RELOAD = f"{PREFIX}reload"
TOKEN: dict[str, Any] = {"admin_change_token": Secret("sesame"), "admin_bearer_token": Secret("read")}
SHOWN = "Bearer sesame"


@in_loop
async def test_the_socket_takes_changes_from_everybody_who_may_use_it(tmp_path: Path) -> None:
    async with served(Seen(), admin_socket=str(tmp_path / "s"), admin_bearer_token=Secret("read")) as forebay:
        status, told = await forebay.ask("POST", RELOAD, by_socket=True, Host="evil.example")
        assert (status, told["generation"]) == (200, 2)
        assert (await forebay.ask("GET", f"{PREFIX}overview", by_socket=True))[0] == 200
        assert (await forebay.ask("GET", "/metrics", by_socket=True))[0] == 200


@in_loop
async def test_the_port_is_for_reading_only_where_no_token_for_changes_is_set() -> None:
    async with served(Seen()) as forebay:
        status, told = await forebay.ask("POST", RELOAD, Authorization=SHOWN)
        assert (status, "admin.socket" in told["error"]) == (403, True)
        assert forebay.control.done == []


@in_loop
@pytest.mark.parametrize(
    ("shown", "status"), [(SHOWN, 200), ("Bearer read", 403), ("Bearer other", 401), ("", 401), ("sesame", 401)]
)
async def test_by_the_port_the_token_for_changes_is_needed(shown: str, status: int) -> None:
    async with served(Seen(), **TOKEN) as forebay:
        assert (await forebay.ask("POST", RELOAD, Authorization=shown))[0] == status
        assert len(forebay.control.done) == (status == 200)


@in_loop
async def test_the_token_alone_does_not_let_a_stranger_s_page_change_things() -> None:
    async with served(Seen(), **TOKEN) as forebay:
        assert (await forebay.ask("POST", RELOAD, Authorization=SHOWN, Host="evil.example"))[0] == 403
        assert (await forebay.ask("POST", RELOAD, Authorization=SHOWN, Origin="http://evil.example"))[0] == 403
        assert forebay.control.done == []


@in_loop
async def test_changes_are_not_to_be_had_by_links_and_forms(tmp_path: Path) -> None:
    async with served(Seen(), admin_socket=str(tmp_path / "s"), **TOKEN) as forebay:
        for by_socket in (False, True):
            for method in ("GET", "HEAD", "PUT", "DELETE"):
                found = await forebay.ask(method, RELOAD, by_socket=by_socket, Authorization=SHOWN)
                assert found[0] == 405, method
            for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
                found = await forebay.ask("POST", RELOAD, by_socket=by_socket, Authorization=SHOWN, Content_Type=kind)
                assert found[0] == 415, kind
        assert forebay.control.done == []


@in_loop
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 200),
        (b"{}", 200),
        (b"[]", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b'{"\xff":1}', 400),
        (b'{"x":' + b"[" * 20_000, 400),
        (b" " * (LARGEST_BODY + 1), 413),
    ],
)
async def test_the_body_is_an_object_and_bounded(body: bytes, status: int) -> None:
    async with served(Seen(), **TOKEN) as forebay:
        assert (await forebay.ask("POST", RELOAD, body, Authorization=SHOWN))[0] == status
