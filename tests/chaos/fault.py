"""A fault: something that goes wrong for a while, under a load that goes on, and is over then.

    Fault("latency", {"brokers' network"}, during=lambda stage, topic: …)

`during` is a context manager: what is wrong begins when it is entered and is over when it is left, brokers that were
down being back by then. `run` (run.py) does the rest. Faults whose `touches` have nothing in common can be had at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

from tests.chaos.stage import Stage
from tests.kit.toxiproxy import Stream

Place = Literal["brokers' network", "clients' network", "brokers", "topics", "forebay", "clients"]
BROKERS_NETWORK: Place = "brokers' network"
CLIENTS_NETWORK: Place = "clients' network"
BROKERS: Place = "brokers"
TOPICS: Place = "topics"
FOREBAY: Place = "forebay"
CLIENTS: Place = "clients"

WITHOUT_BROKERS = frozenset[Place]({FOREBAY})
"""What a fault touches that leaves no broker to be asked: a Forebay that starts then is waited for, and not ready."""


def as_it_is(stage: Stage) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Fault:
    """`during(stage, topic of the load)`. `seconds`: for how long at least. `widens`: the topic gets partitions.

    `around` is what the stage must be like for it, from before the load until after all checks.
    """

    name: str
    touches: frozenset[Place]
    during: Callable[[Stage, str], AbstractContextManager[None]]
    seconds: float = 3.0
    widens: bool = False
    around: Callable[[Stage], AbstractContextManager[None]] = as_it_is

    def __str__(self) -> str:
        return self.name


@contextmanager
def toxic(
    stage: Stage, hops: list[str], name: str, streams: tuple[Stream, ...] = ("downstream",), **attributes: int
) -> Iterator[None]:
    """The toxic on each of these hops, in each of these directions."""
    places = [(hop, stream) for hop in hops for stream in streams]
    for hop, stream in places:
        stage.toxiproxy.add(hop, name, stream, **attributes)
    try:
        yield
    finally:
        for hop, stream in places:
            stage.toxiproxy.remove(hop, name, stream)
