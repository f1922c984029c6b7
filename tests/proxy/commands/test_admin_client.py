"""Commands that go through the socket: what they ask, and what they say where nobody answers."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path

import pytest

from forebay_proxy.commands.admin_client import AdminClient
from forebay_proxy.commands.admin_endpoint import AdminError
from tests.kit.event_loop import in_loop
from tests.proxy.console.seen import Seen
from tests.proxy.console.served import served


@in_loop
async def test_it_is_answered_or_told_why_not(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    async with served(Seen(), admin_socket=path) as forebay:
        assert (await asyncio.to_thread(AdminClient(path).ask, "POST", "reload"))["generation"] == 2
        forebay.control.refuses = "worker 1 cannot"
        with pytest.raises(AdminError, match=r"^worker 1 cannot$"):
            await asyncio.to_thread(AdminClient(path).ask, "POST", "reload")


def test_nobody_is_there(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with pytest.raises(AdminError, match="No such file or directory: is Forebay running"):
        AdminClient(path).ask("POST", "reload")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with pytest.raises(AdminError, match="Connection refused: is Forebay running"):
        AdminClient(path).ask("POST", "reload")


@in_loop
async def test_somebody_else_is_there(tmp_path: Path) -> None:
    path = str(tmp_path / "s")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        with pytest.raises(AdminError, match="answers with 200 and no JSON: is it Forebay"):
            await asyncio.to_thread(AdminClient(path).ask, "POST", "reload")
