"""What requests of 10,000 partitions cost a client beside them: before a broker that answers at once.

Before Kafka they are a fault as others (neighbour_faults.py), which has to make the partitions first.
"""

from __future__ import annotations

import os
from time import monotonic

from bench.wire_frames import TOPIC, WIDE
from bench.wired import forebay, sink
from tests.chaos.bystander import DIRECT, THROUGH, Bystanders, Post
from tests.chaos.fault import worst
from tests.chaos.flood import Flow, flood, is_taken
from tests.chaos.run import Spared
from tests.kit.waiting import wait_until

PARTITIONS = 10_000
SECONDS = 4.0 if os.environ.get("WHOLE") else 2.0
TRIES = 8
"""As in other faults it is done again where bystanders waited too long: the machine may have been busy elsewhere. Here
the answers directly come from a process that has nothing else to do: at a load of 9 four tries of eleven were met."""


def test_bystanders_hardly_notice_requests_of_10_000_partitions() -> None:
    with sink(wide=PARTITIONS) as broker, forebay(broker) as proxy:
        posts = [Post(DIRECT, 0, broker, TOPIC), Post(THROUGH, 0, proxy.node_port(0), TOPIC)]
        wide = Flow(proxy.node_port(0), WIDE, size=100, partitions=PARTITIONS)
        assert is_taken(wide)
        for _ in range(TRIES):
            spared = _spared(posts, wide)
            if worst(spared.direct, spared.through):
                return
    raise AssertionError(spared)


def _spared(posts: list[Post], wide: Flow) -> Spared:
    with Bystanders(posts) as bystanders:
        begun = monotonic()
        with flood(wide, clients=1):
            wait_until(lambda: monotonic() - begun >= SECONDS, 2 * SECONDS, "the requests go on")
        waits = bystanders.stop()
    direct, through = (waits.latency(way, {0}, begun, begun + SECONDS) for way in (DIRECT, THROUGH))
    return Spared(direct, through)
