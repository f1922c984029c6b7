"""Which client connections take no requests for now, and why, for whoever looks for a fault.

In: the connections of a process. Out: what JSON has a form for, of bounded size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from forebay_proxy.clients.client_connection import ClientConnection

MOST: Final = 100


def held(connections: Iterable[ClientConnection]) -> dict[str, Any]:
    """`reasons` counts all by what holds them; `some` are MOST of them at most."""
    reasons: Counter[str] = Counter()
    found = []
    total = 0
    for connection in connections:
        total += 1
        holds = sorted(connection.holds)
        reasons.update(holds)
        if holds:
            found.append((connection, holds))
    some = [
        {"client": connection.peer, "holds": holds, "unanswered": connection.awaiting}
        for connection, holds in islice(found, MOST)
    ]
    return {"connections": total, "held": len(found), "reasons": dict(reasons), "some": some}
