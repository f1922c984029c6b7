"""Quotas of brokers, in the whole proxy: whom a throttle time holds up, who is told of it, and who is not."""

from __future__ import annotations

from random import Random
from time import monotonic

import pytest

from forebay_codecs.api_keys import PRODUCE
from forebay_codecs.error_codes import NONE
from forebay_policies.throttling import CLIENT_ID
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import Asked, FakeCluster
from tests.kit.wire import Response, WireClient, batch, echo, keyed, null_key, only, produce

A, B = "a", "b"


def record(
    number: int, client_id: str | None, value: str, partition: int = 0, acks: int = 1, timeout_ms: int = 30_000
) -> bytes:
    records = ("ponds", partition, batch(keyed(value)))
    return produce(number, records, acks=acks, client_id=client_id, timeout_ms=timeout_ms)


def throttle_time_ms(response: Response) -> int:
    return int.from_bytes(response.whole[-4:], "big")


def senders(cluster: FakeCluster) -> list[tuple[str | None, list[str]]]:
    return [(asked.client_id, asked.values) for asked in cluster[0].requests(PRODUCE)]


async def throttled(forebay: Running, cluster: FakeCluster, milliseconds: int = 1) -> WireClient:
    """The broker has throttled what was merged, and forgets it. Returns the client whose record it was."""
    client = await forebay.client(0)
    cluster[0].holds(PRODUCE)
    client.send(record(0, "first", "x"))
    (await cluster[0].receives(PRODUCE)).answer(throttle_time_ms=milliseconds)
    cluster[0].releases(PRODUCE)
    await client.receives(0)
    cluster.log.clear()
    cluster[0].forget()
    return client


class TestBeforeTheFirst:
    @in_loop
    async def test_all_clients_share_requests_under_forebays_own_id(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            clients = [await forebay.client(0) for _ in range(3)]
            cluster[0].holds(PRODUCE)
            clients[0].send(record(1, A, "0"))
            away = await cluster[0].receives(PRODUCE)
            before = forebay.count("forebay_produce_requests_total", "client")
            clients[1].send(record(1, A, "1"))
            clients[2].send(record(1, B, "2"))
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == before + 2)
            cluster[0].releases(PRODUCE)
            away.answer()
            for client in clients:
                await client.receives(1)
            assert [asked.client_id for asked in cluster[0].requests(PRODUCE)] == [CLIENT_ID] * 2
            assert len(cluster[0].requests(PRODUCE)[1].values) == 2

    @in_loop
    async def test_it_concerns_no_client_and_holds_nobody_up(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client, other = await forebay.client(0), await forebay.client(0)
            cluster[0].holds(PRODUCE)
            client.send(record(1, A, "1"))
            asked = await cluster[0].receives(PRODUCE)
            before = forebay.count("forebay_produce_requests_total", "client")
            client.send(record(2, A, "2"))
            other.send(record(1, B, "3"))
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == before + 2)
            cluster[0].releases(PRODUCE)
            asked.answer(throttle_time_ms=3_600_000)
            answers = [*await client.receives(1, 2), *await other.receives(1)]
            assert [throttle_time_ms(answer) for answer in answers] == [0, 0, 0]
            assert senders(cluster) == [(CLIENT_ID, ["1"]), (A, ["2"]), (B, ["3"])]
            assert len({id(asked.connection) for asked in cluster[0].requests(PRODUCE)}) == 3
            assert forebay.count("forebay_throttled_requests_total") == 1
            assert forebay.count("forebay_unmerged_brokers") == 1
            assert forebay.count("forebay_throttled_client_ids") == 1

    @in_loop
    async def test_nor_records_that_may_have_been_appended(self) -> None:
        """They go again as they went, merged: a broker knows them by that."""
        cluster = FakeCluster({"ponds": [0, 0]})
        cluster.idempotent = True
        async with cluster, running(cluster.bootstrap, enable_idempotence=True) as forebay:
            await until(lambda: forebay.count("forebay_producer_ids") > 0)
            client, other = await forebay.client(0), await forebay.client(0)
            cluster[0].holds(PRODUCE)
            client.send(record(1, A, "1"))
            first = await cluster[0].receives(PRODUCE)
            other.send(record(1, B, "2", partition=1))
            second = await cluster[0].receives(PRODUCE)
            cluster[0].releases(PRODUCE)
            first.answer(throttle_time_ms=3_600_000)
            await client.receives(1)
            second.close()
            assert only((await other.receives(1))[0]).error_code == NONE
            assert [client_id for client_id, _ in senders(cluster)] == [CLIENT_ID] * 3


