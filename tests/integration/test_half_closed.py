"""A client that closes its sending half behind its last requests is answered all of them, as by a broker."""

from __future__ import annotations

import asyncio

import pytest

from forebay_codecs.error_codes import NONE
from tests.integration.route import Route
from tests.kit.event_loop import in_loop
from tests.kit.wire import WireClient, batch, echo, keyed, metadata, metadata_of, null_key, only, produce

pytestmark = pytest.mark.integration


async def at_leader(route: Route, topic: str) -> WireClient:
    """Connected to the leader of the topic's only partition, as a client that sends no more was told it."""
    client = await WireClient.connect(int(route.bootstrap.split(",")[0].rpartition(":")[2]))
    client.send(metadata(1, topic))
    client.finish()
    (answer,) = await client.receives(1)
    assert await client.is_closed()
    told = metadata_of(answer)
    return await WireClient.connect(told.brokers[told.topics[0].partitions[0].leader_id].port)


@in_loop
async def test_it_is_answered_and_then_closed(route: Route) -> None:
    topic = await asyncio.to_thread(route.new_topic, 1)
    client = await at_leader(route, topic)
    client.send(
        produce(1, (topic, 0, batch(keyed("a")))),
        produce(2, (topic, 0, batch(null_key("b"))), acks=-1),
        echo(3),
        metadata(4, topic),
        produce(5, (topic, 0, batch(keyed("c"))), acks=0),
        produce(6, (topic, 0, batch(keyed("d", "e")))),
    )
    client.finish()
    first, second, _, _, last = await client.receives(1, 2, 3, 4, 6)
    assert [only(each).error_code for each in (first, second, last)] == [NONE] * 3
    assert await client.is_closed()
    since = dict.fromkeys(route.log.ends(topic), 0)
    found = await asyncio.to_thread(route.log.read, topic, since, at_least=5)
    # Those of other acks may overtake one another (docs/design.md, 6).
    assert sorted(record.value or b"" for record in found) == [b"a", b"b", b"c", b"d", b"e"]


@in_loop
async def test_the_beginning_of_another_request_changes_nothing(route: Route) -> None:
    topic = await asyncio.to_thread(route.new_topic, 1)
    client = await at_leader(route, topic)
    client.send(echo(1), produce(2, (topic, 0, batch(keyed("a"))), acks=-1), echo(3), echo(4)[:-1])
    client.finish()
    _, produced, _ = await client.receives(1, 2, 3)
    assert only(produced).error_code == NONE
    assert await client.is_closed()
