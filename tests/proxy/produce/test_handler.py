"""From a client's records to the brokers': merging, order, waiting for metadata and for memory, within bounded time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import ClassVar
from unittest.mock import patch

import pytest
import structlog

from forebay_codecs.api_keys import METADATA, PRODUCE
from forebay_codecs.compression import GZIP
from forebay_codecs.error_codes import (
    CORRUPT_MESSAGE,
    LEADER_NOT_AVAILABLE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from forebay_codecs.errors import Malformed
from forebay_policies.partitioner import Partitioner
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.produce.classifier import InspectedBatch
from forebay_proxy.produce.completion import ANSWERED_AT_ONCE
from forebay_proxy.produce.handler import INSPECTED_AT_ONCE, SLICE
from tests.codecs.record_oracle import Record
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import Asked, FakeCluster
from tests.kit.wire import (
    CLIENT_ID,
    LIST_GROUPS,
    PRODUCE_VERSION,
    WireClient,
    batch,
    echo,
    keyed,
    null_key,
    old_produce,
    only,
    produce,
    produced,
)


async def warm(client: WireClient, *topics: str) -> None:
    """The proxy knows the topics; their first record says so."""
    client.send(produce(-1, *[(topic, 0, batch(keyed("warm"))) for topic in topics]))
    await client.receive()


class TestMerging:
    @in_loop
    async def test_records_of_several_clients_leave_in_one_batch_and_each_learns_its_own_offset(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            clients = [await forebay.client(0) for _ in range(4)]
            await warm(clients[0], "ponds")
            await cluster[0].receives(PRODUCE)
            cluster[0].holds(PRODUCE)
            clients[0].send(produce(0, ("ponds", 0, batch(keyed("a0", "a1")))))
            away = await cluster[0].receives(PRODUCE)
            for number, client in enumerate(clients[1:], start=1):
                client.send(produce(number, ("ponds", 0, batch(keyed(f"{number}-0", f"{number}-1")))))
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == 5)
            away.answer()
            merged = await cluster[0].receives(PRODUCE)
            assert sorted(merged.values) == ["1-0", "1-1", "2-0", "2-1", "3-0", "3-1"]
            merged.answer()
            log = ["warm", "a0", "a1", *merged.values]
            for number, client in enumerate(clients):
                (response,) = await client.receives(number)
                value = "a0" if number == 0 else f"{number}-0"
                assert only(response).base_offset == log.index(value)

    @in_loop
    async def test_one_batch_alone_is_sent_byte_for_byte(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            sent = batch(keyed("a", "b"), GZIP)
            client.send(produce(1, ("ponds", 0, sent)))
            asked = await cluster[0].receives(PRODUCE)
            ((_, ((_, start, end),)),) = asked.produce.topics
            assert asked.frame[start:end] == sent

    @in_loop
    async def test_a_moved_batch_has_no_offset(self) -> None:
        async with (
            FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster,
            running(cluster.bootstrap, partitioner_sticky_batch_size=1) as forebay,
        ):
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("slow")))))
            slow = await cluster[0].receives(PRODUCE)
            client.send(*[produce(n, ("ponds", 0, batch(null_key(f"{n}")))) for n in range(2, 40)])
            await until(lambda: cluster.values("ponds", 1))
            cluster[0].releases(PRODUCE)
            slow.answer()
            await client.receives(1)
            for number in range(2, 40):
                (response,) = await client.receives(number)
                assert (only(response).base_offset == -1) == (str(number) in cluster.values("ponds", 1))

    @in_loop
    async def test_a_mixed_batch_is_split_and_only_its_keyed_records_are_sure_of_their_partition(self) -> None:
        async with (
            FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster,
            running(cluster.bootstrap, partitioner_sticky_batch_size=1) as forebay,
        ):
            client = await forebay.client(0)
            for number in range(20):
                mixed = [*keyed(f"k{number}"), *null_key(f"n{number}"), *keyed(f"l{number}")]
                client.send(produce(number, ("ponds", 0, batch(mixed))))
                (response,) = await client.receives(number)
                assert only(response).error_code == NONE
            stayed, moved = cluster.values("ponds", 0), cluster.values("ponds", 1)
            kept = [value for value in stayed if value[0] != "n"]
            assert kept == [f"{kind}{number}" for number in range(20) for kind in "kl"]
            assert moved
            assert all(value[0] == "n" for value in moved)


class TestOrder:
    @in_loop
    async def test_topics_of_one_partition_keep_the_order_of_records_without_a_key(self) -> None:
        """Whatever their codec, and keyed ones between them."""
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, linger_ms=2) as forebay:
            client = await forebay.client(0)
            for number in range(60):
                make = keyed if number % 3 == 2 else null_key
                client.send(produce(number, ("ponds", 0, batch(make(str(number)), GZIP if number % 2 else 0))))
            answers = [only(response) for response in await client.receives(*range(60))]
            assert cluster.values("ponds", 0) == [str(number) for number in range(60)]
            assert [answer.base_offset for answer in answers] == list(range(60))

    @in_loop
    async def test_what_was_told_as_timed_out_before_it_left_is_not_sent_afterwards(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client, other = await forebay.client(0), await forebay.client(0)
            await warm(client, "ponds")
            await cluster[0].receives(PRODUCE)
            cluster[0].holds(PRODUCE)
            other.send(produce(0, ("ponds", 0, batch(keyed("away")))))
            away = await cluster[0].receives(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a"))), timeout_ms=1_000))
            other.send(produce(1, ("ponds", 0, batch(keyed("b")))))
            (told,) = await client.receives(1)
            assert only(told).error_code == REQUEST_TIMED_OUT
            client.send(produce(2, ("ponds", 0, batch(keyed("a, again")))))
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == 5)
            cluster[0].releases(PRODUCE)
            away.answer()
            await client.receives(2)
            await other.receives(0, 1)
            assert cluster.values("ponds", 0) == ["warm", "away", "b", "a, again"]

    @in_loop
    @pytest.mark.parametrize("linger_ms", [-1, 0, 2])
    async def test_keyed_records_of_a_client_keep_their_order(self, linger_ms: int) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, linger_ms=linger_ms) as forebay:
            clients = [await forebay.client(0) for _ in range(3)]
            for number in range(100):
                for name, client in zip("abc", clients, strict=True):
                    client.send(produce(number, ("ponds", 0, batch(keyed(f"{name}{number}")))))
            for client in clients:
                await client.receives(*range(100))
            for name in "abc":
                found = [value for value in cluster.values("ponds", 0) if value[0] == name]
                assert found == [f"{name}{number}" for number in range(100)]

    @in_loop
    @pytest.mark.parametrize("linger_ms", [-1, 0, 50])
    async def test_also_where_a_client_compresses_only_what_is_worth_it(self, linger_ms: int) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, linger_ms=linger_ms) as forebay:
            client = await forebay.client(0)
            await warm(client, "ponds")
            client.send(
                produce(1, ("ponds", 0, batch(keyed("small")))),
                produce(2, ("ponds", 0, batch(keyed("x" * 20_000), GZIP))),
                produce(3, ("ponds", 0, batch(keyed("tiny")))),
            )
            await client.receives(1, 2, 3)
            assert [value[:5] for value in cluster.values("ponds", 0)] == ["warm", "small", "xxxxx", "tiny"]

    @in_loop
    async def test_also_across_retries(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, "ponds")
            await cluster[0].receives(PRODUCE)
            cluster[0].holds(PRODUCE)
            client.send(*[produce(number, ("ponds", 0, batch(keyed(f"{number}")))) for number in range(5)])
            (await cluster[0].receives(PRODUCE)).answer(error_code=6)
            client.send(*[produce(number, ("ponds", 0, batch(keyed(f"{number}")))) for number in range(5, 10)])
            (await cluster[0].receives(PRODUCE)).answer(error_code=6)
            cluster[0].releases(PRODUCE)
            await client.receives(*range(10))
            assert cluster.values("ponds", 0) == ["warm", *map(str, range(10))]

    @in_loop
    async def test_nor_are_they_overtaken_by_what_the_client_sends_to_a_new_leader(self) -> None:
        """A broker that leads no more refuses what comes late. Whoever has sent nothing elsewhere is not late."""
        async with FakeCluster({"ponds": [0, 0]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            slow, fast, other = await forebay.client(0), await forebay.client(1), await forebay.client(0)
            await warm(slow, "ponds")
            cluster.topics["ponds"] = [1, 1]
            slow.send(produce(1, ("ponds", 0, batch(keyed("1")))))
            assert only((await slow.receives(1))[0]).error_code == NONE  # it went to the new leader
            fast.send(produce(3, ("ponds", 0, batch(keyed("3")))))
            await fast.receives(3)
            slow.send(produce(2, ("ponds", 0, batch(keyed("2") + null_key("without a key")))))
            assert only((await slow.receives(2))[0]).error_code == NOT_LEADER_OR_FOLLOWER
            other.send(produce(4, ("ponds", 0, batch(keyed("4"))), client_id="another"))
            assert only((await other.receives(4))[0]).error_code == NONE
            fast.send(produce(5, ("ponds", 0, batch(keyed("5")))))
            await fast.receives(5)
            assert cluster.values("ponds", 0) == ["warm", "1", "3", "4", "5"]
            assert cluster.values("ponds", 1) == []


class TestWithoutMetadata:
    @in_loop
    async def test_an_unknown_topic_is_told_in_bounded_time(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("nowhere", 0, batch(keyed("a"))), ("ponds", 0, batch(keyed("b")))), echo(2))
            answers = produced((await client.receives(1, 2))[0])
            assert {where: answer.error_code for where, answer in answers.items()} == {
                ("nowhere", 0): UNKNOWN_TOPIC_OR_PARTITION,
                ("ponds", 0): NONE,
            }

    @in_loop
    async def test_a_partition_that_was_added_is_asked_for_before_it_is_refused(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, "ponds")
            cluster.topics["ponds"].append(0)
            client.send(produce(1, ("ponds", 1, batch(keyed("a")))))
            (response,) = await client.receives(1)
            assert only(response).error_code == NONE
            assert cluster.values("ponds", 1) == ["a"]

    @in_loop
    async def test_a_partition_that_is_not_there_is_asked_for_twice_at_most(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client, neighbour = await forebay.client(0), await forebay.client(0)
            await warm(client, "ponds")
            before = len(cluster[0].requests(METADATA))
            client.send(produce(1, ("ponds", 7, batch(keyed("a")))), produce(2, ("ponds", -1, batch(keyed("a")))))
            neighbour.send(produce(1, ("ponds", 0, batch(keyed("b")))))
            await neighbour.receives(1)
            answers = [only(response) for response in await client.receives(1, 2)]
            assert [answer.error_code for answer in answers] == [UNKNOWN_TOPIC_OR_PARTITION] * 2
            assert len(cluster[0].requests(METADATA)) - before <= 3

    @in_loop
    async def test_an_unknown_partition_is_told(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(
                *[produce(n, ("ponds", index, batch(keyed("a")))) for n, index in enumerate((1, -1, 2**31 - 1))]
            )
            for response in await client.receives(0, 1, 2):
                assert only(response).error_code == UNKNOWN_TOPIC_OR_PARTITION

    @in_loop
    async def test_a_topic_that_is_being_created_is_waited_for(self) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, retry_backoff_ms=50) as forebay,
        ):
            client = await forebay.client(0)
            before = len(cluster[0].requests(METADATA))
            client.send(produce(1, ("lakes", 0, batch(keyed("a")))))
            await until(lambda: len(cluster[0].requests(METADATA)) == before + 2)
            cluster.topics["lakes"] = [0]
            (response,) = await client.receives(1)
            assert only(response).error_code == NONE

    @in_loop
    async def test_brokers_that_do_not_tell_cost_no_more_than_the_clients_own_timeout(self) -> None:
        async with FakeCluster({"ponds": [0], "lakes": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(METADATA)
            client, neighbour = await forebay.client(0), await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("a"))), timeout_ms=1), echo(2))
            neighbour.send(echo(1))
            await neighbour.receives(1)
            answer = only((await client.receives(1, 2))[0])
            assert (answer.error_code, answer.error_message) == (REQUEST_TIMED_OUT, None)
            assert cluster.log == {}
            assert not forebay.app._realm.view.updater.requests.wanted_by_records("ponds")

    @in_loop
    async def test_a_client_that_waits_for_metadata_is_not_read_meanwhile(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(METADATA)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))), echo(2))
            asked = await cluster[0].receives(METADATA)
            while asked.body[:4] == b"\0\0\0\0":  # the brokers alone, at the start
                asked = await cluster[0].receives(METADATA)
            assert cluster[0].requests(LIST_GROUPS) == []
            asked.answer()
            await client.receives(1, 2)


@in_loop
async def test_records_leave_while_their_client_waits_however_long_batches_linger() -> None:
    """It was told each time that its time was up, or nothing: what nobody waits for any more is not sent."""
    async with (
        FakeCluster({"ponds": [0]}) as cluster,
        running(cluster.bootstrap, linger_ms=60_000, request_timeout_ms=1_000, delivery_timeout_ms=120_000) as forebay,
    ):
        patient, hurried = await forebay.client(0), await forebay.client(0)
        patient.send(produce(1, ("ponds", 0, batch(keyed("patient")))))
        await until(lambda: forebay.count("forebay_queued_bytes") > 0)
        hurried.send(produce(1, ("ponds", 0, batch(keyed("hurried"))), timeout_ms=1))
        for client in (patient, hurried):
            assert only((await client.receives(1))[0]).error_code == NONE
        hurried.send(produce(2, ("ponds", 0, batch(keyed("unanswered"))), timeout_ms=1, acks=0))
        await until(lambda: cluster.values("ponds", 0) == ["patient", "hurried", "unanswered"])


class Timers:
    """The loop, whose timers are remembered."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.made: list[asyncio.TimerHandle] = []

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        self.made.append(self._loop.call_later(delay, callback, *args))
        return self.made[-1]


