"""Which port of which listener stands for which broker. No I/O.

    listener on port P → bootstrap; broker n → its node.ports[n], else P + 1 + n, or none with node.ports.only

The same in every worker and after every restart, since clients remember addresses: a port depends on settings and the
node id only, never on who came first. So a port that is named in the settings, of whichever listener, is nobody
else's, and what is counted up from P ends before the next listener's port. Nor is one a broker's that clients are told
for another (advertised.node.ports): they would take the two for one.

Example, listeners on 9092 and 9192: brokers 0 to 98 of the first are on 9093 to 9191, and broker 99 needs node.ports.
"""

from __future__ import annotations

from collections.abc import Sequence

from forebay_proxy.config.kinds import MAX_PORT
from forebay_proxy.config.listeners import ClientListener


class ListenerPorts:
    """No port stands for two brokers, or for one broker on two listeners."""

    def __init__(self, listeners: Sequence[ClientListener]) -> None:
        self._named = {listener.port for listener in listeners}
        for listener in listeners:
            self._named.update(listener.node_ports.values())
        starts = sorted(listener.port for listener in listeners)
        self._ends = dict(zip(starts, [*starts[1:], MAX_PORT + 1], strict=True))

    def of(self, listener: ClientListener, node_id: int) -> int | None:
        """The port of a broker on one of the listeners; None: none is free for it."""
        if node_id in listener.node_ports:
            port = listener.node_ports[node_id]
        elif listener.told.node_ports_only:
            return None
        else:
            port = listener.port + 1 + node_id
            counted_up = listener.port < port < self._ends[listener.port]
            if not counted_up or port in self._named:
                return None
        translated = listener.told.advertised_node_ports
        return port if node_id in translated or port not in translated.values() else None
