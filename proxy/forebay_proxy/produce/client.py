"""The client of a Produce request, as the produce path sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from forebay_codecs.primitives import Buffer
from forebay_policies.eligibility import Eligibility
from forebay_policies.hold_reason import HoldReason
from forebay_proxy.produce.completion import OnDone


class Client(Protocol):
    """What the produce path needs of the connection that a request came on."""

    @property
    def host(self) -> str:
        """Where the client is."""

    @property
    def rack(self) -> str:
        """Where that is; empty: not known."""

    @property
    def node_id(self) -> int | None:
        """The broker by whose port it has come; None: by the bootstrap port."""

    @property
    def number(self) -> int:
        """Of the connection, within this process."""

    @property
    def judged_by(self) -> Eligibility | None:
        """By what its last Produce request was judged; None: it has sent none. To be set by the produce path."""

    @judged_by.setter
    def judged_by(self, eligibility: Eligibility) -> None: ...

    @property
    def producing(self) -> bool:
        """Records of it were taken here whose fate is not known."""

    @property
    def passing(self) -> bool:
        """Records of it are on their way on its own upstream connection."""

    @property
    def left(self) -> bool:
        """The connection has ended, or its client sends no more: it may have left."""

    @property
    def principal(self) -> str:
        """Whose records they are that it sends and that are merged here; empty: Forebay's own, as all are it there."""

    @property
    def user(self) -> str:
        """Who it has proved to be, as Kafka writes it; empty: nobody in particular."""

    @property
    def own_login(self) -> bool:
        """It logs in at its broker by itself: what it sends is its own, and mixes with nobody's."""

    def reserve(self, acks: int) -> OnDone:
        """Keep the response's place (none for acks=0). Called with the response frame, once."""

    def hold(self, why: HoldReason) -> None:
        """Take no further requests until released."""

    def release(self, why: HoldReason) -> None:
        """Take them again, unless it is held for another reason."""

    def throttled(self, milliseconds: int) -> None:
        """A broker throttles it: like that, take no further requests for so long, whether it knows of it or not."""

    def produced(self, records: int, reasons: Iterable[str]) -> None:
        """It has sent so many records, in batches that are treated as they are for these reasons."""

    def idempotent_null_keys(self, records: int) -> None:
        """About so many of its records could move, if it were not idempotent (idempotent_sample)."""

    @property
    def at_leisure(self) -> bool:
        """What it sends on its own upstream connection is dealt with at once: that stands, and no records are on it."""

    def hears(self, answer: Callable[[bytes], None] | None) -> None:
        """`answer` is told of the response to its Produce request that goes on as it came, next; None: nobody is."""

    def null_keys_went(self, topic: str, partitions: int, partition: int, size: int, *, old: bool) -> None:
        """`size` bytes of its records without a key went where it says; `old`: as a message set (own_choices)."""

    def when_alone(self, ready: Callable[[], None]) -> None:
        """Call `ready` once a single Produce request of the connection is unanswered: the one that asks."""

    def settle(self) -> None:
        """Have brokers show that records without acks are there that were sent them on its own upstream connection."""

    def send_own(
        self,
        frame: list[Buffer],
        version: int,
        correlation_id: int,
        acks: int,
        on_answer: Callable[[bytes | None], None],
    ) -> None:
        """A Produce request of the proxy's on the client's own upstream connection; None: the connection was lost."""