@in_loop
async def test_of_a_request_that_is_answered_no_timer_is_left() -> None:
    async with (
        FakeCluster({"ponds": [0]}) as cluster,
        running(cluster.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000) as forebay,
    ):
        handler = forebay.app._realm.handler
        timers = Timers(handler.loop)
        handler.loop = timers  # type: ignore[assignment]
        client = await forebay.client(0)
        client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
        await until(lambda: timers.made)
        assert not timers.made[0].cancelled()
        forebay.app._realm.accumulator.flush_all(monotonic())
        await client.receives(1)
        assert [timer.cancelled() for timer in timers.made] == [True]


@in_loop
async def test_a_broker_that_fails_at_ones_record_fails_at_nobody_elses() -> None:
    """As Kafka does at times before 1970 where it compresses anew."""
    async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, linger_ms=50) as forebay:

        def fails(asked: Asked) -> bool:
            if all(record.timestamp >= -1 for place in asked.partitions for record in asked.records(*place)):
                return False
            asked.answer(UNKNOWN_SERVER_ERROR)
            return True

        cluster[0].holds_produce(fails)
        one, other = await forebay.client(0), await forebay.client(0)
        one.send(produce(1, ("ponds", 0, batch([Record(b"k", b"long ago", (), -62_135_596_800_000)]))))
        other.send(produce(2, ("ponds", 0, batch(keyed("new")))))
        assert only((await one.receives(1))[0]).error_code == UNKNOWN_SERVER_ERROR
        assert only((await other.receives(2))[0]).error_code == NONE


