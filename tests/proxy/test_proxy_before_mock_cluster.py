"""The whole proxy before brokers that others wrote (librdkafka's mock cluster), which fail when told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay_codecs.api_keys import METADATA, PRODUCE
from forebay_codecs.error_codes import (
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
)
from forebay_proxy.config.settings import HostPort
from tests.kit.app import running
from tests.kit.event_loop import in_loop, until
from tests.kit.faulty_cluster import FaultyCluster
from tests.kit.ports import LOOPBACK
from tests.kit.wire import WireClient, batch, keyed, metadata, metadata_of, null_key, only, produce

TOPIC = "ponds"
CLOSES = -195
"""librdkafka's code for: close the connection instead of an answer."""


@pytest.fixture
def brokers() -> Iterator[FaultyCluster]:
    """Partition i of the topic is led by broker i + 1."""
    with FaultyCluster(3) as brokers:
        brokers.create_topic(TOPIC, 3)
        for partition in range(3):
            brokers.set_partition_leader(TOPIC, partition, partition + 1)
        yield brokers


def servers(brokers: FaultyCluster) -> tuple[HostPort, ...]:
    pairs = [address.rpartition(":") for address in brokers.bootstrap.split(",")]
    return tuple(HostPort(host, int(port)) for host, _, port in pairs)


async def warm(client: WireClient) -> None:
    client.send(produce(0, (TOPIC, 0, batch(keyed("warm")))))
    assert only((await client.receives(0))[0]).error_code == NONE


@in_loop
async def test_every_broker_is_named_by_its_listener(brokers: FaultyCluster) -> None:
    async with running(servers(brokers)) as forebay:
        client = await forebay.client()
        client.send(metadata(1, TOPIC))
        found = metadata_of((await client.receives(1))[0])
        assert {node: (broker.host, broker.port) for node, broker in found.brokers.items()} == {
            node: (LOOPBACK, forebay.node_port(node)) for node in (1, 2, 3)
        }


@in_loop
async def test_offsets_are_the_brokers_own(brokers: FaultyCluster) -> None:
    async with running(servers(brokers)) as forebay:
        clients = [await forebay.client(1) for _ in range(5)]
        for client in clients:
            client.send(*[produce(number, (TOPIC, 0, batch(keyed("a", "b")))) for number in range(20)])
        offsets = []
        for client in clients:
            mine = [only(response).base_offset for response in await client.receives(*range(20))]
            assert mine == sorted(mine)
            offsets += mine
        assert sorted(offsets) == list(range(0, 200, 2))


@in_loop
async def test_a_batch_that_is_not_taken_is_sent_again(brokers: FaultyCluster) -> None:
    async with running(servers(brokers)) as forebay:
        client = await forebay.client(1)
        await warm(client)
        brokers.start_request_tracking()
        brokers.push_request_errors(PRODUCE, [NOT_LEADER_OR_FOLLOWER] * 3)
        client.send(produce(1, (TOPIC, 0, batch(keyed("a")))))
        answer = only((await client.receives(1))[0])
        assert (answer.error_code, answer.base_offset) == (NONE, 1)
        counts = brokers.request_counts()
        assert counts[1, PRODUCE] == 4
        assert sum(count for (_, api), count in counts.items() if api == METADATA) >= 1


@in_loop
async def test_movable_records_are_tried_at_another_broker(brokers: FaultyCluster) -> None:
    async with running(servers(brokers)) as forebay:
        client = await forebay.client(1)
        await warm(client)
        brokers.start_request_tracking()
        brokers.push_request_errors(PRODUCE, [NOT_LEADER_OR_FOLLOWER])
        client.send(produce(1, (TOPIC, 0, batch(null_key("a")))))
        answer = only((await client.receives(1))[0])
        assert (answer.error_code, answer.base_offset) == (NONE, -1)
        tried = [request.broker for request in brokers.requests() if request.api_key == PRODUCE]
        assert len(tried) == len(set(tried)) == 2


@in_loop
@pytest.mark.parametrize(("code", "told"), [(NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS), (CLOSES, REQUEST_TIMED_OUT)])
async def test_what_may_have_been_appended_is_the_clients_to_know(brokers: FaultyCluster, code: int, told: int) -> None:
    async with running(servers(brokers)) as forebay:
        client = await forebay.client(1)
        await warm(client)
        brokers.start_request_tracking()
        brokers.push_request_errors(PRODUCE, [code])
        client.send(produce(1, (TOPIC, 0, batch(null_key("a")))))
        assert only((await client.receives(1))[0]).error_code == told
        client.send(produce(2, (TOPIC, 0, batch(keyed("b")))))
        assert only((await client.receives(2))[0]).error_code == NONE
        assert sum(count for (_, api), count in brokers.request_counts().items() if api == PRODUCE) == 2


@in_loop
async def test_keyed_records_wait_for_their_broker_and_the_others_do_not(brokers: FaultyCluster) -> None:
    async with running(servers(brokers)) as forebay:
        keeping, free = await forebay.client(1), await forebay.client(1)
        await warm(keeping)
        brokers.broker_down(2)
        keeping.send(produce(1, (TOPIC, 1, batch(keyed("kept")))))
        await until(lambda: forebay.count("forebay_errors_total", "upstream", "connect") >= 1)
        free.send(*[produce(number, (TOPIC, 1, batch(null_key(f"{number}" * 9_000)))) for number in range(5)])
        for response in await free.receives(*range(5)):
            assert only(response).error_code == NONE
        brokers.broker_up(2)
        answer = only((await keeping.receives(1))[0])
        assert (answer.error_code, answer.base_offset) == (NONE, 0)


@in_loop
async def test_keyed_records_follow_a_partition_that_is_led_elsewhere(brokers: FaultyCluster) -> None:
    async with running(servers(brokers)) as forebay:
        client = await forebay.client(1)
        await warm(client)
        brokers.broker_down(1)
        other = await forebay.client(2)
        other.send(produce(1, (TOPIC, 0, batch(keyed("a")))))
        await until(lambda: forebay.count("forebay_errors_total", "upstream", "connect") >= 1)
        brokers.set_partition_leader(TOPIC, 0, 3)
        assert only((await other.receives(1))[0]).error_code == NONE


@in_loop
async def test_while_a_slow_broker_holds_a_batch_the_next_one_grows(brokers: FaultyCluster) -> None:
    async with running(servers(brokers)) as forebay:
        clients = [await forebay.client(1) for _ in range(20)]
        await warm(clients[0])
        brokers.set_broker_rtt(1, 100)
        brokers.start_request_tracking()
        for client in clients:
            client.send(*[produce(number, (TOPIC, 0, batch(keyed("a")))) for number in range(5)])
        for client in clients:
            await client.receives(*range(5))
        assert brokers.request_counts()[1, PRODUCE] <= 4