class TestAThrottledClient:
    @in_loop
    async def test_whatever_its_client_id_is(self) -> None:
        """Another Forebay's requests carry the same as ours."""
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            await throttled(forebay, cluster)
            other, modest = await forebay.client(0), await forebay.client(0)
            cluster[0].holds_produce(lambda asked: asked.values == ["1"])
            other.send(record(1, CLIENT_ID, "1"))
            asked = await cluster[0].receives(PRODUCE)
            asked.answer(throttle_time_ms=3_600_000)
            await other.receives(1)
            again = await forebay.client(0)
            again.send(record(1, CLIENT_ID, "2"))
            await until(lambda: forebay.count("forebay_queued_batches") == 1)
            modest.send(record(1, B, "3"))
            await modest.receives(1)
            assert senders(cluster) == [(CLIENT_ID, ["1"]), (B, ["3"])]

    @in_loop
    async def test_it_is_told_and_nobody_else(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            await throttled(forebay, cluster)
            greedy, modest = await forebay.client(0), await forebay.client(0)
            cluster[0].holds_produce(lambda asked: asked.client_id == A)
            greedy.send(record(1, A, "1"))
            modest.send(record(1, B, "2"))
            (await cluster[0].receives(PRODUCE)).answer(throttle_time_ms=1234)
            assert throttle_time_ms((await greedy.receives(1))[0]) == 1234
            assert throttle_time_ms((await modest.receives(1))[0]) == 0

    @in_loop
    async def test_nothing_of_its_client_id_is_written_until_its_time_is_over_and_others_go_on(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            await throttled(forebay, cluster)
            greedy, again, modest = [await forebay.client(0) for _ in range(3)]
            cluster[0].holds_produce(lambda asked: asked.values == ["1"])
            greedy.send(record(1, A, "1"))
            asked = await cluster[0].receives(PRODUCE)
            begun = monotonic()
            asked.answer(throttle_time_ms=700)
            await greedy.receives(1)
            again.send(record(1, A, "2"))  # the same client id, and the same partition
            await until(lambda: forebay.count("forebay_queued_batches") == 1)
            modest.send(record(1, B, "3"))
            await modest.receives(1)
            assert cluster.values("ponds", 0) == ["1", "3"]
            await again.receives(1)
            assert monotonic() - begun >= 0.7
            assert senders(cluster) == [(A, ["1"]), (B, ["3"]), (A, ["2"])]

    @pytest.mark.parametrize("acks", [0, 1])
    @in_loop
    async def test_it_is_not_read_meanwhile_as_by_a_broker(self, acks: int) -> None:
        """Not every client heeds throttle times, and without acks it is not told of any."""
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            await throttled(forebay, cluster)
            greedy, modest = await forebay.client(0), await forebay.client(0)
            cluster[0].holds_produce(lambda asked: asked.values == ["1"])
            greedy.send(record(1, A, "1", acks=acks))
            asked = await cluster[0].receives(PRODUCE)
            begun = monotonic()
            asked.answer(throttle_time_ms=500)
            await until(lambda: forebay.count("forebay_throttled_client_ids") == 2)
            await turns()
            before = forebay.count("forebay_produce_requests_total", "client")
            greedy.send(record(2, A, "2", acks=acks), echo(3))
            modest.send(record(1, B, "3"))
            await modest.receives(1)
            assert forebay.count("forebay_produce_requests_total", "client") == before + 1
            await greedy.receives(*((1, 2, 3) if acks else (3,)))
            assert monotonic() - begun >= 0.5
            await until(lambda: cluster.values("ponds", 0) == ["1", "3", "2"])

    @in_loop
    async def test_that_time_is_no_timeout(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            await throttled(forebay, cluster)
            greedy, again = await forebay.client(0), await forebay.client(0)
            cluster[0].holds_produce(lambda asked: asked.values == ["1"])
            greedy.send(record(1, A, "1"))
            (await cluster[0].receives(PRODUCE)).answer(throttle_time_ms=1_800)
            await greedy.receives(1)
            begun = monotonic()
            again.send(record(1, A, "2", timeout_ms=1_000))
            assert only((await again.receives(1))[0]).error_code == NONE
            assert monotonic() - begun > 1.5
            assert cluster.values("ponds", 0) == ["1", "2"]

    @in_loop
    async def test_its_movable_records_may_go_where_it_is_not_throttled(self) -> None:
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            cluster[0].holds(PRODUCE)
            client.send(record(0, "first", "x"))
            (await cluster[0].receives(PRODUCE)).answer(throttle_time_ms=1)
            await client.receives(0)
            client.send(record(1, A, "1"))
            (await cluster[0].receives(PRODUCE)).answer(throttle_time_ms=400)
            cluster[0].releases(PRODUCE)
            await client.receives(1)
            other = await forebay.client(1)
            for number in range(20):
                other.send(produce(number, ("ponds", 1, batch(null_key(f"{number}" * 9000))), client_id=A))
            for response in await other.receives(*range(20)):
                assert only(response).error_code == NONE
            assert len(cluster.values("ponds", 0)) + len(cluster.values("ponds", 1)) == 22
            assert {asked.client_id for asked in cluster[1].requests(PRODUCE)} == {CLIENT_ID}

    @in_loop
    async def test_a_client_without_an_id_has_none_upstream(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await throttled(forebay, cluster)
            client.send(record(1, None, "1"))
            await client.receives(1)
            assert senders(cluster) == [(None, ["1"])]


class TestForms:
    @in_loop
    async def test_by_setting_no_client_ids_are_ever_merged(self) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, merge_across_client_ids=False) as forebay,
        ):
            clients = [await forebay.client(0) for _ in range(2)]
            cluster[0].holds(PRODUCE)
            for client, client_id in zip(clients, (A, B), strict=True):
                client.send(record(1, client_id, client_id))
            away = [await cluster[0].receives(PRODUCE) for _ in range(2)]
            assert sorted((asked.client_id, asked.values) for asked in away) == [(A, [A]), (B, [B])]
            for asked in away:
                asked.answer(throttle_time_ms=77)
            for client in clients:
                assert throttle_time_ms((await client.receives(1))[0]) == 77
            assert forebay.count("forebay_unmerged_brokers") == 0

    @in_loop
    async def test_each_client_id_has_its_first_request_whatever_others_have_under_way(self) -> None:
        names = [f"client {number}" for number in range(30)]
        async with FakeCluster({"ponds": [0] * 4}) as cluster, running(cluster.bootstrap) as forebay:
            await throttled(forebay, cluster)
            cluster[0].holds(PRODUCE)
            clients = [await forebay.client(0) for _ in names]
            for partition in range(4):
                clients[0].send(record(partition, names[0], "x" * 20_000, partition))
            for client, name in list(zip(clients, names, strict=True))[1:]:
                client.send(record(0, name, name))
            await until(lambda: {asked.client_id for asked in cluster[0].requests(PRODUCE)} == set(names))
            cluster[0].releases(PRODUCE)
            for asked in cluster[0].requests(PRODUCE):
                asked.answer()
            for client in clients:
                assert only((await client.receives(0))[0]).error_code == NONE

    @in_loop
    @pytest.mark.parametrize("seed", range(4))
    async def test_a_clients_records_keep_their_order_whenever_brokers_throttle(self, seed: int) -> None:
        rng = Random(seed)
        async with (
            FakeCluster({"ponds": [0, 1, 0]}, nodes=2) as cluster,
            running(cluster.bootstrap, max_request_size=2_000, batch_size=500, batch_max_size=1_000) as forebay,
        ):
            cluster.one_at_a_time = True
            clients = [await forebay.client(0) for _ in range(6)]
            held: list[Asked] = []

            def hold(asked: Asked) -> bool:
                held.append(asked)
                return True

            for broker in cluster.brokers.values():
                broker.holds_produce(hold)
            for number in range(40):
                for name, client in enumerate(clients):
                    value = f"{name}:{number:02}:" + "x" * rng.choice([0, 50, 300])
                    records = batch(keyed(value), codec=rng.choice([0, 0, 1, 3]))
                    where = ("ponds", rng.randrange(3), records)
                    client.send(produce(number, where, acks=-1 if name % 2 else 1, client_id=f"client {name}"))
            accumulator = forebay.app._realm.accumulator
            now = monotonic()
            while sum(len(values) for values in cluster.log.values()) < 40 * len(clients):
                if held:
                    held.pop(rng.randrange(len(held))).answer(throttle_time_ms=rng.choice([0, 0, 1, 3]))
                if rng.random() < 0.05:
                    now += 4000
                    accumulator.settle(now)
                await turns(2)
            for client in clients:
                for response in await client.receives(*range(40)):
                    assert only(response).error_code == NONE
            for partition in range(3):
                for name in range(6):
                    log = cluster.values("ponds", partition)
                    mine = [value.split(":")[1] for value in log if value.startswith(f"{name}:")]
                    assert mine == sorted(mine)
            assert forebay.count("forebay_throttled_requests_total") > 0