@pytest.mark.parametrize("known", [True, False], ids=["known", "yet to be asked for"])
@in_loop
async def test_a_fault_of_ours_doubles_no_record_and_is_told_at_once_to_the_one_that_met_it(known: bool) -> None:
    async with FakeCluster({"ponds": [0], "lakes": [0]}) as cluster, running(cluster.bootstrap) as forebay:
        one, other = await forebay.client(0), await forebay.client(0)
        if known:
            await warm(one, "ponds", "lakes")
        handler = forebay.app._realm.handler
        partitioner_of = handler._partitioner_of

        def fails(topic: str, rack: str) -> Partitioner:
            if topic == "lakes":
                raise Malformed("a length runs past its end")
            return partitioner_of(topic, rack)

        handler._partitioner_of = fails
        with structlog.testing.capture_logs() as logs:
            one.send(produce(1, ("ponds", 0, batch(keyed("a"))), ("lakes", 0, batch(keyed("a")))))
            other.send(produce(2, ("ponds", 0, batch(keyed("b")))))
            told = produced((await one.receives(1))[0])
            assert [each.error_code for each in told.values()] == [REQUEST_TIMED_OUT] * 2
            assert only((await other.receives(2))[0]).error_code == NONE
        assert [line["log_level"] for line in logs if "this is a bug" in line["event"]] == ["error"]
        other.send(produce(3, ("ponds", 0, batch(keyed("c")))))
        await other.receives(3)
        assert sorted(cluster.values("ponds", 0)) == ["a", "b", "c"] + ["warm"] * known


