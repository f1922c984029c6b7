"""The I/O of a client connection's state: its transport is read, held and closed as the state says.

In: reasons to hold and release, causes to end. Out: the calls of the transport; what is logged and counted of an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from forebay_policies.hold_reason import HoldReason
from forebay_proxy.clients.connection_state import ENDINGS, Cause, ConnectionState, Phase
from forebay_proxy.clients.descriptors import reset, unconfirmed
from forebay_proxy.clients.response_orderer import ResponseOrderer
from forebay_proxy.logs import RateLimited
from forebay_proxy.metrics.traffic import TrafficMetrics


class ConnectionLife:
    """The client is read exactly while nothing holds it, and its connection ends as ENDINGS says, once.

    `take` is called when requests may be taken again, `write` when what is to be written must go out now.
    """

    def __init__(
        self,
        orderer: ResponseOrderer,
        metrics: TrafficMetrics,
        log: RateLimited,
        take: Callable[[], None],
        write: Callable[[], None],
    ) -> None:
        self.state = ConnectionState()
        self.transport: asyncio.Transport | None = None
        self.peer = ""
        """The client's address, for the log."""
        self._orderer = orderer
        self.metrics = metrics
        self._log = log
        self._take = take
        self._write = write

    def begin(self, transport: asyncio.Transport, peer: str) -> None:
        """The connection stands."""
        self.transport = transport
        self.peer = peer
        if self.state.leaving_since is not None:  # its end was told before
            transport.close()

    def hold(self, why: HoldReason) -> None:
        """Take no further requests."""
        if self.state.hold(why) and self.transport is not None:
            self.transport.pause_reading()

    def release(self, why: HoldReason) -> None:
        """Take them again, unless it is held for another reason: what has arrived first, then what is to be read."""
        if self.state.release(why) and self.transport is not None:
            self._take()
            self.read_on()

    def read_on(self) -> None:
        """Read the client, unless something holds it."""
        if self.state.taking and self.transport is not None:
            self.transport.resume_reading()

    def drain(self) -> None:
        """Take no more requests; one that the broker has begun to receive is passed on to its end."""
        if self.state.drain():
            self.hold(HoldReason.DRAINING)

    def end(self, cause: Cause, **keys: object) -> None:
        """As ENDINGS says; `keys` go to the log."""
        self.note(cause, **keys)
        ending = ENDINGS[cause]
        self._enter(ending.phase, resets=ending.resets)

    def note(self, cause: Cause, **keys: object) -> None:
        """Count and log it like that, of what does not end this connection."""
        ending = ENDINGS[cause]
        if ending.metric is not None:
            ending.metric(self.metrics)
        if ending.event:
            ending.log(self._log, ending.event, **keys)

    def answered(self) -> None:
        """All that was asked is answered, and written."""
        if self.state.phase is Phase.LEAVING:
            self._enter(Phase.CLOSING)

    def _enter(self, phase: Phase, *, resets: bool = False) -> None:
        was_read = self.state.taking
        if not self.state.end(phase, monotonic()) or self.transport is None:
            return
        if phase is Phase.CLOSED:
            self._take = _nothing  # its owner, which owns this too
        elif phase is Phase.ABORTED:
            self.transport.abort()
        else:
            if was_read:
                self.transport.pause_reading()
            if phase is Phase.CLOSING:
                self._write()
                if resets and not self.transport.get_write_buffer_size() and not unconfirmed(self.transport):
                    reset(self.transport)  # else it would take along what was written
                else:
                    self.transport.close()
            elif not len(self._orderer):
                self._enter(Phase.CLOSING)


def _nothing() -> None:
    """No request of a connection that has ended is taken."""
