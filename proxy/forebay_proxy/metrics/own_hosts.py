"""Whether a request may come from where it says: against DNS rebinding, and against pages of others that ask.

A page of a stranger can have its name point here, and then read what is here as if it were its own: the browser sends
the stranger's name as Host. So Host must be an address, this host's own name, or one that `admin.hosts` has; and
Origin, where a browser sends it, must be the same as Host.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from threading import Thread
from urllib.parse import urlsplit

LOCAL = "localhost"


class OwnHosts:
    """`host` is where the admin endpoint listens, `more` are further names for it."""

    def __init__(self, host: str, more: Iterable[str]) -> None:
        self._names = {name.casefold() for name in (host, LOCAL, socket.gethostname(), *more)}
        Thread(target=self._ask_for_the_full_name, daemon=True).start()  # the resolver may take long

    def _ask_for_the_full_name(self) -> None:
        self._names.add(socket.getfqdn().casefold())

    def refusal(self, headers: Mapping[str, str]) -> str | None:
        """Why a request with these headers is refused; None: it is not. Header names in any case."""
        host = headers.get("Host", "")
        if not self._is_ours(host):
            return "Host is not a name of this endpoint; admin.hosts may add it"
        origin = headers.get("Origin")
        if origin is not None and _netloc(origin) != host.casefold():
            return "asked for by a page of another origin"
        if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and "Origin" in headers:
            return "asked for by a page of another site"
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._names or name.endswith(f".{LOCAL}"):
            return True
        try:
            ip_address(name.partition("%")[0])
        except ValueError:
            return False
        return True


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.casefold()
    except ValueError:
        return None
