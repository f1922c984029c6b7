"""From the setting `partitioner` to what makes a partitioner for each topic: a built-in one, or one that others wrote.

In: a name. Out: a PartitionerFactory that never raises and whose partitioners never raise and always have an opinion.
ValueError, with the names that are known, where the name is not one of them or its entry point cannot be loaded.

Partitioners of others are found by entry points of the group `forebay.partitioners`: a name and a callable that takes
PartitionerOptions and returns a Partitioner (docs/partitioners.md). Built-in names cannot be taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from forebay_policies.builtin_partitioners import BUILT_IN
from forebay_policies.partitioner import (
    NO_OPINION,
    Partitioner,
    PartitionerFactory,
    PartitionerOptions,
    TopicView,
)
from forebay_policies.with_default import WithDefault

GROUP: Final = "forebay.partitioners"
DEFAULT: Final = "adaptive"

Report = Callable[[str, Exception | None], None]
"""Told what a partitioner of others did wrong, in words for the log, and the exception where there was one."""


def known_partitioners() -> list[str]:
    """The names that `partitioner` may have here: built-in ones and those of installed entry points."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))})


def load_partitioner(name: str, report: Report) -> PartitionerFactory:
    """Look `name` up, once at the start. `report` is called at most once for each kind of fault, not for each topic."""
    built_in = BUILT_IN.get(name)
    if built_in is not None:
        return built_in
    return _Foreign(name, _load(_find(name)), report)


def _find(name: str) -> EntryPoint:
    found = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not found:
        raise ValueError(
            f"partitioner {name!r} is unknown; known are {', '.join(known_partitioners())} "
            f"(others come from installed packages, by entry points of the group {GROUP})"
        )
    if len(found) > 1:
        raise ValueError(f"partitioner {name!r} is provided more than once: {', '.join(sorted(found))}")
    return next(iter(found.values()))


def _load(point: EntryPoint) -> PartitionerFactory:
    try:
        factory: object = point.load()
    except Exception as error:  # importing the code of others can fail in any way
        raise ValueError(
            f"partitioner {point.name!r} cannot be loaded from {point.value}: {type(error).__name__}: {error}"
        ) from error
    if not callable(factory):
        raise ValueError(f"partitioner {point.name!r}: {point.value} is not callable")
    return cast(PartitionerFactory, factory)


class _Faults:
    """Counts what one plug-in raised, over all topics; the first of each kind is reported."""

    def __init__(self, name: str, report: Report) -> None:
        self._name = name
        self._report = report
        self._reported: set[str] = set()

    def raised(self, where: str, error: Exception) -> None:
        self._once(where, f"raised {type(error).__name__} in {where}", error)

    def wrong(self, message: str) -> None:
        self._once("wrong", message, None)

    def _once(self, kind: str, message: str, error: Exception | None) -> None:
        if kind not in self._reported:
            self._reported.add(kind)
            text = f"partitioner {self._name!r} {message}; the default ({DEFAULT}) decides instead"
            self._report(text, error)


class _Foreign:
    """The factory of a plug-in: for each topic its partitioner, guarded, before the default."""

    def __init__(self, name: str, factory: PartitionerFactory, report: Report) -> None:
        self._factory = factory
        self._faults = _Faults(name, report)

    def __call__(self, options: PartitionerOptions) -> Partitioner:
        default = BUILT_IN[DEFAULT](options)
        try:
            partitioner = self._factory(options)
        except Exception as error:
            self._faults.raised("its factory", error)
            return default
        return WithDefault(_Guarded(partitioner, self._faults), default, self._faults.wrong)


class _Guarded:
    """A partitioner of others that cannot do harm by raising: that is no opinion, and no news for the hooks.

    Everything is caught, whatever it is, because the records in hand must go somewhere: they belong to a client that
    has nothing to do with the plug-in.
    """

    __slots__ = ("_faults", "_partitioner")

    def __init__(self, partitioner: Partitioner, faults: _Faults) -> None:
        self._partitioner = partitioner
        self._faults = faults

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        try:
            return self._partitioner.partition(topic, size, now)
        except Exception as error:
            self._faults.raised("partition", error)
            return NO_OPINION

    def on_new_batch(self, topic: TopicView, partition: int) -> bool:
        try:
            return bool(self._partitioner.on_new_batch(topic, partition))
        except Exception as error:
            self._faults.raised("on_new_batch", error)
            return False

    def on_acknowledged(self, partition: int, seconds: float) -> None:
        try:
            self._partitioner.on_acknowledged(partition, seconds)
        except Exception as error:
            self._faults.raised("on_acknowledged", error)

    def choices(self) -> Mapping[str, int]:
        # Labels of metrics must be few and known, so those of others are not asked for.
        return {}
