"""One partitioner a topic, made when the topic is first produced to.

In: the setting `partitioner` and its companions. Out: Partitioner by topic name; their choices added up for metrics.
"""

from __future__ import annotations

from functools import partial
from math import inf
from random import Random
from typing import cast

from forebay_policies.accumulator import PartitionQueue
from forebay_policies.builtin_partitioners import BUILT_IN, patience_s
from forebay_policies.partitioner import OnSwitch, Partitioner, PartitionerOptions, TellingPartitioner
from forebay_policies.rack_partitioner import RackPartitioner
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.config.settings import Settings
from forebay_proxy.errors import StartError
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.partitioner_plugins import load_partitioner

log = get_logger()


class TopicPartitioners:
    """Gives each topic one partitioner for as long as it is produced to. Raises StartError if it cannot be loaded."""

    def __init__(
        self,
        settings: Settings,
        stats: MetricRegistry,
        rng: Random,
        cluster: Cluster,
        on_switch: OnSwitch | None = None,
    ) -> None:
        try:
            self._factory = load_partitioner(settings.partitioner, self._report)
        except ValueError as error:
            raise StartError(str(error)) from error
        self._name = settings.partitioner
        self._rng = rng
        self._options = _options(settings, rng)
        self._on_switch = on_switch
        cluster.on_forgotten(self.forget)
        self._rack_aware = settings.partitioner_rack_aware
        # Where all clients are in Forebay's own rack, those of other racks have Forebays of their own.
        self._max_skew = settings.partitioner_rack_max_skew if settings.tells_racks_apart else inf
        self._partitioners: dict[str, Partitioner] = {}
        self._rack_partitioners: dict[str, RackPartitioner] = {}
        self._forgotten: dict[str, int] = {}
        self._errors = stats.counter("forebay_errors_total", side="internal", kind="partitioner")
        name = self._name if self._name in BUILT_IN else "custom"
        kinds = ("sticky", "switch") if name != "custom" else ("sticky", "switch", "no_opinion", "chosen", "invalid")
        for kind in kinds:
            stats.counter_from(
                "forebay_partitioner_choices_total", partial(self._choices, kind), partitioner=name, kind=kind
            )

    def change(self, settings: Settings) -> None:
        """Partitioners are made of these from now on, those that there are, too: they begin anew."""
        options = _options(settings, self._rng)
        if options != self._options:
            self._options = options
            for topic in [*self._partitioners, *self._rack_partitioners]:
                self.forget(topic)

    def of(self, topic: str, rack: str) -> Partitioner:
        """The topic's partitioner, made at the first call; for clients in that rack, where racks count."""
        if self._rack_aware:
            return self._of_racks(topic).of(rack)
        partitioner = self._partitioners.get(topic)
        if partitioner is None:
            partitioner = self._partitioners[topic] = self._made()
        return partitioner

    def _of_racks(self, topic: str) -> RackPartitioner:
        partitioner = self._rack_partitioners.get(topic)
        if partitioner is None:
            turn = self._options.sticky_batch_size or self._options.batch_size
            patience = patience_s(self._name, self._options)
            partitioner = self._rack_partitioners[topic] = RackPartitioner(self._made, turn, self._max_skew, patience)
        return partitioner

    def _made(self) -> Partitioner:
        partitioner = cast(TellingPartitioner, self._factory(self._options))  # those of others come in a WithDefault
        partitioner.on_switch = self._on_switch
        return partitioner

    def acknowledged(self, queue: PartitionQueue, seconds: float) -> None:
        """A batch of the partition was acknowledged `seconds` after its opening: tell the topic's partitioner."""
        self.learned(queue.topic.name, queue.index, seconds)

    def learned(self, topic: str, partition: int, seconds: float) -> None:
        """The same, by names."""
        partitioner = self._rack_partitioners.get(topic) if self._rack_aware else self._partitioners.get(topic)
        if partitioner is not None:
            partitioner.on_acknowledged(partition, seconds)

    def forget(self, topic: str) -> None:
        """The topic is not produced to any more; what its partitioner counted stays counted."""
        partitioner = self._rack_partitioners.pop(topic, None) or self._partitioners.pop(topic, None)
        if partitioner is not None:
            for kind, count in partitioner.choices().items():
                self._forgotten[kind] = self._forgotten.get(kind, 0) + count

    def _choices(self, kind: str) -> int:
        live: list[Partitioner | RackPartitioner] = [*self._partitioners.values(), *self._rack_partitioners.values()]
        return sum(partitioner.choices().get(kind, 0) for partitioner in live) + self._forgotten.get(kind, 0)

    def _report(self, message: str, error: Exception | None) -> None:
        self._errors.value += 1
        log.error(message, exc_info=error)


def _options(settings: Settings, rng: Random) -> PartitionerOptions:
    return PartitionerOptions(
        rng=rng,
        batch_size=settings.batch_size,
        sticky_batch_size=settings.partitioner_sticky_batch_size,
        adaptive_enabled=settings.partitioner_adaptive_partitioning_enable,
        availability_timeout_s=settings.partitioner_availability_timeout_ms / 1000,
        min_share=settings.partitioner_min_share,
    )
