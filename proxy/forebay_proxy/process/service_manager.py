"""What a service manager is told (systemd's sd_notify protocol): that Forebay serves, and that it is leaving.

In: NOTIFY_SOCKET, the service manager's datagram socket; nobody is told where it is not set. A name that begins with @
is an abstract one. Source: sd_notify(3).
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from forebay_proxy.logs import get_logger
from forebay_proxy.process.lifecycle import Stop

SOCKET: Final = "NOTIFY_SOCKET"


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
