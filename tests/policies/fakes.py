"""Fakes for partitioners: a topic whose facts the test sets, and generators that say what they are told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from forebay_policies.partitioner import Partitioner


class FakeTopic:
    """A TopicView. `available` defaults to all partitions; replace it, never change it in place.

    `led_in`: the rack of each partition's leader; nowhere, where it is not given.
    """

    def __init__(
        self,
        partition_count: int,
        available: Sequence[int] | None = None,
        loads: Mapping[int, int] | None = None,
        led_in: Sequence[str] | None = None,
    ) -> None:
        self.name = "topic"
        self.partition_count = partition_count
        self.available: Sequence[int] = tuple(range(partition_count)) if available is None else tuple(available)
        self.load = dict(loads or {})
        self.waiting: dict[int, float] = {}
        self.lingering: set[int] = set()
        self.racks: dict[str, list[int]] = {}
        for partition in self.available:
            self.racks.setdefault(led_in[partition] if led_in else "", []).append(partition)

    def loads(self) -> Mapping[int, int]:
        return {partition: size for partition, size in self.load.items() if size}

    def ready_since(self, partition: int) -> float | None:
        return self.waiting.get(partition)

    def lingers(self, partition: int) -> bool:
        return partition in self.lingering


class Scripted:
    """A generator that gives the numbers it was given, and remembers the ranges that it was asked for."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = iter(numbers)
        self.stops: list[int] = []

    def randrange(self, stop: int, /) -> int:
        self.stops.append(stop)
        number = next(self._numbers)
        assert 0 <= number < stop
        return number


class Recording:
    """A generator that gives 0 and remembers the range: to learn how many numbers a choice may draw from."""

    def __init__(self) -> None:
        self.stops: list[int] = []

    def randrange(self, stop: int, /) -> int:
        self.stops.append(stop)
        return 0


def asked(partitioner: Partitioner, topic: FakeTopic, times: int, size: int = 1, now: float = 0.0) -> list[int]:
    """What it chooses in `times` calls."""
    return [partitioner.partition(topic, size, now) for _ in range(times)]
