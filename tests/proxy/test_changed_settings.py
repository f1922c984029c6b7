"""Live settings take effect in an App that runs; that all workers are told is in process/test_supervisor_reload.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from forebay_policies.partitioner import Partitioner, PartitionerOptions
from forebay_policies.uniform_partitioner import UniformPartitioner
from forebay_proxy.config.live import LIVE, with_live
from forebay_proxy.config.values import SETTINGS
from forebay_proxy.logs import get_logger
from tests.kit.app import running
from tests.kit.event_loop import in_loop, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.own_logs import own_logs
from tests.kit.wire import batch, keyed, metadata, null_key, produce

TOPIC = "ponds"
CHANGED: dict[str, Any] = {
    "log.level": "error",
    "topics.include": ("a*",),
    "topics.exclude": ("b*",),
    "client.ids.include": ("c*",),
    "client.ids.exclude": ("d*",),
    "partitioner.adaptive.partitioning.enable": False,
    "partitioner.sticky.batch.size": 1234,
    "partitioner.availability.timeout.ms": 567,
    "partitioner.min.share": 0.001,
    "moves": "observe",
    "topics.move": ("g*",),
    "topics.observe": ("h*",),
    "client.ids.observe": ("i*",),
    "brokers.avoid": (1,),
    "linger.ms": 3,
    "metadata.max.age.ms": 200_000,
    "metadata.soft.age.ms": 20_000,
    "metadata.max.idle.ms": 100_000,
    "connections.max.idle.ms": 500_000,
    "connections.max.age.ms": 700_000,
    "max.connections": 77,
    "max.connections.per.ip": 7,
}
"""Every live setting, with a value that is not its default."""


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    with own_logs():
        yield


def test_no_live_setting_is_left_out_here() -> None:
    assert CHANGED.keys() == LIVE
    assert all(value != SETTINGS[name].default for name, value in CHANGED.items())


@in_loop
async def test_realms_that_are_made_later_begin_with_what_is_in_force() -> None:
    async with FakeCluster({TOPIC: [0]}) as cluster, running(cluster.bootstrap) as forebay:
        begun_with = forebay.app._shared.settings
        changed = {SETTINGS[name].attribute: value for name, value in CHANGED.items()}
        forebay.change(**changed, workers=3)
        assert forebay.app._shared.settings == with_live(begun_with, msgspec.structs.replace(begun_with, **changed))
        assert forebay.app._shared.settings.workers == 1
        assert forebay.app._shared.eligibility is forebay.app._realm.handler.classifier.eligibility


@in_loop
async def test_a_shorter_linger_counts_for_what_lingers_already_and_for_what_comes() -> None:
    async with FakeCluster({TOPIC: [0, 0]}) as cluster, running(cluster.bootstrap, linger_ms=60_000) as forebay:
        client = await forebay.client(0)
        client.send(produce(1, (TOPIC, 0, batch(keyed("first")))))
        await until(lambda: forebay.app._realm.accumulator.queued_batches == 1)
        forebay.change(linger_ms=0)
        await client.receives(1)
        client.send(produce(2, (TOPIC, 0, batch(keyed("second")))))
        await client.receives(2)
        forebay.change(linger_ms=60_000)
        client.send(produce(3, (TOPIC, 0, batch(keyed("third")))))
        await until(lambda: forebay.app._realm.accumulator.queued_batches == 1)
        assert cluster.values(TOPIC, 0) == ["first", "second"]


@in_loop
async def test_another_setting_leaves_what_lingers_alone() -> None:
    async with FakeCluster({TOPIC: [0, 0]}) as cluster, running(cluster.bootstrap, linger_ms=60_000) as forebay:
        client = await forebay.client(0)
        client.send(produce(1, (TOPIC, 0, batch(keyed("first")))))
        await until(lambda: forebay.app._realm.accumulator.queued_batches == 1)
        eligibility = forebay.app._realm.handler.classifier.eligibility
        forebay.change(max_connections=5)
        assert forebay.app._realm.accumulator.queued_batches == 1
        assert forebay.app._realm.handler.classifier.eligibility is eligibility, "nobody's way has changed"


@in_loop
async def test_a_max_age_of_nothing_has_each_question_asked_anew() -> None:
    async with FakeCluster({TOPIC: [0]}) as cluster, running(cluster.bootstrap) as forebay:
        client, number = await forebay.client(0), 0

        async def asks() -> float:
            """How many questions of a new client reach a broker."""
            nonlocal number, client
            client, number = await forebay.client(0), number + 1
            before = forebay.count("forebay_metadata_upstream_requests_total")
            client.send(metadata(number, TOPIC))
            await client.receives(number)
            return forebay.count("forebay_metadata_upstream_requests_total") - before

        await asks()
        assert await asks() == 0
        forebay.change(metadata_max_age_ms=0)
        assert await asks() == 1
        forebay.change(metadata_max_age_ms=300_000)
        await asks()
        assert await asks() == 0


@in_loop
async def test_fewer_connections_are_let_in_and_then_more() -> None:
    async with FakeCluster({TOPIC: [0]}) as cluster, running(cluster.bootstrap) as forebay:
        first = await forebay.client(0)
        first.send(metadata(1, TOPIC))
        await first.receives(1)
        forebay.change(max_connections=1)
        assert await (await forebay.client(0)).is_closed()
        forebay.change(max_connections=10)
        third = await forebay.client(0)
        for client in (first, third):
            client.send(metadata(2, TOPIC))
            await client.receives(2)


@in_loop
async def test_shorter_turns_spread_records_at_once() -> None:
    turns = {"partitioner_sticky_batch_size": 1_000_000}
    async with FakeCluster({TOPIC: [0] * 8}) as cluster, running(cluster.bootstrap, **turns) as forebay:
        client = await forebay.client(0)

        async def used() -> int:
            """How many partitions get some of 60 records."""
            before = [len(cluster.values(TOPIC, index)) for index in range(8)]
            for number in range(60):
                client.send(produce(number, (TOPIC, 0, batch(null_key("x" * 100)))))
                await client.receives(number)
            return sum(len(cluster.values(TOPIC, index)) > before[index] for index in range(8))

        assert await used() == 1
        chosen = forebay.count("forebay_partitioner_choices_total", "adaptive", "sticky")
        forebay.change(partitioner_sticky_batch_size=1)
        assert await used() > 4
        assert forebay.count("forebay_partitioner_choices_total", "adaptive", "sticky") >= chosen


@in_loop
async def test_partitioners_are_made_of_the_new_options_and_only_where_these_differ() -> None:
    async with FakeCluster({TOPIC: [0, 0]}) as cluster, running(cluster.bootstrap) as forebay:
        partitioners, made = forebay.app._realm._partitioners, list[PartitionerOptions]()

        def make(options: PartitionerOptions) -> Partitioner:
            made.append(options)
            return UniformPartitioner(options.rng, options.batch_size)

        partitioners._factory = make
        before = partitioners.of(TOPIC, "")
        forebay.change(max_connections=5)
        assert partitioners.of(TOPIC, "") is before
        forebay.change(
            partitioner_adaptive_partitioning_enable=False,
            partitioner_availability_timeout_ms=7_000,
            partitioner_min_share=0.125,
        )
        assert partitioners.of(TOPIC, "") is not before
        told = made[-1]
        assert (told.adaptive_enabled, told.availability_timeout_s, told.min_share) == (False, 7.0, 0.125)


@in_loop
async def test_the_log_level(capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeCluster({TOPIC: [0]}) as cluster, running(cluster.bootstrap) as forebay:
        log = get_logger()
        forebay.change(log_level="error")
        capsys.readouterr()
        log.info("quiet")
        assert "quiet" not in "".join(capsys.readouterr())
        forebay.change(log_level="debug")
        log.debug("loud")
        assert "loud" in "".join(capsys.readouterr())
