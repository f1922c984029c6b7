"""What a service manager is told (systemd's sd_notify protocol): that Forebay serves, is alive, and is leaving.

In: NOTIFY_SOCKET, the service manager's datagram socket; nobody is told where it is not set. A name that begins with @
is an abstract one. WATCHDOG_USEC, within which it wants to hear that Forebay is alive, and WATCHDOG_PID, from whom.
Sources: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from forebay_proxy.logs import get_logger
from forebay_proxy.process.lifecycle import Stop

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG: Final = "WATCHDOG_USEC"
WATCHED: Final = "WATCHDOG_PID"
_TIMES: Final = 4
"""So often within the watchdog's time: a busy loop may be late."""


async def keep_told(
    started: Callable[[], Awaitable[object]], stop: Stop, environ: Mapping[str, str], patience_s: float
) -> None:
    """READY once `started` has returned: listeners accept, whether or not a broker answers; STOPPING once draining.

    Not where another process is the service by then. A drain may take `patience_s` seconds, though the service manager
    was told less.
    """
    await started()
    notify("READY=1\nSTATUS=serving", environ)
    await stop.draining.wait()
    if not stop.succeeded:
        notify(f"STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC={patience_s * 1_000_000:.0f}", environ)


async def keep_alive(
    started: Callable[[], Awaitable[object]],
    stop: Stop,
    environ: Mapping[str, str],
    unhealthy: Callable[[], str | None],
) -> None:
    """WATCHDOG from `started` on, where it is wanted, unless the event loop hangs or something is `unhealthy`.

    A drain has an end of its own, and is let come to it. Not where another process is the service by then.
    """
    period_s = _watchdog_s(environ)
    if not period_s:
        return
    await started()
    while True:
        if not stop.succeeded and (stop.draining.is_set() or unhealthy() is None):
            notify("WATCHDOG=1", environ)
        await asyncio.sleep(period_s / _TIMES)


def _watchdog_s(environ: Mapping[str, str]) -> float:
    """Seconds; 0: this process is not watched."""
    period = environ.get(WATCHDOG, "")
    if not period.isdecimal() or environ.get(WATCHED, _own_id()) != _own_id():
        return 0
    return int(period) / 1_000_000


def for_successor(environ: Mapping[str, str]) -> dict[str, str]:
    """What a process has that is to be the service instead of this one: where this one is watched, that one will be."""
    return {name: value for name, value in environ.items() if (name, value) != (WATCHED, _own_id())}


def _own_id() -> str:
    return str(os.getpid())


def notify(state: str, environ: Mapping[str, str]) -> None:
    """Send `state`, lines of NAME=VALUE. A service manager that does not listen is a line in the log."""
    address = environ.get(SOCKET)
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
            telling.settimeout(0)
            telling.sendto(state.encode(), address)
    except OSError as error:
        get_logger().warning("the service manager cannot be told", state=state.split("\n")[0], error=str(error))
