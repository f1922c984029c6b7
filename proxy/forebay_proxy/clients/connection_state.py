"""The life of a client connection: whether requests are taken, and how it ends. No I/O, no clock.

In: what happened, `now`. Out: what is to be done with the transport; connection_life carries it out.

    OPEN ──drain──▶ DRAINING        no further requests; one that the broker has begun to receive is passed on whole
      │                │
      ├────────────────┼──────────▶ LEAVING     takes nothing more; closes once all that was asked is answered
      │                │               │
      ├────────────────┼───────────────┼──────▶ CLOSING     closes once what was written has gone out
      │                │               │           │
      ├────────────────┼───────────────┼───────────┼──▶ ABORTED     closes at once
      │                │               │           │       │
      └────────────────┴───────────────┴───────────┴───────┴──▶ CLOSED     the transport is gone

A phase is never left backwards: what ends more gently than the phase that is reached changes nothing. After CLOSED
nothing may happen any more: that is a fault in the proxy, RuntimeError.

While OPEN or DRAINING the connection may be *held*, for one HoldReason or several: then the client is not read, and
what has arrived waits. From LEAVING on it is held for good.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, NamedTuple

from forebay_policies.hold_reason import HoldReason
from forebay_proxy.logs import RateLimited
from forebay_proxy.metrics.traffic import TrafficMetrics


class Phase(enum.IntEnum):
    """How far a connection is on its way, in order."""

    OPEN = 0
    DRAINING = 1
    LEAVING = 2
    CLOSING = 3
    ABORTED = 4
    CLOSED = 5


class Cause(enum.Enum):
    """Why a connection ends. ENDINGS says how."""

    # Its client
    CLIENT_LEFT = "client left"
    CLIENT_CUT_OFF = "client left in the middle of a request"
    CLIENT_DONE = "client sends no more"
    MALFORMED = "malformed"
    TOO_LARGE = "too large"
    UNKNOWN_API = "unknown API"
    UNSUPPORTED_VERSION = "unsupported version"
    STALLED = "stalled"
    NOT_TAKEN = "answers not taken"
    LOGIN_REFUSED = "login refused"
    LOGIN_TIMED_OUT = "login timed out"
    # Its broker
    RECORDS_REFUSED = "records without acks refused"
    NO_ANSWER = "no answer"
    NO_ROOM = "no room"
    BROKER_UNKNOWN = "broker unknown"
    BROKER_UNREACHABLE = "broker unreachable"
    BROKER_LOST = "broker lost"
    BROKER_DEAF = "broker deaf"
    LOGIN_LOST = "login lost"
    SESSION_OVER = "session over"
    BROKER_MALFORMED = "broker malformed"
    # The proxy
    NOT_ADMITTED = "not admitted"
    TOLD_TO_CLOSE = "told to close"
    TOLD_TO_ABORT = "told to abort"
    TOO_OLD = "too old"


class Ending(NamedTuple):
    """One way a connection ends: the phase that it enters, what is logged, what is counted.

    `resets`: its broker is away, and so would the connection be: by a reset, which clients try again after. One that is
    closed in order before its first answer tells some (franz-go) that the broker wants TLS or a login, for good.
    """

    phase: Phase
    event: str = ""
    log: Callable[..., None] = RateLimited.warning
    metric: Callable[[TrafficMetrics], None] | None = None
    resets: bool = False


def _refused(reason: str) -> Callable[[TrafficMetrics], None]:
    """forebay_frames_refused_total{reason}, and with it forebay_errors_total{side=client, kind=protocol}."""
    return lambda metrics: metrics.refused(reason)


_BROKE = "closing a client that broke the protocol"
_NOT_OFFERED = "closing a client that asks for what is not offered"

# Every way a connection can end. The phase tells what is answered before: LEAVING all that was asked, CLOSING what was
# written by then, ABORTED and CLOSED nothing more. Beside these are only the ones that never begin: beyond
# max.connections the registry closes the transport.
ENDINGS: Final[dict[Cause, Ending]] = {
    # The client closed or reset it. Records that it sent without acks still go to its broker.
    Cause.CLIENT_LEFT: Ending(Phase.CLOSED),
    Cause.CLIENT_CUT_OFF: Ending(Phase.CLOSED, metric=TrafficMetrics.cut_off),
    # It has closed its sending half, or all: which of both, only writing would tell. A broker answers it, too.
    Cause.CLIENT_DONE: Ending(Phase.LEAVING),
    # A frame whose size cannot be right, is above socket.request.max.bytes; an API that ApiVersions does not name.
    Cause.MALFORMED: Ending(Phase.LEAVING, _BROKE, metric=_refused("malformed")),
    Cause.TOO_LARGE: Ending(Phase.LEAVING, _BROKE, metric=_refused("too_large")),
    Cause.UNKNOWN_API: Ending(Phase.LEAVING, _NOT_OFFERED, metric=_refused("unknown_api")),
    Cause.UNSUPPORTED_VERSION: Ending(Phase.LEAVING, _NOT_OFFERED, metric=_refused("unsupported_version")),
    # The inbound_memory found that its request does not go on.
    Cause.STALLED: Ending(Phase.ABORTED, "closing a client whose request does not go on", metric=_refused("stalled")),
    # The response_memory or untaken_answers found a large answer that it does not take, and others need the memory.
    Cause.NOT_TAKEN: Ending(
        Phase.ABORTED, "closing a client that does not take its answers in time", metric=_refused("not_taken")
    ),
    # It did not prove who it is (terminated_login), which has been answered by then, or did not in time.
    Cause.LOGIN_REFUSED: Ending(Phase.LEAVING, "closing a client whose login was refused"),
    Cause.LOGIN_TIMED_OUT: Ending(Phase.CLOSING, "closing a client that does not log in"),
    # acks=0: a broker that refuses closes the connection, since it has no other way to say so.
    Cause.RECORDS_REFUSED: Ending(Phase.LEAVING, "acks=0 records refused, closing the client"),
    # ApiVersions or Metadata that no broker answers in time.
    Cause.NO_ANSWER: Ending(Phase.CLOSING, resets=True),
    # Metadata for which untaken_answers has found no room in time.
    Cause.NO_ROOM: Ending(
        Phase.CLOSING, "closing a client whose answer waits for others to read theirs", metric=_refused("no_room")
    ),
    # Another broker stands in for it, which may say where it is, and nothing else.
    Cause.BROKER_UNKNOWN: Ending(Phase.LEAVING, "a client must come again to reach its broker", RateLimited.info),
    Cause.BROKER_UNREACHABLE: Ending(
        Phase.CLOSING, "no connection to the broker for a client", metric=TrafficMetrics.connect_failed, resets=True
    ),
    # The broker closed it with answers outstanding, or records without acks perhaps unread.
    Cause.BROKER_LOST: Ending(
        Phase.CLOSING, "broker closed a client's connection", RateLimited.info, TrafficMetrics.upstream_lost
    ),
    # Its client had gone before; the end of what it had left behind, records without acks perhaps.
    Cause.BROKER_DEAF: Ending(
        Phase.ABORTED,
        "a broker does not read what a client sent before it left: given up",
        metric=TrafficMetrics.upstream_lost,
    ),
    # The broker closed it idle, and a new one would not know who the client is.
    Cause.LOGIN_LOST: Ending(Phase.CLOSING),
    # A broker would close its connection at this request: it should have logged in again before (KIP-368).
    Cause.SESSION_OVER: Ending(Phase.LEAVING, "a client must log in again", RateLimited.info),
    Cause.BROKER_MALFORMED: Ending(
        Phase.ABORTED, "broker broke the protocol", RateLimited.error, TrafficMetrics.upstream_protocol
    ),
    # Beyond max.connections.per.ip. The registry logs and counts it.
    Cause.NOT_ADMITTED: Ending(Phase.CLOSING),
    # Idle, in another's way (the registry logs it), or the last step of a drain.
    Cause.TOLD_TO_CLOSE: Ending(Phase.CLOSING),
    # Beyond connections.max.age.ms, at a moment when nothing is owed.
    Cause.TOO_OLD: Ending(Phase.CLOSING),
    # LEAVING or CLOSING for longer than request.timeout.ms, or the proxy stops without a drain.
    Cause.TOLD_TO_ABORT: Ending(Phase.ABORTED),
}


class ConnectionState:
    """Requests are taken only while no reason holds the connection, and none after its end has begun.

    `taking`   requests are taken: it is not held
    `over`     ABORTED or CLOSED: nothing is written any more
    `passing`  a request has begun to go to the broker, and has not wholly gone
    `done`     the client sends no more, and may have left
    """

    __slots__ = ("done", "holds", "leaving_since", "over", "passing", "phase", "taking")

    def __init__(self) -> None:
        self.phase = Phase.OPEN
        self.holds: set[HoldReason] = set()
        self.taking = True
        self.over = False
        self.passing = False
        self.done = False
        self.leaving_since: float | None = None

    def hold(self, why: HoldReason) -> bool:
        """True: stop reading the client."""
        stops = self.taking
        self.holds.add(why)
        self.taking = False
        return stops

    def release(self, why: HoldReason) -> bool:
        """True: read the client, and take what has arrived."""
        self.holds.discard(why)
        self.taking = not self.holds and not self.over
        return self.taking

    def drain(self) -> bool:
        """True: hold it. Else a request is passing, and `passed` will say so."""
        if self.phase is Phase.OPEN:
            self.phase = Phase.DRAINING
        elif self.phase is Phase.CLOSED:
            raise RuntimeError("a closed connection is to drain")
        return not self.passing

    def passed(self) -> bool:
        """The passing request has wholly gone. True: it was the last, hold the connection."""
        self.passing = False
        return self.phase is Phase.DRAINING

    def end(self, phase: Phase, now: float) -> bool:
        """Enter LEAVING or a later phase, and take no more requests. False: it has come as far already."""
        if phase < Phase.LEAVING:
            raise RuntimeError(f"{phase.name} is not an end")
        if self.phase is Phase.CLOSED:
            raise RuntimeError(f"{phase.name} after CLOSED")
        if phase <= self.phase:
            return False
        self.phase = phase
        if self.leaving_since is None:
            self.leaving_since = now
        self.over = phase >= Phase.ABORTED
        self.hold(HoldReason.CLOSING)
        return True

    def leaving_for(self, now: float) -> float:
        """Seconds since its end began: answers, or what was written, are still on their way. 0: it has not."""
        return now - self.leaving_since if self.leaving_since is not None else 0.0
