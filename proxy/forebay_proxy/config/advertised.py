"""Whether what clients are told outlives the Forebay that told it. No I/O.

Without a host of its own to tell, a listener tells the address at which a client has reached it. Behind a balancer that
is the address of this pod or machine, and most clients never ask bootstrap.servers again (Java's do since KIP-899, in
3.8, and by default since 4.0): once it is replaced, they are stranded.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Final

from forebay_proxy.config.listeners import ClientListener
from forebay_proxy.config.security import is_loopback
from forebay_proxy.config.settings import Settings

KUBERNETES: Final = "KUBERNETES_SERVICE_HOST"
"""Set in every pod."""


def may_strand(settings: Settings, environ: Mapping[str, str]) -> Iterator[ClientListener]:
    """Listeners that tell whatever address they are reached at: those on all of them, and in a pod on any of its own.

    An address that was chosen elsewhere was chosen by somebody who knows it, and this host's own reaches nobody else.
    """
    for listener in settings.client_listeners:
        told = listener.advertised_host or listener.told.advertised_address
        if not told and not is_loopback(listener.host) and (KUBERNETES in environ or _is_any(listener.host)):
            yield listener


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
