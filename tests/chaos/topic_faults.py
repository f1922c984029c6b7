"""What administrators do to topics in mid-flow: more partitions, deleted, deleted and made again.

A topic that is deleted takes acknowledged records with it. So the load's own stays; two more clients produce to a
topic of their own, which is deleted, in the same requests of Forebay's to the brokers. From the load nothing may be
missing; from the topic that was made again, nothing that was acknowledged since.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic

from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from tests.chaos.fault import ALL_SPARED, TOPICS, Fault, Place
from tests.chaos.load import Load, confluent, kafka_python
from tests.chaos.reconcile import reconcile
from tests.chaos.stage import PARTITIONS, RECOVERY_SECONDS, Stage
from tests.chaos.tally import Promise
from tests.kit.waiting import wait_until

_SETTLED_SECONDS = 1.0
"""An acknowledgement of the old topic's may still have been under way this long after the new one's birth."""

_PATIENCE_MS = 5000
"""After which the two clients tell that their topic is gone: until then they hope that it comes back."""


@contextmanager
def _widened(stage: Stage, topic: str) -> Iterator[None]:
    for count in (PARTITIONS + 1, PARTITIONS + 3):
        stage.admin.create_partitions([NewPartitions(topic, count)])[topic].result(RECOVERY_SECONDS)
    yield


@contextmanager
def _deleted(stage: Stage, topic: str) -> Iterator[None]:
    with _fleeting_load(stage) as load:
        refused = {tally.name: len(tally.failures) for tally in load.tallies}
        stage.delete_topic(load.topic)
        yield
        wait_until(
            lambda: all(len(tally.failures) > refused[tally.name] for tally in load.tallies),
            RECOVERY_SECONDS,
            "clients are told that their topic is gone",
        )
        reconcile(load.stop(), [], since=monotonic()).check("the deleted topic")


@contextmanager
def _recreated(stage: Stage, topic: str) -> Iterator[None]:
    with _fleeting_load(stage) as load:
        others = {None, *stage.topic_ids(load.topic)}
        stage.delete_topic(load.topic)
        stage.create_topic(load.topic)
        # Until a broker has heard of it, it takes records for the old one.
        wait_until(lambda: not stage.topic_ids(load.topic) & others, RECOVERY_SECONDS, "all brokers know the new topic")
        binding = monotonic() + _SETTLED_SECONDS
        yield
        wait_until(lambda: load.acked_since(binding) >= 20, RECOVERY_SECONDS, "the new topic takes records")
        tallies = load.stop()
        reconcile(tallies, stage.read(load.topic), since=binding).check("the topic made again")
        stage.delete_topic(load.topic)


def _fleeting_load(stage: Stage) -> Load:
    # librdkafka sends records of a topic that was unknown again, and not in their order.
    unordered = replace(confluent(_PATIENCE_MS), promise=Promise(ordered=False, offsets=False))
    load = Load(stage.bootstrap, stage.new_topic("fleeting"), (unordered, kafka_python(_PATIENCE_MS)))
    return load.under_way(20, RECOVERY_SECONDS)


_TOUCHES = frozenset[Place]({TOPICS})

TOPIC_FAULTS = (
    Fault("partitions 6 → 7 → 9 in mid-flow", _TOUCHES, _widened, seconds=3.0, widens=True, spares=ALL_SPARED),
    Fault("another topic deleted in mid-flow", _TOUCHES, _deleted, seconds=3.0, spares=ALL_SPARED),
    Fault("another topic deleted and made again", _TOUCHES, _recreated, seconds=3.0, spares=ALL_SPARED),
)
