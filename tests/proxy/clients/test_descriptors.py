"""How many clients the file descriptors are enough for; in processes of their own, since a lowered limit stays."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import cast

import pytest

from forebay_proxy.clients.descriptors import reset, room
from tests.kit.event_loop import in_loop
from tests.kit.ports import LOOPBACK

PROGRAM = """
import json, resource, sys
from forebay_proxy import logs
from forebay_proxy.clients.descriptors import raise_limit
soft, hard, most = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
logs.configure("info", "json")
print(json.dumps([raise_limit(most), *resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "most", "let_in"),
    [
        (256, 1200, 100, 100),
        (256, 1200, 500, 500),
        (256, 1200, 501, 500),
        (1200, 1200, 10_000, 500),
        (64, 64, 10, 1),
        (4096, 4096, 10_000, 1792),
    ],
)
def test_the_limit_is_raised_and_no_more_clients_are_let_in_than_it_is_enough_for(
    soft: int, hard: int, most: int, let_in: int
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(soft), str(hard), str(most)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(result.stdout) == [let_in, hard, hard]
    warnings = [json.loads(line) for line in result.stderr.splitlines()]
    assert [line["let_in"] for line in warnings] == ([let_in] if let_in < most else [])


def test_many_descriptors_are_kept_for_many_brokers_and_what_else_is_asked_for() -> None:
    """Of each kind an eighth: who has given few is short of both."""
    assert [room(limit) for limit in (1_000, 1_600, 8_000, 65_536)] == [400, 700, 3_500, 28_672]
    assert [room(limit, 1024) for limit in (1_000, 1_600, 8_000, 65_536)] == [337, 600, 3_000, 28_160]


@in_loop
async def test_a_reset_is_no_orderly_end() -> None:
    """Nothing had arrived that was not read, by which an abort would be one, too."""
    came: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            came.set_result(cast(asyncio.Transport, transport))  # uvloop's own class, of the same interface

    loop = asyncio.get_running_loop()
    server = await loop.create_server(Accepted, LOOPBACK, 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    reset(await came)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    server.close()