class TestBatchesThatCannotBeOpened:
    @in_loop
    async def test_they_neither_overtake_their_clients_records_nor_are_overtaken(self) -> None:
        """What is too large to be opened goes to the broker on the client's own connection, the rest merged."""
        large = batch(keyed("b" * 5_000), GZIP)
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, max_decompressed_bytes=1_000) as forebay,
        ):
            client, neighbour = await forebay.client(0), await forebay.client(0)
            await warm(client, "ponds")
            await cluster[0].receives(PRODUCE)
            cluster[0].holds(PRODUCE)
            client.send(*[produce(n, ("ponds", 0, records)) for n, records in enumerate((batch(keyed("a")), large))])
            client.send(produce(2, ("ponds", 0, batch(keyed("c")))))
            first = await cluster[0].receives(PRODUCE)
            neighbour.send(produce(9, ("ponds", 0, batch(keyed("n")))))
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == 4)
            assert len(cluster[0].requests(PRODUCE)) == 2
            first.answer()
            asked = [await cluster[0].receives(PRODUCE) for _ in range(2)]
            second, others = sorted(asked, key=lambda found: found.values == ["n"])
            assert (second.values, others.values) == (["b" * 5_000], ["n"])
            others.answer()
            await neighbour.receives(9)
            assert len(cluster[0].requests(PRODUCE)) == 4
            second.answer()
            (await cluster[0].receives(PRODUCE)).answer()
            told = [only(response) for response in await client.receives(0, 1, 2)]
            assert [answer.error_code for answer in told] == [NONE] * 3
            assert [value[0] for value in cluster.values("ponds", 0)] == ["w", "a", "n", "b", "c"]

    @in_loop
    async def test_of_one_that_its_brokers_answer_lacks_nothing_is_known(self) -> None:
        large = batch(keyed("b" * 5_000), GZIP)
        async with (
            FakeCluster({"ponds": [0, 0]}) as cluster,
            running(cluster.bootstrap, max_decompressed_bytes=1_000) as forebay,
        ):
            client = await forebay.client(0)
            await warm(client, "ponds")
            cluster[0].holds_produce(lambda asked: asked.values == ["b" * 5_000])
            cluster[0].forget()
            client.send(produce(1, ("ponds", 0, large), ("ponds", 1, batch(keyed("a")))))
            while (asked := await cluster[0].receives(PRODUCE)).values == ["a"]:
                pass
            asked.respond(bytes(8))  # no topics, no throttle time
            (response,) = await client.receives(1)
            told = {partition: answer.error_code for (_, partition), answer in produced(response).items()}
            assert told == {0: REQUEST_TIMED_OUT, 1: NONE}

    @in_loop
    async def test_nothing_leaves_before_one_without_acks_is_known_to_be_taken(self) -> None:
        large = batch(keyed("b" * 5_000), GZIP)
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, max_decompressed_bytes=1_000) as forebay,
        ):
            client = await forebay.client(0)
            await warm(client, "ponds")
            await cluster[0].receives(PRODUCE)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, large), acks=0), produce(2, ("ponds", 0, batch(keyed("c")))))
            asked = await cluster[0].receives(PRODUCE)
            assert asked.produce.acks == 1
            await turns(100)
            assert len(cluster[0].requests(PRODUCE)) == 2
            asked.answer()
            (await cluster[0].receives(PRODUCE)).answer()
            await client.receives(2)
            assert [value[:1] for value in cluster.values("ponds", 0)] == ["w", "b", "c"]

    @in_loop
    @pytest.mark.parametrize("waits", ["cannot be opened", "settings changed"])
    async def test_what_a_client_that_leaves_sent_last_without_acks_goes_behind_the_rest(self, waits: str) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, max_decompressed_bytes=1_000) as forebay,
        ):
            client = await forebay.client(0)
            await warm(client, "ponds")
            await cluster[0].receives(PRODUCE)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("first"))), acks=0))
            asked = await cluster[0].receives(PRODUCE)
            if waits == "settings changed":
                forebay.change(topics_exclude=("ponds",))
            last = "l" * (5_000 if waits == "cannot be opened" else 1)
            client.send(produce(2, ("ponds", 0, batch(keyed(last), GZIP)), acks=0))
            (connection,) = forebay.app._connections
            await until(lambda: connection.holds)
            connection.abort()
            cluster[0].releases(PRODUCE)
            asked.answer()
            await until(lambda: cluster.values("ponds", 0)[1:] == ["first", last])

    @in_loop
    @pytest.mark.parametrize("acks", [0, 1])
    async def test_one_after_the_other_all_arrive(self, acks: int) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, max_decompressed_bytes=1_000) as forebay,
        ):
            client = await forebay.client(0)
            await warm(client, "ponds")
            values = [("b" if number % 2 else "l" * 2_000) + str(number) for number in range(20)]
            for number, value in enumerate(values):
                client.send(produce(number, ("ponds", 0, batch(keyed(value), GZIP)), acks=acks))
            client.send(echo(99))
            await client.receives(*(range(20) if acks else ()), 99)
            await until(lambda: len(cluster.values("ponds", 0)) == 21)
            if acks:
                assert cluster.values("ponds", 0)[1:] == values

    @in_loop
    async def test_a_wrong_checksum_is_told_for_its_partition_alone(self) -> None:
        async with FakeCluster({"ponds": [0, 0, 0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            batches = [
                ("ponds", index, batch(keyed(f"{index}"), **({"crc": 1} if index == 1 else {}))) for index in range(3)
            ]
            client.send(produce(1, *batches))
            answers = produced((await client.receives(1))[0])
            assert [answers["ponds", index].error_code for index in range(3)] == [NONE, CORRUPT_MESSAGE, NONE]
            assert sorted(cluster.log) == [("ponds", 0), ("ponds", 2)]

    @in_loop
    async def test_the_same_partition_named_twice_is_answered_twice(self) -> None:
        async with (
            FakeCluster({"ponds": [0], "raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("a"))), ("ponds", 0, batch(keyed("b")))), echo(2))
            await client.receives(1, 2)
            assert sorted(cluster.values("ponds", 0)) == ["a", "b"]


class TestRefusedHere:
    """What Forebay does not send is counted, and logged: no broker has it in its own numbers."""

    @in_loop
    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            (TOPIC_AUTHORIZATION_FAILED, "refused"),
            (UNKNOWN_TOPIC_OR_PARTITION, "retriable"),
            (LEADER_NOT_AVAILABLE, "retriable"),
        ],
    )
    async def test_a_topic_that_brokers_do_not_tell_of(self, code: int, kind: str) -> None:
        """A client sends the latter again: brokers answer so where it is only being created."""
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster.topic_errors["lakes"] = code
            client = await forebay.client(0)
            fresh = patch("forebay_proxy.produce.handler.log", RateLimited(get_logger()))
            with structlog.testing.capture_logs() as logs, fresh:
                client.send(produce(1, ("lakes", 0, batch(keyed("a"))), ("ponds", 0, batch(keyed("b")))))
                answers = produced((await client.receives(1))[0])
            assert answers["lakes", 0].error_code == code
            told = [line for line in logs if line["event"] == "records refused"]
            assert [(line["topic"], line["error_code"], line["client_id"]) for line in told] == [
                ("lakes", code, CLIENT_ID)
            ]
            counted = {
                each: forebay.count("forebay_errors_total", "internal", each) for each in ("refused", "retriable")
            }
            assert counted == {"refused": 0, "retriable": 0, kind: 1}

    @in_loop
    async def test_a_batch_that_would_be_split_by_key_counts_once(self) -> None:
        async with FakeCluster({"ponds": [0, 0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 9, batch([*keyed("a"), *null_key("b")]))))
            await client.receives(1)
            assert forebay.count("forebay_errors_total", "internal", "retriable") == 1

    @in_loop
    async def test_an_old_request_with_acks_that_there_are_not(self) -> None:
        async with FakeCluster({"ponds": [0, 0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(old_produce(1, ("ponds", 0, b""), ("ponds", 1, b""), acks=7))
            await client.receives(1)
            assert forebay.count("forebay_errors_total", "internal", "refused") == 2


class TestMemory:
    @in_loop
    async def test_clients_that_find_none_wait_their_turn_and_nothing_is_lost(self) -> None:
        async with (
            FakeCluster({"ponds": [0, 0]}) as cluster,
            running(
                cluster.bootstrap,
                buffer_memory=32_768,
                batch_max_size=16_384,
                max_in_flight_requests_per_connection=1,
            ) as forebay,
        ):
            cluster[0].holds(PRODUCE)

            def waiting(count: int) -> bool:
                return forebay.count("forebay_buffer_memory_waiters") == count

            clients = [await forebay.client(0) for _ in range(6)]
            first = await forebay.client(0)
            first.send(produce(9, ("ponds", 0, batch(keyed("f" * 15_000))), ("ponds", 1, batch(keyed("g" * 15_000)))))
            away = await cluster[0].receives(PRODUCE)
            for number, client in enumerate(clients):
                client.send(produce(number, ("ponds", 0, batch(keyed(f"{number}" * 12_000)))), echo(10))
                await until(partial(waiting, number + 1))
            assert cluster[0].requests(LIST_GROUPS) == []
            assert 72_000 < forebay.count("forebay_queued_request_bytes") < 73_000  # what waits is in no pool yet
            cluster[0].releases(PRODUCE)
            away.answer()
            for number, client in enumerate(clients):
                await client.receives(number, 10)
            assert [value[0] for value in cluster.values("ponds", 0)] == ["f", *"012345"]
            assert forebay.count("forebay_buffer_memory_available_bytes") == 32_768
            assert forebay.count("forebay_queued_request_bytes") == 0

    @in_loop
    async def test_so_do_those_whose_requests_take_more_of_it_than_their_records(self) -> None:
        """A hundred requests of one small record, for which nobody waits, to a broker that hangs."""
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, buffer_memory=65_536, batch_max_size=16_384) as forebay,
        ):
            client = await forebay.client(0)
            await warm(client, "ponds")
            cluster[0].holds(PRODUCE)
            client.send(*[produce(number, ("ponds", 0, batch(keyed(f"{number}"))), acks=0) for number in range(100)])
            await until(lambda: forebay.count("forebay_buffer_memory_waiters") == 1)
            assert forebay.count("forebay_produce_requests_total", "client") < 30
            cluster[0].releases(PRODUCE)
            for asked in cluster[0].requests(PRODUCE)[1:]:
                asked.answer()
            await until(lambda: len(cluster.values("ponds", 0)) == 101)
            assert cluster.values("ponds", 0)[1:] == [f"{number}" for number in range(100)]
            await until(lambda: forebay.count("forebay_buffer_memory_available_bytes") == 65_536)
            assert not forebay.app._pool.shares.brokers
            assert not forebay.app._pool.shares.clients

    @in_loop
    async def test_what_was_read_of_a_request_is_not_kept_until_it_is_answered(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, "ponds")
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            away = await cluster[0].receives(PRODUCE)
            assert not [each for each in gc.get_objects() if isinstance(each, InspectedBatch)]
            away.answer()
            await client.receives(1)

    @in_loop
    async def test_what_a_client_that_left_had_sent_waits_on_and_is_given_back(self) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, buffer_memory=16_384, batch_max_size=16_384) as forebay,
        ):
            cluster[0].holds(PRODUCE)
            first, left = await forebay.client(0), await forebay.client(0)
            first.send(produce(1, ("ponds", 0, batch(keyed("f" * 8_000)))))
            away = await cluster[0].receives(PRODUCE)
            left.send(produce(2, ("ponds", 0, batch(keyed("l" * 12_000)))))
            await until(lambda: forebay.count("forebay_buffer_memory_waiters") == 1)
            left.close()
            await turns()
            assert forebay.count("forebay_queued_request_bytes") > 12_000
            cluster[0].releases(PRODUCE)
            away.answer()
            await until(lambda: len(cluster.values("ponds", 0)) == 2)
            assert forebay.count("forebay_queued_request_bytes") == 0

    @in_loop
    async def test_a_client_whose_time_is_up_leaves_its_place_to_the_next(self) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, buffer_memory=32_768, batch_max_size=16_384) as forebay,
        ):
            cluster[0].holds(PRODUCE)
            first, impatient, patient = [await forebay.client(0) for _ in range(3)]
            first.send(produce(1, ("ponds", 0, batch(keyed("f" * 8_000)))))
            away = await cluster[0].receives(PRODUCE)
            impatient.send(produce(2, ("ponds", 0, batch(keyed("i" * 12_000))), timeout_ms=1))
            await until(lambda: forebay.count("forebay_buffer_memory_waiters") == 1)
            patient.send(produce(3, ("ponds", 0, batch(keyed("p" * 4_000)))))
            await until(lambda: forebay.count("forebay_buffer_memory_waiters") == 2)
            (response,) = await impatient.receives(2)
            assert only(response).error_code == REQUEST_TIMED_OUT
            await until(lambda: forebay.count("forebay_buffer_memory_waiters") == 0)
            cluster[0].releases(PRODUCE)
            away.answer()
            await first.receives(1)
            await patient.receives(3)
            assert [value[0] for value in cluster.values("ponds", 0)] == ["f", "p"]

    @in_loop
    async def test_where_client_ids_are_apart_who_waits_goes_to_the_partitions_new_leader(self) -> None:
        async with (
            FakeCluster({"ponds": [0, 0]}, nodes=2) as cluster,
            running(
                cluster.bootstrap, buffer_memory=32_768, batch_max_size=16_384, merge_across_client_ids=False
            ) as forebay,
        ):
            cluster[0].holds(PRODUCE)
            first, second = [await forebay.client(0) for _ in range(2)]
            first.send(produce(1, ("ponds", 0, batch(keyed("f" * 12_000))), client_id="a"))
            await cluster[0].receives(PRODUCE)
            second.send(produce(2, ("ponds", 1, batch(keyed("s" * 8_000))), timeout_ms=5_000, client_id="b"))
            await until(lambda: forebay.count("forebay_buffer_memory_waiters") == 1)
            forebay.app._realm.accumulator.drop_abandoned(0.0)  # as every few seconds
            cluster.topics["ponds"][1] = 1
            forebay.app._realm.handler.updater.invalidate(["ponds"], "error")
            (response,) = await second.receives(2)
            assert only(response).error_code == NONE
            assert cluster.values("ponds", 1) == ["s" * 8_000]

    @in_loop
    async def test_lingering_batches_leave_when_others_wait_for_their_memory(self) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(
                cluster.bootstrap,
                linger_ms=60_000,
                delivery_timeout_ms=120_000,
                buffer_memory=16_384,
                batch_max_size=16_384,
            ) as forebay,
        ):
            first, second = await forebay.client(0), await forebay.client(0)
            first.send(produce(1, ("ponds", 0, batch(keyed("f" * 8_000)))))
            await until(lambda: forebay.count("forebay_queued_bytes") > 0)
            second.send(produce(2, ("ponds", 0, batch(keyed("s" * 12_000)))))
            await first.receives(1)

    @in_loop
    async def test_for_those_who_come_while_others_wait_nothing_is_looked_through(self) -> None:
        """All is due since the first waits, and what opens then is due at once."""
        async with (
            FakeCluster({"ponds": [0, 0, 0]}) as cluster,
            running(cluster.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000, buffer_memory=131_072) as forebay,
        ):
            cluster[0].holds(PRODUCE)
            clients = [await forebay.client(0) for _ in range(4)]
            clients[0].send(produce(1, ("ponds", 0, batch(keyed("a" * 20_000)))))
            away = await cluster[0].receives(PRODUCE)
            clients[1].send(produce(1, ("ponds", 0, batch(keyed("lingers")))))
            queue = forebay.app._realm.accumulator.topic("ponds").queue(0)
            await until(lambda: len(queue.batches) == 1)
            (waiting,) = queue.batches
            assert not waiting.due
            clients[2].send(produce(1, ("ponds", 1, batch(keyed("c" * 80_000)))))
            await until(lambda: forebay.count("forebay_buffer_memory_waiters") == 1)
            assert waiting.due
            waiting.due = False
            clients[3].send(produce(1, ("ponds", 2, batch(keyed("d" * 80_000)))))
            await until(lambda: forebay.count("forebay_buffer_memory_waiters") == 2)
            assert not waiting.due
            waiting.due = True
            cluster[0].releases(PRODUCE)
            away.answer()
            for client in clients:
                await client.receives(1)


