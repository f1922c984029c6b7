"""Forebay as its users run it: a process of its own, started on free ports and stopped at the end.

In: the brokers' addresses. Out: the address that a client bootstraps from. Wrong: ForebayFailed, with the last lines
that the process wrote. However the block is left, the process is gone afterwards: SIGTERM, and SIGKILL if it stays.
"""

from __future__ import annotations

import asyncio
import random
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import IO, Final

_HOST: Final = "127.0.0.1"
_NODES: Final = 3
_PORTS: Final = range(20_000, 32_000)
"""Below the ports that systems give to outgoing connections, of which the demo opens hundreds."""
_START_TIMEOUT: Final = 20.0
_STOP_TIMEOUT: Final = 15.0
_READY_POLL: Final = 0.05
_LINES_SHOWN: Final = 20


class ForebayFailed(RuntimeError):
    """The process ended early, /readyz did not answer 200 in time, or SIGTERM did not end it."""


def free_ports(rng: random.Random) -> tuple[int, int]:
    """(listen port, admin port); behind the first, the ports of the nodes 1 to 3 are free as well: P + 1 + n."""
    for _ in range(100):
        base = rng.choice(_PORTS)
        if _all_free([base + step for step in range(_NODES + 3)]):
            return base, base + _NODES + 2
    raise ForebayFailed(f"no {_NODES + 3} free ports in a row between {_PORTS.start} and {_PORTS.stop}")


def _all_free(ports: Sequence[int]) -> bool:
    with ExitStack() as stack:
        for port in ports:
            try:
                stack.enter_context(socket.create_server((_HOST, port)))
            except OSError:
                return False
    return True


@asynccontextmanager
async def running_forebay(bootstrap_servers: str, arguments: Sequence[str] = ()) -> AsyncIterator[str]:
    """`forebay run` with its defaults and `arguments`, ready; gives its bootstrap address."""
    listen, admin = free_ports(random.Random())
    command = [sys.executable, "-m", "forebay_proxy.commands.cli", "run", "--bootstrap-servers", bootstrap_servers]
    command += ["--listen", f"{_HOST}:{listen}", "--admin", f"{_HOST}:{admin}", *arguments]
    with tempfile.TemporaryFile() as log:
        # A session of its own: Ctrl-C reaches the demo alone, which then stops Forebay in order.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            await _ready(process, admin, log)
            yield f"{_HOST}:{listen}"
        finally:
            await _stop(process)


async def _ready(process: asyncio.subprocess.Process, admin: int, log: IO[bytes]) -> None:
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            while process.returncode is None:
                if await _answers_ready(admin):
                    return
                await asyncio.sleep(_READY_POLL)
    except TimeoutError:
        raise ForebayFailed(f"not ready within {_START_TIMEOUT:g} s\n{_last_lines(log)}") from None
    raise ForebayFailed(f"ended with {process.returncode}\n{_last_lines(log)}")


async def _answers_ready(admin: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection(_HOST, admin)
    except OSError:
        return False
    try:
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        status = await reader.readline()
    except OSError:
        return False
    finally:
        writer.transport.abort()
    return status.split()[1:2] == [b"200"]


def _last_lines(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").splitlines()[-_LINES_SHOWN:])


async def _stop(process: asyncio.subprocess.Process) -> None:
    try:
        process.terminate()
        async with asyncio.timeout(_STOP_TIMEOUT):
            await process.wait()
    except ProcessLookupError:
        await process.wait()
    except BaseException as error:
        # Too slow, or the demo was told to stop once more while it waited.
        process.kill()
        await process.wait()
        if isinstance(error, TimeoutError):
            raise ForebayFailed(f"still there {_STOP_TIMEOUT:g} s after SIGTERM") from error
        raise
