"""What one party's trouble costs its neighbours: faults whose load is one client's, one topic's, or one broker's.

For these all timeouts are the defaults of brokers, Forebay and clients (DEFAULTS): short ones end a wait before it is
seen. So a broker that is silent is fenced by its peers after nine seconds.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from tests.chaos.broker_faults import killed, stopped
from tests.chaos.bystander import DIRECT, THROUGH, Post, Way
from tests.chaos.fault import ALL_SPARED, BROKERS, CLIENTS, Fault, Place, median
from tests.chaos.flood import Flow, flood, is_taken
from tests.chaos.stage import RECOVERY_SECONDS, Stage
from tests.kit.ports import LOOPBACK
from tests.kit.quotas import client_quota
from tests.kit.waiting import wait_until
from tests.kit.wire import batch, echo, keyed, metadata, produce

FENCED_SECONDS = 12.0
"""A stopped broker is out of in-sync replicas after nine."""

_FLOODERS = 16
_LARGE = 900_000
"""Bytes of a record; 16 clients with five each have twice `buffer.memory` to send."""

_WIDE_PARTITIONS = 200
_WIDER_PARTITIONS = 4_000
"""A broker has two descriptors open for each; of 20,000, which is all that some machines allow, 10,000 use up all."""
_AT_ONCE = 2_000
"""Partitions. Kafka makes fewer than 10,000 of a topic at a time."""
_MADE_SECONDS = 600
_ASKED_BYTES = 120_000
_ASKERS = 10

_LEAVERS = 300

_QUOTA = 60_000
_HONEST = 6
_HONEST_SIZE, _HONEST_RATE = 4_000, 10
"""40 KB/s."""


@contextmanager
def _topic(stage: Stage, name: str, assignment: list[list[int]]) -> Iterator[None]:
    """Its records are to be had by Forebay's clients at once: a fresh one has written to it."""
    stage.cluster.create_topic(name, assignment=assignment)
    stage.probe(name)
    try:
        yield
    finally:
        stage.delete_topic(name)


@contextmanager
def _follower_stopped(stage: Stage, topic: str) -> Iterator[None]:
    wide = Flow(stage.port(THROUGH, 0), f"{topic}-wide", size=1_000, acks=-1, rate=20)
    with _topic(stage, wide.topic, [[0, 1]]), stopped(stage, [1]), flood(wide, clients=8):
        yield


@contextmanager
def _flooded_and_stopped(stage: Stage, topic: str) -> Iterator[None]:
    flow = Flow(stage.port(THROUGH, 2), f"{topic}-flood", size=_LARGE)
    with _topic(stage, flow.topic, [[2]]), stopped(stage, [2]), flood(flow, clients=_FLOODERS):
        yield


@contextmanager
def _flooded_and_leaderless(stage: Stage, topic: str) -> Iterator[None]:
    flow = Flow(stage.port(THROUGH, 1), f"{topic}-orphan", size=_LARGE)
    with _topic(stage, flow.topic, [[1]]), killed(stage, [1]), flood(flow, clients=_FLOODERS):
        yield


