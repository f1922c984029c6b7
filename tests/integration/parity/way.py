"""A scenario that is run twice at once, directly and through Forebay, must come to the same both times.

    @both_ways
    def test_watermarks(way: Way) -> Any:
        …  # over way.bootstrap, on names that way.name() and way.topic() give
        return what the client was told

Before outcomes are compared, what must differ is made equal: a way's own names lose the prefix that keeps them apart
from the other way's, and a broker's address on that way becomes `broker-N`. An address that is not the way's own stays,
and so the comparison fails. A scenario leaves out by itself what no two runs have in common (timestamps of the clock,
ids that brokers make up) and what Forebay says that it changes: of records without a key, partition and offset.

A scenario that raises has no outcome: an error that is part of one is caught by `told`.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from functools import partial
from threading import Lock, Thread
from time import monotonic
from typing import Any

from tests.kit.kafka import KafkaCluster

SECONDS = 200
"""After which a scenario has failed, on either way. Sessions of group members that leave nothing behind last 45."""

PATIENCE = 60
"""Seconds in which all brokers hear of a change."""

ALONE = Lock()
"""Held by who makes SCRAM credentials: Kafka 4.3.1 forgets one that is made while another client deletes the only other
one (7 of 300, directly)."""


def again() -> Iterator[None]:
    """Ask until the answer is good, as brokers hear of changes one after the other; each question is a round trip."""
    deadline = monotonic() + PATIENCE
    while monotonic() < deadline:
        yield


@dataclass(frozen=True)
class Way:
    """`nodes` maps every address that a client may be told on this way to the broker's id."""

    bootstrap: str
    nodes: Mapping[str, int]
    prefix: str
    cluster: KafkaCluster

    def name(self, what: str) -> str:
        return f"{self.prefix}.{what}"

    def topic(self, what: str = "topic", partitions: int = 3, config: Mapping[str, str] | None = None) -> str:
        """Partition i is led by broker i. Made on this way: what is made past Forebay it hears of later."""
        topic = self.name(what)
        self.cluster.create_topic(topic, partitions, config=config, over=self.bootstrap)
        return topic

    def own(self, names: Iterable[str]) -> list[str]:
        """Of all names on the cluster those of this scenario on this way."""
        return sorted(name for name in names if name.startswith(f"{self.prefix}."))

    def plain(self, value: Any) -> Any:
        """The value as lists, dictionaries and scalars, without what must differ between the ways."""
        if isinstance(value, str):
            return self._plain_text(value)
        if isinstance(value, bytes):
            return self._plain_text(value.decode("latin-1"))
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, Mapping):
            if "host" in value and "port" in value:
                value = {**value, "host": self._node(f"{value['host']}:{value['port']}"), "port": None}
            return {str(self.plain(key)): self.plain(item) for key, item in value.items()}
        if isinstance(value, (set, frozenset)):
            return sorted(map(self.plain, value), key=repr)
        if is_dataclass(value) and not isinstance(value, type):
            return self.plain(asdict(value))
        if isinstance(value, Iterable):
            return [self.plain(item) for item in value]
        assert value is None or isinstance(value, int | float), f"no plain outcome: {value!r}"
        return value

    def _plain_text(self, text: str) -> str:
        text = text.replace(f"{self.prefix}.", "")
        return re.sub(r"127\.0\.0\.1:\d+", lambda found: self._node(found[0]), text)

    def _node(self, address: str) -> str:
        return f"broker-{self.nodes[address]}" if address in self.nodes else address


@dataclass(frozen=True)
class Ways:
    direct: Way
    through: Way


def both_ways(scenario: Callable[..., Any]) -> Callable[..., None]:
    """Makes a test of a scenario, a plain function or a coroutine's, whose first argument is a Way."""

    def outcome(way: Way, arguments: Mapping[str, Any]) -> Any:
        told = scenario(way, **arguments)
        return way.plain(asyncio.run(told) if inspect.iscoroutine(told) else told)

    def test(ways: Ways, **arguments: Any) -> None:
        directly, through = (_begin(partial(outcome, way, arguments)) for way in (ways.direct, ways.through))
        assert directly.exception(SECONDS) is None, f"directly: {directly.exception()!r}"
        assert through.exception(SECONDS) is None, f"through Forebay: {through.exception()!r}"
        print(directly.result())  # pytest -rP shows what it is that is the same
        assert through.result() == directly.result()

    own, *others = inspect.signature(scenario).parameters.values()
    test.__signature__ = inspect.Signature([own.replace(name="ways", annotation=Ways), *others])  # type: ignore[attr-defined]
    test.__name__, test.__doc__, test.__module__ = scenario.__name__, scenario.__doc__, scenario.__module__
    return test


def _begin(call: Callable[[], Any]) -> Future[Any]:
    """Runs it in a thread of its own, which keeps nobody waiting if a client never comes back."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


def told(call: Callable[[], Any]) -> Any:
    """What the call answers, or the name of the error that it raises."""
    try:
        return call()
    except Exception as error:
        return error_name(error)


def error_name(error: BaseException) -> str:
    """An error by its class, and by its code where librdkafka's is one class for all; not by its text."""
    inner = error.args[0] if error.args else None
    code = getattr(inner, "name", None)
    return f"{type(error).__name__} {code()}" if callable(code) else type(error).__name__