def _not_leading_stuck(topic: str, partition: int, user: str) -> int:
    return NOT_LEADER_OR_FOLLOWER if topic == "stuck" else NONE


class TestSharesOfMemory:
    """One party in trouble costs nobody else: 16 producers want 960 KB of 512 KB for what does not move."""

    SMALL: ClassVar = {"buffer_memory": 524_288, "batch_max_size": 65_536, "request_timeout_ms": 90_000}

    async def _flood(self, forebay: Running, *batches: tuple[str, int], timeout_ms: int = 90_000) -> list[WireClient]:
        """Large records with a key, until some must wait for memory."""
        clients = [await forebay.client(0) for _ in range(16)]
        for number, client in enumerate(clients):
            where = [(topic, partition, batch(keyed(f"{number:x}" * 60_000))) for topic, partition in batches]
            client.send(produce(number, *where, client_id=f"flood {number}", timeout_ms=timeout_ms))
        await until(lambda: forebay.count("forebay_produce_requests_total", "client") >= 17)
        await until(lambda: forebay.count("forebay_buffer_memory_waiters") >= 7)
        return clients

    @in_loop
    async def test_a_broker_that_hangs_costs_the_others_nothing(self) -> None:
        async with (
            FakeCluster({"stuck": [1], "fine": [0]}, nodes=2) as cluster,
            running(cluster.bootstrap, **self.SMALL) as forebay,
        ):
            bystander = await forebay.client(0)
            await warm(bystander, "stuck", "fine")
            cluster[1].holds(PRODUCE)
            flood = await self._flood(forebay, ("stuck", 0))
            for number in range(20):
                bystander.send(produce(number, ("fine", 0, batch(keyed("b" * 50_000)))))
                await bystander.receives(number)
            assert forebay.count("forebay_buffer_memory_waiters") >= 7
            cluster[1].releases(PRODUCE)
            for asked in cluster[1].requests(PRODUCE)[1:]:
                asked.answer()
            for number, client in enumerate(flood):
                await client.receives(number)
            assert forebay.count("forebay_buffer_memory_available_bytes") == 524_288
            assert not forebay.app._pool.shares.brokers
            assert not forebay.app._pool.shares.clients

    @in_loop
    async def test_what_decompresses_to_more_than_all_memory_takes_what_it_came_with_and_stops_nobody(self) -> None:
        """While each broker has something under way."""
        async with (
            FakeCluster({"ponds": [0, 1], "lakes": [0, 1]}, nodes=2) as cluster,
            running(cluster.bootstrap, **self.SMALL) as forebay,
        ):
            busy, large, small = [await forebay.client(0) for _ in range(3)]
            await warm(busy, "ponds", "lakes")
            await cluster[0].receives(PRODUCE)
            for broker in (0, 1):
                cluster[broker].holds(PRODUCE)
                busy.send(produce(broker, ("lakes", broker, batch(keyed("busy")))))
            away = [await cluster[broker].receives(PRODUCE) for broker in (0, 1)]
            large.send(produce(2, ("ponds", 0, batch(null_key("x" * 600_000), GZIP))))
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == 4)
            small.send(produce(3, ("ponds", 0, batch(null_key("small")))))
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == 5)
            assert forebay.count("forebay_buffer_memory_waiters") == 0
            for broker in (0, 1):
                cluster[broker].releases(PRODUCE)
                away[broker].answer()
                for asked in cluster[broker].requests(PRODUCE)[2 - broker :]:
                    asked.answer()
            await large.receives(2)
            await small.receives(3)

    @in_loop
    async def test_a_partition_without_a_leader_costs_the_others_nothing(self) -> None:
        async with (
            FakeCluster({"orphan": [-1], "fine": [0]}) as cluster,
            running(cluster.bootstrap, **self.SMALL) as forebay,
        ):
            bystander = await forebay.client(0)
            await warm(bystander, "fine")
            flood = await self._flood(forebay, ("orphan", 0))
            for number in range(20):
                bystander.send(produce(number, ("fine", 0, batch(keyed("b" * 50_000)))))
                await bystander.receives(number)
            cluster.topics["orphan"] = [0]
            for number, client in enumerate(flood):
                await client.receives(number)

    @in_loop
    async def test_a_partition_that_is_tried_again_and_again_costs_its_neighbours_nothing(self) -> None:
        async with (
            FakeCluster({"stuck": [0], "fine": [0]}) as cluster,
            running(cluster.bootstrap, **self.SMALL) as forebay,
        ):
            bystander = await forebay.client(0)
            await warm(bystander, "stuck", "fine")
            with patch.object(cluster[0], "refuses", _not_leading_stuck):
                await self._flood(forebay, ("stuck", 0))
                for number in range(20):
                    bystander.send(produce(number, ("fine", 0, batch(keyed("b" * 50_000)))))
                    await bystander.receives(number)
            assert len(cluster.values("fine", 0)) == 21

    @in_loop
    async def test_a_client_that_floods_costs_others_of_its_broker_nothing(self) -> None:
        partitions = 16
        async with (
            FakeCluster({"stuck": [0] * partitions, "fine": [0]}) as cluster,
            running(cluster.bootstrap, **self.SMALL) as forebay,
        ):
            bystander = await forebay.client(0)
            await warm(bystander, "stuck", "fine")
            with patch.object(cluster[0], "refuses", _not_leading_stuck):
                for number in range(partitions):
                    large = produce(number, ("stuck", number, batch(keyed("f" * 60_000))), timeout_ms=90_000)
                    (await forebay.client(0)).send(large)
                await until(lambda: forebay.count("forebay_buffer_memory_waiters") >= 7)
                for number in range(20):
                    fine = ("fine", 0, batch(keyed("b" * 50_000)))
                    bystander.send(produce(number, fine, client_id="bystander"))
                    await bystander.receives(number)
            assert len(cluster.values("fine", 0)) == 21

    @in_loop
    async def test_records_without_a_key_go_where_there_is_room(self) -> None:
        async with (
            FakeCluster({"stuck": [1], "both": [1, 0]}, nodes=2) as cluster,
            running(cluster.bootstrap, partitioner="round_robin", **self.SMALL) as forebay,
        ):
            bystander = await forebay.client(0)
            await warm(bystander, "stuck", "both")
            cluster[1].holds(PRODUCE)
            await self._flood(forebay, *[("stuck", 0)])
            for number in range(20):
                bystander.send(produce(number, ("both", 0, batch(null_key("b" * 90_000)))))
                await bystander.receives(number)
            assert len(cluster.values("both", 1)) == 20

    @in_loop
    async def test_whoever_is_told_that_its_time_is_up_holds_nothing_any_more(self) -> None:
        async with (
            FakeCluster({"orphan": [-1], "fine": [0]}) as cluster,
            running(cluster.bootstrap, **self.SMALL) as forebay,
        ):
            await warm(await forebay.client(0), "fine")
            flood = await self._flood(forebay, ("orphan", 0), timeout_ms=1)
            for number, client in enumerate(flood):
                (response,) = await client.receives(number)
                assert only(response).error_code == REQUEST_TIMED_OUT
            await until(lambda: forebay.count("forebay_buffer_memory_available_bytes") == 524_288)
            assert forebay.count("forebay_buffer_memory_waiters") == 0
            assert not forebay.app._pool.shares.brokers
            assert not forebay.app._pool.shares.clients


