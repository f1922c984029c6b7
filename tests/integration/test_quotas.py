"""A real broker's client quotas: whoever stays below its own is never throttled, whatever its neighbours send."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count, product
from time import monotonic

import pytest

from forebay_codecs import error_codes
from tests.integration.conftest import DIRECT
from tests.kit.event_loop import in_loop
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.quotas import client_quota
from tests.kit.wire import WireClient, batch, keyed, only, produce

QUOTA = 60_000
RATE = 10
HONEST_SIZE = 4_000
"""40 KB/s."""
GREEDY_SIZE = 40_000
RECORDS = 80


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """One of its own: quotas are the cluster's."""
    with KafkaCluster("4.3.1", 1) as cluster, client_quota(cluster.internal_ports[0], QUOTA):
        yield cluster


class Producer:
    """Sends a record at a time, at most RATE a second, and keeps (error code, throttle time) of each answer."""

    def __init__(self, port: int, topic: str, client_id: str, size: int) -> None:
        self.answers: list[tuple[int, int]] = []
        self._port = port
        self._client_id = client_id
        self._records = topic, 0, batch(keyed("x" * size))

    async def send(self, records: int | None) -> None:
        client = await WireClient.connect(self._port)
        begun = monotonic()
        try:
            for number in range(records) if records is not None else count():
                client.send(produce(number, self._records, client_id=self._client_id))
                (answer,) = await client.receives(number)
                throttle_time_ms = int.from_bytes(answer.whole[-4:], "big")
                self.answers.append((only(answer).error_code, throttle_time_ms))
                await asyncio.sleep(begun + (number + 1) / RATE - monotonic())
        finally:
            client.close()


@pytest.mark.whole
@pytest.mark.parametrize(("setting", "greedy"), list(product(["false", "true"], [0, 1])))
@in_loop
async def test_who_is_below_its_quota_is_not_throttled_and_told_no_error(
    cluster: KafkaCluster, setting: str, greedy: int
) -> None:
    name = f"quotas-{greedy}-{setting}-{os.getpid()}"
    settings = {"request.timeout.ms": "4000", "merge.across.client.ids": setting}
    with ExitStack() as stack:
        forebay = None
        port = cluster.ports[0]
        if not DIRECT:
            forebay = stack.enter_context(ForebayProcess(cluster.bootstrap, cluster.nodes, settings=settings))
            port = forebay.node_port(0)
        cluster.create_topic(name, assignment=[[0]])
        honest = [Producer(port, name, f"{name}-{number}", HONEST_SIZE) for number in range(6 - greedy)]
        above = [Producer(port, name, f"{name}-greedy", GREEDY_SIZE) for _ in range(greedy)]
        others = [asyncio.ensure_future(producer.send(None)) for producer in above]
        await asyncio.gather(*(producer.send(RECORDS) for producer in honest))
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)

        told = [answer for producer in honest for answer in producer.answers]
        assert set(told) == {(error_codes.NONE, 0)}
        assert len(told) == RECORDS * len(honest)
        for producer in above:
            assert {error for error, _ in producer.answers} == {error_codes.NONE}
            assert any(throttle_time_ms for _, throttle_time_ms in producer.answers)
        if forebay is not None:
            metrics = forebay.get("/metrics")
            assert 'forebay_errors_total{kind="expired",side="internal"} 0' in metrics
            assert ("forebay_throttled_requests_total 0" in metrics) is (setting == "false" and not greedy)
            assert ("forebay_unmerged_brokers 1" in metrics) is (setting == "true")
