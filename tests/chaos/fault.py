"""A fault: something that goes wrong for a while, under a load that goes on, and is over then.

    Fault("latency", {"brokers' network"}, during=lambda stage, topic: …, spares=(1, 2))

`during` is a context manager: what is wrong begins when it is entered and is over when it is left, brokers that were
down being back by then. `run` (run.py) does the rest. Faults whose `touches` have nothing in common can be had at once.

A fault spares brokers: bystanders (bystander.py) with topics and connections of their own there should not notice it,
through Forebay no more than directly. How much they may is `Target`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

from tests.chaos.bystander import Latency, Post
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


ALL_SPARED = (0, 1, 2)


def worst(direct: Latency, through: Latency) -> bool:
    """The longest wait through Forebay is at most three times that of the same clients directly, and 100 ms."""
    return through.worst <= 3 * direct.worst + 0.1


def median(direct: Latency, through: Latency) -> bool:
    """Half of the records wait at most twice as long as directly, and 50 ms; no more errors than directly."""
    return through.p50 <= 2 * direct.p50 + 0.05 and through.errors <= direct.errors


def no_more(stage: Stage) -> Sequence[Post]:
    return ()


@dataclass(frozen=True, slots=True)
class Fault:
    """`during(stage, topic of the load)`. `seconds`: for how long at least. `widens`: the topic gets partitions.
    `forgets`: brokers then know only the last batch of each producer, who may send one before it again.

    `around` is what the stage must be like for it, from before the load until after all checks. `spares` are the nodes
    of brokers that it does not touch, nor the network before them, nor all of Forebay; `posts` are more bystanders
    than those that are there in every fault. `target` is what must hold of their latencies, directly and through
    Forebay.
    """

    name: str
    touches: frozenset[Place]
    during: Callable[[Stage, str], AbstractContextManager[None]]
    seconds: float = 3.0
    widens: bool = False
    forgets: bool = False
    around: Callable[[Stage], AbstractContextManager[None]] = as_it_is
    spares: tuple[int, ...] = ()
    posts: Callable[[Stage], Sequence[Post]] = no_more
    target: Callable[[Latency, Latency], bool] = worst

    def __str__(self) -> str:
        return self.name


@contextmanager
def _nothing(stage: Stage, topic: str) -> Iterator[None]:
    yield


NONE = Fault("none", frozenset(), _nothing, seconds=2.0, spares=ALL_SPARED)


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
