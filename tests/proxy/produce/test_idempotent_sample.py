"""The estimate of what idempotent clients keep from being moved: true on average, and cheap."""

from __future__ import annotations

from random import Random

import pytest

from forebay_codecs import produce_request
from forebay_codecs.compression import GZIP
from forebay_policies.eligibility import Eligibility
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.classifier import BatchClassifier
from forebay_proxy.produce.idempotent_sample import EVERY, IdempotentSample
from tests.codecs.record_oracle import Record
from tests.kit.app import running
from tests.kit.event_loop import in_loop
from tests.kit.fake_broker import FakeCluster
from tests.kit.wire import Batches, batch, keyed, null_key, produce

ENOUGH = 20_000
"""Batches, of which about 200 are opened."""


def idempotent(records: list[Record], codec: int = 0, **lies: int) -> bytes:
    return batch(records, codec, producer_id=7, **lies)


class OneClient:
    """Told what the sample finds of it."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def idempotent_null_keys(self, records: int) -> None:
        self.found.append(records)


def found(*batches: Batches, times: int = ENOUGH) -> list[int]:
    """What is told of a client that sends this request so many times."""
    stats, client = MetricRegistry(), OneClient()
    eligibility = Eligibility(("*",), ("raw",), ("*",), ())
    classifier = BatchClassifier(eligibility, lambda name: False, lambda name: True, lambda name: True, 1 << 20, stats)
    sample = IdempotentSample(lambda topic: topic != "single", stats, Random(3))
    frame = produce(1, *batches)[4:]
    request = produce_request.parse(frame)
    inspected = classifier.inspect(frame, request, request.topics)
    for _ in range(times):
        sample.passed(client, frame, inspected)  # type: ignore[arg-type]
    assert stats.take().counters["forebay_idempotent_null_key_records_total", ()] == sum(client.found)
    return client.found


@pytest.mark.parametrize("codec", [0, GZIP])
def test_one_batch_in_a_hundred_stands_for_all_of_them(codec: int) -> None:
    told = found(("ponds", 0, idempotent(null_key("a", "b", "c"), codec)))
    assert set(told) == {3 * EVERY}
    assert sum(told) == pytest.approx(3 * ENOUGH, rel=0.15)


def test_of_two_batches_in_every_request_each_is_as_likely_as_the_other() -> None:
    told = found(("ponds", 0, idempotent(null_key("a"))), ("ponds", 1, idempotent(null_key("a", "b"))))
    assert told.count(EVERY) == pytest.approx(ENOUGH / EVERY, rel=0.2)
    assert told.count(2 * EVERY) == pytest.approx(ENOUGH / EVERY, rel=0.2)


def test_records_with_a_key_could_not_move_anyway() -> None:
    assert set(found(("ponds", 0, idempotent([*keyed("a"), *null_key("b")])))) == {EVERY}
    assert set(found(("ponds", 0, idempotent(keyed("a"))))) == {0}


@pytest.mark.parametrize("topic", ["raw", "single"])
def test_nor_could_those_of_excluded_topics_or_where_there_is_no_choice(topic: str) -> None:
    assert found((topic, 0, idempotent(null_key("a")))) == []


@pytest.mark.parametrize(
    "records", [idempotent(null_key("a"), crc=1), idempotent(null_key("a"), count=2), b"", batch(null_key("a"))]
)
def test_what_cannot_be_opened_or_is_not_idempotent_counts_for_nothing(records: bytes) -> None:
    assert found(("ponds", 0, records), times=500) == []


@in_loop
async def test_it_is_told_of_the_client_and_the_batches_go_on_as_they_came() -> None:
    async with FakeCluster({"ponds": [0, 0]}) as cluster, running(cluster.bootstrap) as forebay:
        client = await forebay.client(0)
        for turn in range(3 * EVERY):
            client.send(produce(turn, ("ponds", 0, idempotent(null_key("a")))))
            await client.receives(turn)
        (seen,) = forebay.clients()
        assert seen.idempotent_null_keys in (EVERY, 2 * EVERY, 3 * EVERY, 4 * EVERY, 5 * EVERY)
        assert seen.records == 3 * EVERY
        assert forebay.count("forebay_idempotent_null_key_records_total") == seen.idempotent_null_keys