class TestRequestsOfManyPartitions:
    """Sorted and appended a few partitions at a time; in between others have their turn."""

    PARTITIONS = 3 * SLICE + 6

    def _request(self, number: int) -> bytes:
        """Every third batch has no key, every third both kinds."""
        kinds = (keyed, null_key, lambda value: [*keyed(value), *null_key(value)])
        batches = [
            ("ponds", partition, batch(kinds[partition % 3](f"{number}-{partition}")))
            for partition in range(self.PARTITIONS)
        ]
        return produce(number, *batches)

    @asynccontextmanager
    async def _scarce_memory(self) -> AsyncIterator[tuple[FakeCluster, Running, list[tuple[str, int, bytes]]]]:
        """And batches, each for a partition of its own, that have no room in it together."""
        async with (
            FakeCluster({"ponds": [0] * self.PARTITIONS}) as cluster,
            running(cluster.bootstrap, buffer_memory=2 << 20, batch_max_size=16_384) as forebay,
        ):
            yield (
                cluster,
                forebay,
                [("ponds", index, batch(keyed(f"{index:03}" * 4_000))) for index in range(self.PARTITIONS)],
            )

    @in_loop
    async def test_every_record_is_appended_once_and_every_partition_answered(self) -> None:
        topic = {"ponds": [0] * self.PARTITIONS}
        async with FakeCluster(topic) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(*map(self._request, range(3)))
            for answer in map(produced, await client.receives(0, 1, 2)):
                assert list(answer) == [("ponds", partition) for partition in range(self.PARTITIONS)]
                assert {told.error_code for told in answer.values()} == {NONE}
            log = [value for partition in range(self.PARTITIONS) for value in cluster.values("ponds", partition)]
            both = [f"{number}-{index}" for number in range(3) for index in range(2, self.PARTITIONS, 3)]
            assert sorted(log) == sorted([f"{n}-{i}" for n in range(3) for i in range(self.PARTITIONS)] + both)
            for partition in range(0, self.PARTITIONS, 3):
                own = [value for value in cluster.values("ponds", partition) if value.endswith(f"-{partition}")]
                assert own == [f"{number}-{partition}" for number in range(3)], "in the order in which they were sent"

    @in_loop
    async def test_others_are_served_in_between(self) -> None:
        many = 60 * SLICE
        async with FakeCluster({"ponds": [0] * many}) as cluster, running(cluster.bootstrap) as forebay:
            large, small = await forebay.client(0), await forebay.client(0)
            await warm(large, "ponds")
            with patch("forebay_policies.loop_turns.SLICE_S", 0.0):  # a slice a turn of the loop
                records = batch(keyed("a"))
                large.send(produce(1, *[("ponds", partition, records) for partition in range(many)]))
                await until(lambda: forebay.count("forebay_produce_requests_total", "client") == 2)
                small.send(echo(2))
                await cluster[0].receives(LIST_GROUPS)
                assert forebay.count("forebay_records_total", "kept") < many
            await small.receives(2)
            await large.receives(1)

    WIDE: ClassVar = {"ponds": 700, "lakes": 30, "seas": 600}
    """Partitions of topics, together more than are inspected or answered at once."""

    @in_loop
    async def test_headers_are_looked_at_and_answers_put_together_in_parts(self) -> None:
        """Most of its topics are not known before, and most of its batches are nobody's to touch."""
        assert self.WIDE["ponds"] > INSPECTED_AT_ONCE
        assert self.WIDE["ponds"] > ANSWERED_AT_ONCE
        places = [(topic, index) for topic, count in self.WIDE.items() for index in range(count)]
        untouched = batch(keyed("u"), producer_id=7)
        batches = [(*place, untouched if place[1] % 5 else batch(keyed("a"))) for place in places]
        leaders = {"known": [0], **{topic: [0] * count for topic, count in self.WIDE.items()}}
        async with FakeCluster(leaders) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, "known")
            client.send(produce(1, *batches, ("known", 0, untouched)), produce(2, *batches, version=8))
            for response, version in zip(await client.receives(1, 2), (PRODUCE_VERSION, 8), strict=True):
                answer = produced(response, version)
                assert [place for place in answer if place[0] != "known"] == places
                assert {told.error_code for told in answer.values()} == {NONE}
            for topic, index in places:
                assert cluster.values(topic, index) == ["u" if index % 5 else "a"] * 2

    @in_loop
    async def test_one_of_which_nothing_is_touched_goes_on_as_it_came(self) -> None:
        request = produce(
            1, *[("ponds", index, batch(keyed("u"), producer_id=7)) for index in range(self.WIDE["ponds"])]
        )
        topic = {"ponds": [0] * self.WIDE["ponds"]}
        async with FakeCluster(topic) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            cluster[0].holds(PRODUCE)
            client.send(request)
            asked = await cluster[0].receives(PRODUCE)
            assert asked.frame == request[4:]
            asked.answer()
            await client.receives(1)

    @in_loop
    @pytest.mark.parametrize("many", [5 * SLICE, 8 * INSPECTED_AT_ONCE])
    async def test_when_its_time_is_up_while_it_is_in_line_it_is_answered_once(self, many: int) -> None:
        async with FakeCluster({"ponds": [0] * many, "lakes": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, "ponds")
            cluster[0].holds(PRODUCE)
            with patch("forebay_policies.loop_turns.SLICE_S", 0.0):  # a part a turn of the loop
                client.send(produce(1, *[("ponds", index, batch(keyed("a"))) for index in range(1, many)]))
                while not forebay.app._realm.deadlines._live:  # noqa: ASYNC110 - in the turn of the loop in which it comes
                    await asyncio.sleep(0)
                (completion,) = forebay.app._realm.deadlines._live
                completion.expire()
                (response,) = await client.receives(1)
            assert {told.error_code for told in produced(response).values()} == {REQUEST_TIMED_OUT}
            assert len(produced(response)) == many - 1
            cluster[0].releases(PRODUCE)
            client.send(produce(2, ("lakes", 0, batch(keyed("next")))))
            await client.receives(2)
            assert cluster.values("ponds", many - 1) == []
            assert not forebay.app._realm.deadlines._live

    @in_loop
    async def test_what_cannot_be_opened_goes_on_as_it_came_behind_the_others(self) -> None:
        large = batch(keyed("b" * 5_000), GZIP)
        topic = {"ponds": [0] * self.PARTITIONS}
        async with FakeCluster(topic) as cluster, running(cluster.bootstrap, max_decompressed_bytes=1_000) as forebay:
            client = await forebay.client(0)
            batches = [
                ("ponds", partition, large if partition in (9, 70, 71, 150) else batch(keyed(f"{partition}")))
                for partition in range(self.PARTITIONS)
            ]
            client.send(produce(1, *batches), produce(2, ("ponds", 9, batch(keyed("behind")))))
            first, second = await client.receives(1, 2)
            assert {told.error_code for told in (*produced(first).values(), only(second))} == {NONE}
            assert cluster.values("ponds", 9) == ["b" * 5_000, "behind"]
            for partition in range(self.PARTITIONS):
                assert len(cluster.values("ponds", partition)) == 1 + (partition == 9)

    @in_loop
    async def test_each_slice_waits_for_its_own_memory(self) -> None:
        async with self._scarce_memory() as (cluster, forebay, batches):
            client = await forebay.client(0)
            client.send(produce(1, *batches))
            assert {told.error_code for told in produced((await client.receives(1))[0]).values()} == {NONE}
            assert [cluster.values("ponds", index)[0][:3] for index in range(self.PARTITIONS)] == [
                f"{index:03}" for index in range(self.PARTITIONS)
            ]
            assert forebay.count("forebay_buffer_memory_available_bytes") == 2 << 20
            assert not forebay.app._pool.shares.clients

    @in_loop
    async def test_when_its_time_is_up_no_more_of_it_is_appended(self) -> None:
        async with self._scarce_memory() as (cluster, forebay, batches):
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, *batches, timeout_ms=1))
            away = await cluster[0].receives(PRODUCE)
            (response,) = await client.receives(1)
            assert {told.error_code for told in produced(response).values()} == {REQUEST_TIMED_OUT}
            cluster[0].releases(PRODUCE)
            away.answer()
            client.send(produce(2, ("ponds", 0, batch(keyed("next")))))
            await client.receives(2)
            assert sum(len(cluster.values("ponds", index)) for index in range(self.PARTITIONS)) < 2 * SLICE
            await until(lambda: forebay.count("forebay_buffer_memory_available_bytes") == 2 << 20)
            assert not forebay.app._pool.shares.brokers
            assert not forebay.app._pool.shares.clients


