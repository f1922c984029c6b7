"""What waits and is under way, in an App that runs: names and numbers, of bounded size, and no record."""

from __future__ import annotations

from typing import Any

import msgspec

from forebay_codecs.api_keys import PRODUCE
from forebay_proxy.realms import dump
from tests.kit.app import running
from tests.kit.event_loop import in_loop, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.wire import batch, keyed, produce


@in_loop
async def test_what_waits_what_is_under_way_and_who_holds_memory() -> None:
    async with FakeCluster({"ponds": [0, 0], "lakes": [0]}) as cluster, running(cluster.bootstrap) as forebay:
        client = await forebay.client(0)
        cluster[0].holds(PRODUCE)
        client.send(produce(1, ("ponds", 1, batch(keyed("canary")))))
        away = [await cluster[0].receives(PRODUCE)]
        client.send(produce(2, ("ponds", 1, batch(keyed("canary"))), acks=-1))
        away.append(await cluster[0].receives(PRODUCE))
        client.send(produce(3, ("ponds", 1, batch(keyed("canary")))))
        await until(lambda: forebay.app._realm.accumulator.queued_batches == 1)
        told: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(forebay.app.dump()))
        assert "canary" not in str(told)
        rows = {(row["partition"], row["acks"]): row for row in told["queues"]["fullest"]}
        row = rows[1, "leader"]
        assert (row["topic"], row["leader"], row["in_flight"], row["batches"]) == ("ponds", 0, True, 1)
        assert row["oldest_s"] >= 0
        assert told["queues"]["total"] == len(rows) == 2
        (broker,) = told["brokers"]
        assert (broker["node"], broker["down"], broker["in_flight"] >= 1) == (0, False, True)
        assert told["memory"]["by_leader"][0]["held"] == told["memory"]["size"] - told["memory"]["available"]
        assert told["clients"]["connections"] == 1
        cluster[0].releases(PRODUCE)
        for each in away:
            each.answer()
        await client.receives(1, 2, 3)


@in_loop
async def test_of_very_many_partitions_the_fullest_are_told() -> None:
    topics = {f"t{number}": [0, 0] for number in range(dump.MOST)}
    async with FakeCluster(topics) as cluster, running(cluster.bootstrap, linger_ms=60_000) as forebay:
        client = await forebay.client(0)
        client.send(
            produce(1, *((name, index, batch(keyed("x" * (10 + 90 * index)))) for name in topics for index in (0, 1)))
        )
        await until(lambda: forebay.app._realm.accumulator.queued_batches == 2 * dump.MOST)
        told = forebay.app.dump()["queues"]
        assert (told["total"], len(told["fullest"])) == (2 * dump.MOST, dump.MOST)
        assert {row["partition"] for row in told["fullest"]} == {1}
