"""What happens to brokers: they die and come back, they are stopped and go on, they hand their offices over."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import KafkaException
from kafka import KafkaAdminClient, TopicPartition  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]

from tests.chaos.fault import ALL_SPARED, BROKERS, WITHOUT_BROKERS, Fault, Place
from tests.chaos.stage import PARTITIONS, RECOVERY_SECONDS, Stage
from tests.kit.waiting import wait_until

_MOVE_EVERY_SECONDS = 0.7
PREFERRED = 0


@contextmanager
def killed(stage: Stage, nodes: Sequence[int]) -> Iterator[None]:
    """SIGKILL, and started again over what is on its disk. Over when every broker knows all again."""
    for node in nodes:
        stage.cluster.kill(node)
    try:
        yield
    finally:
        for node in nodes:
            stage.cluster.start_node(node)
    wait_until(stage.whole, RECOVERY_SECONDS, f"brokers {nodes} are back")


@contextmanager
def stopped(stage: Stage, nodes: Sequence[int]) -> Iterator[None]:
    """SIGSTOP: connections stand, the kernel takes new ones, nobody answers. Then SIGCONT."""
    for node in nodes:
        os.kill(stage.cluster.pid(node), signal.SIGSTOP)
    try:
        yield
    finally:
        for node in nodes:
            os.kill(stage.cluster.pid(node), signal.SIGCONT)
    wait_until(stage.whole, RECOVERY_SECONDS, f"brokers {nodes} go on")


@contextmanager
def restarted_in_turn(stage: Stage, topic: str) -> Iterator[None]:
    """A rolling restart: each broker leaves in an orderly way, comes back and catches up before the next one leaves."""
    for node in stage.nodes:
        stage.cluster.shut_down(node)
        stage.cluster.start_node(node)
        wait_until(stage.whole, RECOVERY_SECONDS, f"broker {node} is back")
        wait_until(lambda: stage.in_sync(topic), RECOVERY_SECONDS, f"broker {node} has caught up")
    yield


@contextmanager
def leaders_moving(stage: Stage, topic: str) -> Iterator[None]:
    """Every partition of the topic gets another leader, one after the other as the replicas stand, time and again."""
    over = threading.Event()
    led = _leaders(stage, topic)
    errors: list[BaseException] = []

    def move() -> None:
        admin = KafkaAdminClient(bootstrap_servers=stage.cluster.internal)
        turn = 0
        while not over.is_set():
            turn += 1
            try:
                _move_leaders(admin, topic, turn)
                led.update(_leaders(stage, topic))
            except (KafkaError, KafkaException) as error:
                errors.append(error)
            over.wait(_MOVE_EVERY_SECONDS)
        admin.close()

    mover = threading.Thread(target=move, daemon=True)
    mover.start()
    try:
        yield
    finally:
        over.set()
        mover.join(RECOVERY_SECONDS)
    assert len(led) > PARTITIONS, f"no leader moved: {errors}"


def _leaders(stage: Stage, topic: str) -> set[tuple[int, int]]:
    """Partition and node."""
    partitions = stage.admin.list_topics(topic, timeout=RECOVERY_SECONDS).topics[topic].partitions
    return {(number, partition.leader) for number, partition in partitions.items() if partition.leader >= 0}


def _move_leaders(admin: KafkaAdminClient, topic: str, turn: int) -> None:
    replicas = {
        TopicPartition(topic, partition): [(partition + turn + place) % 3 for place in range(3)]
        for partition in range(PARTITIONS)
    }
    admin.alter_partition_reassignments(replicas, timeout_ms=10_000)
    admin.elect_leaders(PREFERRED, {topic: list(range(PARTITIONS))}, timeout_ms=10_000, raise_errors=False)


@contextmanager
def _one_killed(stage: Stage, topic: str) -> Iterator[None]:
    with killed(stage, [1]):
        yield


@contextmanager
def _all_killed(stage: Stage, topic: str) -> Iterator[None]:
    with killed(stage, stage.nodes):
        yield


@contextmanager
def _one_stopped(stage: Stage, topic: str) -> Iterator[None]:
    with stopped(stage, [2]):
        yield


_TOUCHES = frozenset[Place]({BROKERS})

ROLLING_RESTART = Fault("rolling restart of all brokers", _TOUCHES, restarted_in_turn, seconds=2.0)

# A stopped broker is fenced by its peers after three seconds: long enough for others to take over, and then some.
BROKER_FAULTS = (
    Fault(
        "SIGKILL of a broker, and its return",
        _TOUCHES,
        _one_killed,
        spares=(0, 2),
    ),
    Fault(
        "SIGSTOP of a broker, then SIGCONT",
        _TOUCHES,
        _one_stopped,
        seconds=6.0,
        spares=(0, 1),
    ),
    Fault("all brokers killed, and back", _TOUCHES | WITHOUT_BROKERS, _all_killed, seconds=2.0, forgets=True),
    Fault(
        "leaders move time and again",
        _TOUCHES,
        leaders_moving,
        spares=ALL_SPARED,
    ),
)