@in_loop
async def test_all_partitions_of_a_request_count_for_what_its_broker_holds() -> None:
    async with FakeCluster({"ponds": [0] * 4}) as cluster, running(cluster.bootstrap) as forebay:
        cluster[0].holds(PRODUCE)
        client = await forebay.client(0)
        client.send(produce(1, *[("ponds", partition, batch(keyed("a" * 20_000))) for partition in range(4)]))
        away = await cluster[0].receives(PRODUCE)
        shares = forebay.app._pool.shares
        assert shares.first[0] == shares.brokers[0] > 80_000
        away.answer()
        cluster[0].releases(PRODUCE)
        await client.receives(1)
        assert not shares.first


@in_loop
async def test_records_without_acks_outlast_a_timeout_that_no_broker_looks_at() -> None:
    async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
        cluster[0].holds(PRODUCE)
        client, other = await forebay.client(0), await forebay.client(0)
        client.send(produce(1, ("ponds", 0, batch(keyed("away"))), acks=0, timeout_ms=1))
        away = await cluster[0].receives(PRODUCE)
        client.send(produce(2, ("ponds", 0, batch(keyed("a"))), acks=0, timeout_ms=1))
        await until(lambda: forebay.count("forebay_queued_batches") == 1)
        other.send(produce(1, ("ponds", 0, batch(keyed("late"))), timeout_ms=1))
        assert only((await other.receives(1))[0]).error_code == REQUEST_TIMED_OUT
        client.send(echo(3))
        cluster[0].releases(PRODUCE)
        away.answer()
        await client.receives(3)
        await until(lambda: cluster.values("ponds", 0)[:2] == ["away", "a"])


