"""Why a client connection takes no further requests for now: the vocabulary of all who may say so."""

from __future__ import annotations

import enum


class HoldReason(enum.StrEnum):
    """One reason. A connection is read again when the last of its reasons has gone.

    Strings, because they hash without a call into Python: they are looked up for every request.
    """

    PENDING_REQUEST = "pending request"
    """Its request, Produce or Metadata, waits for metadata, memory or earlier requests: one at a time waits."""
    LOGIN = "login"
    """Its login here is being looked at, or has failed."""
    CONNECTING = "connecting"
    """Its own upstream connection is being made."""
    BROKER_SLOW = "broker slow"
    """Its broker takes no more bytes for now."""
    CLIENT_SLOW = "client slow"
    """It does not read its responses."""
    IN_FLIGHT = "in flight"
    """As many of its requests are unanswered as may be: `client.max.in.flight.requests`."""
    TURN = "turn"
    """It has had its slice of this turn of the loop, and sent more: others come first."""
    THROTTLED = "throttled"
    """A broker throttles it, and would not read it either until the throttle time is over."""
    JOURNAL = "journal"
    """Its last requests had many partitions, whose rows of the ledger are still to be written."""
    INBOUND_MEMORY = "inbound memory"
    """Its request is incomplete, and memory is short, or much waits for its broker: `queued.max.request.bytes`."""
    DRAINING = "draining"
    """The proxy stops: what was asked is still answered."""
    CLOSING = "closing"
    """The connection ends."""
