"""Whom brokers throttle and until when, and which brokers are sent requests of one client id each.

A broker meters the requests of each client id. It answers one that passes a quota at once, names a throttle time, and
reads nothing of that connection meanwhile (KIP-219). Merged requests carry Forebay's own id, so whoever is metered
under it is metered together with strangers. The first throttle time of a broker therefore ends merging across client
ids there; what it says of Forebay's own id concerns no client.

    throttled("forebay", 0.3 s)  → by client id from now on, and nothing of the others waits
    throttled("greedy", 5 s)     → nothing of "greedy" is sent to that broker for 5 s; that time is no timeout
    none for 60 s                → merged again; throttled soon after that: 120 s the next time, up to an hour

In: throttle times, by broker (node id) and client id. Out: who waits, how long a client has waited, the form of what is
sent to each broker. All times are in seconds of the caller's clock.
"""

from __future__ import annotations

from typing import Final

CLIENT_ID: Final = "forebay"
"""What requests of Forebay's own carry, and those that hold the records of several client ids."""

QUIET_S: Final = 60.0
"""Without a throttle time until merging is tried again: brokers meter over 11 s by default (quota.window.num times
quota.window.size.seconds), so five times what they remember."""

LONGEST_QUIET_S: Final = 3600.0
"""Each attempt costs brokers a window's worth of traffic that they meter under the wrong id."""


class _Broker:
    """What is known of one that has throttled. `quiet`: how long it must not, until merging is tried again."""

    __slots__ = ("last", "merged_at", "quiet")

    def __init__(self, now: float) -> None:
        self.quiet = QUIET_S
        self.last = now
        """When the last throttle time was over, or will be."""
        self.merged_at: float | None = None
        """Since when merging is tried again; None: it is not."""


class _Pause:
    """Of one client id: how long it was throttled in all, at any broker, and until when it is now."""

    __slots__ = ("total", "until")

    def __init__(self, now: float) -> None:
        self.total = 0.0
        self.until = now


class Throttling:
    """Nobody is held back beyond what a broker has said of that client id, or because of another client's traffic.

    `merges`: across client ids, wherever no broker throttles (merge.across.client.ids). `patience`: no request waits
    for longer than this, throttle times aside; so long it is remembered how long a client was throttled.
    """

    def __init__(self, *, merges: bool = True, patience: float = 120.0) -> None:
        self.merges = merges
        self.active = not merges
        """Whether anything is known here that anybody may need; False: nobody is throttled, all is merged."""
        self._patience = patience
        self._brokers: dict[int, _Broker] = {}
        self._until: dict[tuple[int, str | None], float] = {}
        self._pauses: dict[str | None, _Pause] = {}

    # What brokers say

    def throttled(self, broker: int, client_id: str | None, seconds: float, now: float) -> bool:
        """`broker` answered a request that carried `client_id` with this throttle time.

        True: from now on what is sent to it is to carry one client's id a request, which was not so before.
        """
        until = now + seconds
        key = broker, client_id
        self._until[key] = max(until, self._until.get(key, until))
        self.paused(client_id, seconds, now)
        known = self._brokers.get(broker)
        if known is None:
            known = self._brokers[broker] = _Broker(now)
            turned = self.merges
        else:
            turned = known.merged_at is not None
            if known.merged_at is not None:
                again = now - known.merged_at < known.quiet
                known.quiet = min(2 * known.quiet, LONGEST_QUIET_S) if again else QUIET_S
                known.merged_at = None
        known.last = max(known.last, until)
        return turned

    def paused(self, client_id: str | None, seconds: float, now: float) -> None:
        """The client is throttled for so long, whoever does it: that time counts towards none of its timeouts."""
        self.active = True
        pause = self._pauses.get(client_id)
        if pause is None:
            pause = self._pauses[client_id] = _Pause(now)
        until = now + seconds
        if until > pause.until:
            pause.total += until - max(now, pause.until)
            pause.until = until

    # Who waits

    def muted(self, broker: int, client_id: str | None, now: float) -> bool:
        """Whether `broker` must not be sent anything of this client id now."""
        return bool(self._until) and self._until.get((broker, client_id), now) > now

    def waits(self, broker: int, client_id: str | None) -> bool:
        """Whether it was told to wait, not long ago: what waits of this client id says nothing of the broker."""
        return (broker, client_id) in self._until

    def pause(self, client_id: str | None, now: float) -> float:
        """Seconds for which the client has been throttled in all: the difference between two times is what counts."""
        pause = self._pauses.get(client_id)
        return pause.total - max(0.0, pause.until - now) if pause is not None else 0.0

    # In which form

    def by_client(self, broker: int) -> bool:
        """Whether what is sent to `broker` carries one client's id a request."""
        if self.merges:
            known = self._brokers.get(broker)
            return known is not None and known.merged_at is None
        return True

    def settle(self, now: float) -> list[int]:
        """Forget what is over. Returns the brokers to which requests are merged again from now on."""
        merged: list[int] = []
        for broker, known in list(self._brokers.items()):
            if known.merged_at is None:
                if now - known.last >= known.quiet:
                    known.merged_at = now
                    if self.merges:
                        merged.append(broker)
            elif now - known.merged_at >= known.quiet:
                del self._brokers[broker]
        for key in [key for key, until in self._until.items() if until <= now]:
            del self._until[key]
        for client_id in [it for it, pause in self._pauses.items() if now - pause.until > self._patience]:
            del self._pauses[client_id]
        self.active = not self.merges or bool(self._brokers or self._pauses)
        return merged

    # For metrics

    @property
    def waiting(self) -> int:
        """Client ids that were told to wait, counted once for each broker that told so."""
        return len(self._until)

    @property
    def apart(self) -> int:
        """Brokers that are sent one client's id a request because they have throttled."""
        return sum(known.merged_at is None for known in self._brokers.values()) if self.merges else 0