@in_loop
async def test_a_client_is_answered_before_it_gives_up_since_it_would_send_again_what_was_acknowledged() -> None:
    async with FakeCluster({"stuck": [0], "ponds": [1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
        client = await forebay.client(0)
        await warm(client, "stuck", "ponds")
        cluster[0].holds(PRODUCE)
        async with asyncio.timeout(2):
            client.send(produce(1, ("stuck", 0, batch(keyed("a"))), timeout_ms=2000))
            client.send(produce(2, ("ponds", 0, batch(keyed("b"))), timeout_ms=2000))
            first, second = [only(await client.receive()).error_code for _ in range(2)]
        assert (first, second) == (REQUEST_TIMED_OUT, NONE)


@in_loop
async def test_nobody_waits_for_longer_than_the_delivery_timeout() -> None:
    limits = {"delivery_timeout_ms": 1_000, "request_timeout_ms": 1_000, "linger_ms": 0}
    async with FakeCluster({"ponds": [-1]}) as cluster, running(cluster.bootstrap, **limits) as forebay:
        client = await forebay.client(0)
        async with asyncio.timeout(4):
            client.send(produce(1, ("ponds", 0, batch(keyed("a"))), timeout_ms=60_000))
            assert only(await client.receive()).error_code == REQUEST_TIMED_OUT