@contextmanager
def _asking_and_not_reading(stage: Stage, topic: str) -> Iterator[None]:
    """Each asks 120 KB of small questions whose answers are a hundred times as large: half of them Forebay alone."""
    wide = f"{topic}-wide"
    with ExitStack() as stack:
        stack.enter_context(_topic(stage, wide, [[index % 3] for index in range(_WIDE_PARTITIONS)]))
        for number in range(_ASKERS):
            port = stage.port(THROUGH, number % len(stage.nodes))
            asked = metadata(1, wide) + (echo(2) if number % 2 else b"")
            client = stack.enter_context(socket.create_connection((LOOPBACK, port), 0.2))
            with suppress(OSError):  # it is not read any more
                client.sendall(asked * (_ASKED_BYTES // len(asked)))
        yield


@contextmanager
def _left_at_stopped(stage: Stage, topic: str) -> Iterator[None]:
    """Each asks what the broker alone can answer, here and on a connection of its own. Then it closes its sending half,
    and every other one all of it, which looks the same."""
    theirs = f"{topic}-left"
    asked = produce(1, (theirs, 0, batch(keyed("left")))) + echo(2) + produce(3, (theirs, 0, batch(keyed("left"))))
    with _topic(stage, theirs, [[2]]), stopped(stage, [2]), ExitStack() as stack:
        for number in range(_LEAVERS):
            client = stack.enter_context(socket.create_connection((LOOPBACK, stage.port(THROUGH, 2)), 5))
            client.sendall(asked)
            client.shutdown(socket.SHUT_WR)
            if number % 2:
                client.close()
        yield


@contextmanager
def _wider_topic(stage: Stage) -> Iterator[None]:
    """Of broker 0, which has written to each of its partitions."""
    wide, directly = (_wide_requests(stage, way) for way in (THROUGH, DIRECT))
    replicas = [[0]] * _AT_ONCE
    stage.cluster.create_topic(wide.topic, assignment=replicas)
    for count in range(2 * _AT_ONCE, _WIDER_PARTITIONS + 1, _AT_ONCE):
        more = NewPartitions(wide.topic, count, replica_assignment=replicas)
        stage.admin.create_partitions([more])[wide.topic].result(RECOVERY_SECONDS)
    for flow in (directly, wide):
        wait_until(lambda: is_taken(flow), _MADE_SECONDS, "each partition of the topic takes records")  # noqa: B023
    try:
        yield
    finally:
        stage.delete_topic(wide.topic)


def _wide_requests(stage: Stage, way: Way = THROUGH) -> Flow:
    return Flow(stage.port(way, 0), "wider", size=100, partitions=_WIDER_PARTITIONS)


@contextmanager
def _asked_of_all_partitions(stage: Stage, topic: str) -> Iterator[None]:
    """Request upon request, five at a time."""
    with flood(_wide_requests(stage), clients=1):
        yield


@contextmanager
def _quota_for_all(stage: Stage, topic: str) -> Iterator[None]:
    with client_quota(stage.cluster.internal_ports[0], _QUOTA):
        yield


def _under_quota(stage: Stage) -> Sequence[Post]:
    """Six client ids each way at two thirds of the quota."""
    return [
        Post(way, 0, stage.port(way, 0), "bystanders-0", 0, 1, f"{way}-{number}", size=_HONEST_SIZE, rate=_HONEST_RATE)
        for way in (DIRECT, THROUGH)
        for number in range(_HONEST)
    ]


@contextmanager
def _one_above_its_quota(stage: Stage, topic: str) -> Iterator[None]:
    """As above, and one client id tries to write 400 KB/s."""
    greedy = Flow(stage.port(THROUGH, 0), f"{topic}-greedy", size=10_000, rate=20, client_id="greedy")
    with _topic(stage, greedy.topic, [[0]]), _quota_for_all(stage, topic), flood(greedy, clients=2):
        yield


@contextmanager
def _one_throttled(stage: Stage, topic: str) -> Iterator[None]:
    """It may write 20 KB/s, and tries to write 400."""
    greedy = Flow(stage.port(THROUGH, 0), f"{topic}-greedy", size=10_000, rate=20, client_id="greedy")
    with (
        _topic(stage, greedy.topic, [[0]]),
        client_quota(stage.cluster.internal_ports[0], 20_000, greedy.client_id),
        flood(greedy, clients=2),
    ):
        yield


_BROKERS = frozenset[Place]({BROKERS})
_CLIENTS = frozenset[Place]({CLIENTS})

NEIGHBOUR_FAULTS = (
    Fault(
        "a follower stopped under acks=all",
        _BROKERS,
        _follower_stopped,
        FENCED_SECONDS,
        spares=(0, 2),
    ),
    Fault(
        "a broker stopped under a flood of large records",
        _BROKERS,
        _flooded_and_stopped,
        FENCED_SECONDS,
        spares=(0, 1),
    ),
    Fault(
        "a partition leaderless under a flood of large records",
        _BROKERS,
        _flooded_and_leaderless,
        FENCED_SECONDS,
        spares=(0, 2),
    ),
    Fault(
        f"{_ASKERS} clients ask without end and never read",
        _CLIENTS,
        _asking_and_not_reading,
        5.0,
        spares=ALL_SPARED,
    ),
    Fault(
        f"{_LEAVERS} clients send no more at a stopped broker",
        _BROKERS | _CLIENTS,
        _left_at_stopped,
        FENCED_SECONDS,
        spares=(0, 1),
    ),
    Fault(
        f"requests of {_WIDER_PARTITIONS:,} partitions",
        _CLIENTS,
        _asked_of_all_partitions,
        10.0,
        around=_wider_topic,
        spares=(1, 2),
    ),
    Fault(
        "quotas, each client below its own",
        _CLIENTS,
        _quota_for_all,
        10.0,
        spares=(0,),
        posts=_under_quota,
        target=median,
    ),
    Fault(
        "quotas, one client far above its own",
        _CLIENTS,
        _one_above_its_quota,
        10.0,
        spares=(0,),
        posts=_under_quota,
        target=median,
    ),
    Fault("one client throttled beside others", _CLIENTS, _one_throttled, 8.0, spares=ALL_SPARED),
)
LONG = frozenset(
    {
        "a follower stopped under acks=all",  # first batches may wait two minutes: test_overtaken.py
        "a partition leaderless under a flood of large records",
        "10 clients ask without end and never read",
        "300 clients send no more at a stopped broker",
        "requests of 4,000 partitions",  # of 10,000, before a broker that costs nothing: test_many_partitions.py
        "quotas, each client below its own",
        "quotas, one client far above its own",
        "one client throttled beside others",
    }
)
"""The names of those that `make test` leaves to `make test-all` and `make chaos`."""
