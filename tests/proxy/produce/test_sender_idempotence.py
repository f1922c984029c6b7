"""Every row of the table in docs/design.md, in the whole proxy before brokers that know producers.

A batch's first attempt is *clean*; behind one whose connection was lost the next is *tainted*.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest

from forebay_codecs import compression
from forebay_codecs import error_codes as codes
from forebay_codecs.api_keys import API_VERSIONS, METADATA, PRODUCE
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.producer_batch import Lane, ProducerBatch
from forebay_policies.retry import ELSEWHERE_TRIES, SERVER_ERRORS
from forebay_proxy.produce import deadlines
from forebay_proxy.produce.handler import SHORTEST_WAIT
from forebay_proxy.produce.sender import ATTEMPTS_PER_TIMEOUT
from tests.codecs.record_oracle import Record
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, until
from tests.kit.fake_broker import Asked, FakeCluster
from tests.kit.producer_states import Numbers
from tests.kit.wire import WireClient, batch, keyed, null_key, only, produce, produced
from tests.policies.batches import FakeOwner, client_batch, run_of

PERHAPS = [
    (codes.REQUEST_TIMED_OUT, -1),
    (codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1),
    (codes.KAFKA_STORAGE_ERROR, -1),
    (codes.UNKNOWN_SERVER_ERROR, -1),
    (codes.NOT_LEADER_OR_FOLLOWER, 9),
    (codes.UNKNOWN_TOPIC_OR_PARTITION, 9),
    (codes.NOT_ENOUGH_REPLICAS, 9),
]
MOVED = [
    codes.UNKNOWN_TOPIC_OR_PARTITION,
    codes.LEADER_NOT_AVAILABLE,
    codes.NOT_LEADER_OR_FOLLOWER,
    codes.BROKER_NOT_AVAILABLE,
    codes.FENCED_LEADER_EPOCH,
    codes.UNKNOWN_LEADER_EPOCH,
]
REFUSED = [
    codes.CORRUPT_MESSAGE,
    codes.MESSAGE_TOO_LARGE,
    codes.RECORD_LIST_TOO_LARGE,
    codes.INVALID_TIMESTAMP,
    codes.INVALID_RECORD,
    codes.TOPIC_AUTHORIZATION_FAILED,
    codes.INVALID_TOPIC_EXCEPTION,
]


KEPT = "forebay_records_total", "kept"


class Pier:
    """A client's keyed records for partition 0, whose broker answers when told."""

    def __init__(self, cluster: FakeCluster, forebay: Running, client: WireClient) -> None:
        self.cluster = cluster
        self.forebay = forebay
        self.client = client
        self.sent = 10
        self.id = 0
        self.epoch = 0
        """With which the id begins."""

    def send(self, *values: str, **how: Any) -> None:
        self.sent += 1
        self.client.send(produce(self.sent, ("ponds", 0, batch(keyed(*values))), **how))

    async def asked(self) -> Asked:
        return await self.cluster[0].receives(PRODUCE)

    async def told(self) -> int:
        return only((await self.client.receives(self.sent))[0]).error_code

    async def tainted(self, *, appended: bool = False) -> Asked:
        """The second attempt of a batch whose first one's answer was lost."""
        self.send("a", "b")
        first = await self.asked()
        if appended:
            first.carry_out()
        first.close()
        second = await self.asked()
        assert (second.numbers, second.values) == (first.numbers, first.values)
        return second

    async def next_numbers(self) -> Numbers:
        """Of the batch behind."""
        self.send("behind")
        asked = await self.asked()
        asked.answer()
        assert await self.told() == codes.NONE
        return asked.numbers

    async def with_hurried(self) -> tuple[WireClient, Asked]:
        """A client that waits for a second, and the batch that its "a" shares with "b" of the other one."""
        self.send("away")
        away = await self.asked()
        hurried = await self.forebay.client(0)
        with patch.object(deadlines, "monotonic", lambda: 0.0):  # its second is not over before they are sent
            hurried.send(produce(1, ("ponds", 0, batch(keyed("a"))), timeout_ms=1))
            await until(lambda: self.forebay.count(*KEPT) == 3)
            self.send("b")
            await until(lambda: self.forebay.count(*KEPT) == 4)
            away.answer()
            await self.client.receives(self.sent - 1)
            both = await self.asked()
        assert both.values == ["a", "b"]
        return hurried, both

    async def client_leaves(self) -> None:
        self.client.close()
        await until(lambda: any(connection.done for connection in self.forebay.app._connections))


def waited_for(timeout_ms: int) -> ProducerBatch:
    pool = BufferPool(1 << 20, 4_096, 16_384)
    found = ProducerBatch(7, Lane(1, compression.NONE, movable=True), 0, pool, 16_384, 1 << 18, 0.0)
    came = client_batch(b"a")
    found.append(run_of(came, FakeOwner(timeout_ms)), came)
    return found


@asynccontextmanager
async def pier(**changed: Any) -> AsyncIterator[Pier]:
    """What was sent first has taken sequence 0."""
    async with FakeCluster({"ponds": [0]}) as cluster:
        cluster.idempotent = True
        async with running(cluster.bootstrap, enable_idempotence=True, **changed) as forebay:
            await until(lambda: forebay.count("forebay_producer_ids") == 2)
            it = Pier(cluster, forebay, await forebay.client(0))
            it.send("warm")
            assert await it.told() == codes.NONE
            it.id, it.epoch, _, _ = (await it.asked()).numbers
            cluster.log.clear()
            cluster[0].holds(PRODUCE)
            yield it


class TwoPiers:
    """A client's records without a key, for either of two brokers' partitions."""

    def __init__(self, cluster: FakeCluster, forebay: Running, client: WireClient) -> None:
        self.cluster = cluster
        self.forebay = forebay
        self.client = client
        self.sent = 0

    def send(self, *values: str) -> None:
        for value in values:
            self.sent += 1
            self.client.send(produce(self.sent, ("ponds", 0, batch(null_key(value)))))

    async def first(self) -> Asked:
        """Where the first batch went."""
        await until(lambda: any(broker.requests(PRODUCE) for broker in self.cluster.brokers.values()))
        return await self.cluster[0 if self.cluster[0].requests(PRODUCE) else 1].receives(PRODUCE)

    async def told(self, count: int) -> list[int]:
        return [only(await self.client.receive()).error_code for _ in range(count)]

    def refuse(self, error_code: int, such: Callable[[Record], bool]) -> None:
        """All batches with such a record."""

        def refused(asked: Asked) -> bool:
            found = any(such(record) for topic, index in asked.partitions for record in asked.records(topic, index))
            if found:
                asked.answer(error_code=error_code)
            return found

        for broker in self.cluster.brokers.values():
            broker.releases(PRODUCE)
            broker.holds_produce(refused)

    @property
    def everything(self) -> list[str]:
        return sorted(self.cluster.values("ponds", 0) + self.cluster.values("ponds", 1))


@asynccontextmanager
async def two_piers() -> AsyncIterator[TwoPiers]:
    async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster:
        cluster.idempotent = True
        async with running(cluster.bootstrap, enable_idempotence=True) as forebay:
            await until(lambda: forebay.count("forebay_producer_ids") == 2)
            for broker in cluster.brokers.values():
                broker.holds(PRODUCE)
            yield TwoPiers(cluster, forebay, await forebay.client(0))


class TestClean:
    @in_loop
    @pytest.mark.parametrize(("code", "offset"), PERHAPS)
    async def test_what_may_be_appended_is_sent_again_as_it_was(self, code: int, offset: int) -> None:
        async with pier() as it:
            it.send("a")
            first = await it.asked()
            first.answer(error_code=code, base_offset=offset)
            again = await it.asked()
            assert (again.numbers, again.values) == (first.numbers, ["a"])
            assert again.numbers == Numbers(it.id, it.epoch, 1, 1)
            again.answer()
            assert await it.told() == codes.NONE
            assert await it.next_numbers() == Numbers(it.id, it.epoch, 2, 1)

    @in_loop
    async def test_a_lost_answer_costs_neither_a_record_nor_a_copy(self) -> None:
        async with pier() as it:
            (await it.tainted(appended=True)).answer()
            answer = only((await it.client.receives(it.sent))[0])
            assert (answer.error_code, answer.base_offset, answer.log_append_time) == (codes.NONE, 0, -1)
            assert it.cluster.values("ponds", 0) == ["a", "b"]
            assert it.forebay.count("forebay_retries_total", "outcome_unknown") == 1

    @in_loop
    @pytest.mark.parametrize("code", MOVED)
    async def test_what_is_not_appended_is_sent_again(self, code: int) -> None:
        async with pier() as it:
            it.send("a")
            (await it.asked()).answer(error_code=code)
            again = await it.asked()
            assert again.numbers == Numbers(it.id, it.epoch, 1, 1)
            again.answer()
            assert await it.told() == codes.NONE
            assert it.forebay.count("forebay_retries_total", "outcome_unknown") == 0

    @in_loop
    @pytest.mark.parametrize("code", [*REFUSED, codes.NOT_ENOUGH_REPLICAS])
    async def test_a_refusal_is_told_and_its_sequence_given_to_the_next(self, code: int) -> None:
        async with pier() as it:
            it.send("a", "b")
            (await it.asked()).answer(error_code=code)
            assert await it.told() == code
            assert await it.next_numbers() == Numbers(it.id, it.epoch, 1, 1)

    @in_loop
    async def test_a_refusal_with_an_offset_is_told_but_its_sequence_is_never_used_again(self) -> None:
        async with pier() as it:
            it.send("a", "b")
            (await it.asked()).answer(error_code=codes.INVALID_RECORD, base_offset=9)
            assert await it.told() == codes.INVALID_RECORD
            assert await it.next_numbers() == Numbers(it.id, it.epoch + 1, 0, 1)

    @in_loop
    async def test_a_broker_that_always_fails_is_asked_so_often_and_told_in_its_words(self) -> None:
        async with pier() as it:
            it.send("a", "b")
            for _ in range(SERVER_ERRORS):
                asked = await it.asked()
                assert (asked.numbers, asked.values) == (Numbers(it.id, it.epoch, 1, 2), ["a", "b"])
                asked.answer(error_code=codes.UNKNOWN_SERVER_ERROR)
            assert await it.told() == codes.UNKNOWN_SERVER_ERROR
            assert await it.next_numbers() == Numbers(it.id, it.epoch + 1, 0, 1)

    @in_loop
    @pytest.mark.parametrize("code", [codes.NOT_LEADER_OR_FOLLOWER, codes.NOT_ENOUGH_REPLICAS])
    async def test_records_without_a_key_go_elsewhere_and_their_sequence_stays(self, code: int) -> None:
        async with two_piers() as it:
            it.send("a")
            refused = await it.first()
            other = 1 - refused.partitions[0][1]
            refused.answer(error_code=code)
            moved = await it.cluster[other].receives(PRODUCE)
            assert (moved.values, moved.partitions) == (["a"], [("ponds", other)])
            moved.answer()
            assert await it.told(1) == [codes.NONE]
            assert it.forebay.count("forebay_producer_epoch_bumps_total") == 0

    @in_loop
    async def test_that_replicas_are_missing_elsewhere_too_is_told_for_what_comes_behind_waits(self) -> None:
        async with two_piers() as it:
            it.send("a")
            refused = await it.first()
            other = 1 - refused.partitions[0][1]
            asked = len([each for broker in (0, 1) for each in it.cluster[broker].requests(METADATA)])
            refused.answer(error_code=codes.NOT_ENOUGH_REPLICAS)
            for number in range(ELSEWHERE_TRIES - 1):
                node_id = 1 - other if number % 2 else other
                (await it.cluster[node_id].receives(PRODUCE)).answer(error_code=codes.NOT_ENOUGH_REPLICAS)
            assert await it.told(1) == [codes.NOT_ENOUGH_REPLICAS]
            it.client.send(produce(2, ("ponds", other, batch(keyed("u"), producer_id=7))))
            (await it.cluster[other].receives(PRODUCE)).answer(error_code=codes.NOT_ENOUGH_REPLICAS)
            assert await it.told(1) == [codes.NOT_ENOUGH_REPLICAS]
            assert len([each for broker in (0, 1) for each in it.cluster[broker].requests(METADATA)]) == asked

    @in_loop
    async def test_a_topic_that_is_deleted_is_told(self) -> None:
        async with pier(retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as it:
            it.send("a")
            asked = await it.asked()
            it.cluster.topics.clear()
            asked.answer(error_code=codes.UNKNOWN_TOPIC_OR_PARTITION)
            assert await it.told() == codes.UNKNOWN_TOPIC_OR_PARTITION
            assert it.forebay.count("forebay_producer_epoch_bumps_total") == 0

    @in_loop
    async def test_halves_of_what_was_refused_as_a_whole_have_sequences_of_their_own(self) -> None:
        async with pier() as it:
            merged = await self._merged(it)
            assert (merged.values, merged.numbers) == (["a", "b", "c"], Numbers(it.id, it.epoch, 2, 3))
            merged.answer(error_code=codes.MESSAGE_TOO_LARGE)
            for values, first in ((["a"], 2), (["b", "c"], 3)):
                half = await it.asked()
                assert (half.values, half.numbers) == (values, Numbers(it.id, it.epoch, first, len(values)))
                half.answer()
            for number in range(it.sent - 1, it.sent + 1):
                assert only((await it.client.receives(number))[0]).error_code == codes.NONE

    async def _merged(self, it: Pier) -> Asked:
        it.send("away")
        away = await it.asked()
        it.send("a")
        it.send("b", "c")
        await until(lambda: it.forebay.count(*KEPT) == 5)
        away.answer()
        await it.client.receives(it.sent - 2)
        return await it.asked()

    @in_loop
    async def test_halves_are_not_made_of_what_may_be_appended(self) -> None:
        async with pier() as it:
            merged = await self._merged(it)
            merged.close()
            (await it.asked()).answer(error_code=codes.MESSAGE_TOO_LARGE)
            for number in range(it.sent - 1, it.sent + 1):
                assert only((await it.client.receives(number))[0]).error_code == codes.REQUEST_TIMED_OUT
            assert await it.next_numbers() == Numbers(it.id, it.epoch + 1, 0, 1)

    @in_loop
    @pytest.mark.parametrize(
        "code", [codes.OUT_OF_ORDER_SEQUENCE_NUMBER, codes.UNKNOWN_PRODUCER_ID, codes.DUPLICATE_SEQUENCE_NUMBER]
    )
    async def test_a_sequence_that_is_not_taken_begins_a_new_epoch(self, code: int) -> None:
        async with pier() as it:
            it.send("a")
            (await it.asked()).answer(error_code=code)
            again = await it.asked()
            assert again.numbers == Numbers(it.id, it.epoch + 1, 0, 1)
            again.answer()
            assert await it.told() == codes.NONE
            assert it.cluster.values("ponds", 0) == ["a"]
            assert await it.next_numbers() == Numbers(it.id, it.epoch + 1, 1, 1)

    @in_loop
    async def test_no_record_is_taken_for_another_producers_where_a_wiped_cluster_gave_it_the_same_id(self) -> None:
        async with pier() as it:
            states = it.cluster.states["ponds", 0]
            states.expire()
            for sequence in range(3):
                states.appended(Numbers(it.id, 0, sequence, 1), sequence)
            it.cluster[0].releases(PRODUCE)
            it.send("a")
            assert await it.told() == codes.NONE
            assert it.cluster.values("ponds", 0) == ["a"]

    @in_loop
    async def test_a_broker_that_knows_a_later_epoch_is_sent_another_id(self) -> None:
        async with pier() as it:
            it.send("a")
            (await it.asked()).answer(error_code=codes.INVALID_PRODUCER_EPOCH)
            again = await it.asked()
            assert again.numbers.producer_id != it.id
            again.answer()
            assert await it.told() == codes.NONE
            await until(lambda: it.forebay.count("forebay_producer_ids") == 2)
            found = await it.next_numbers()
            assert found.producer_id == (it.id + 2 if it.id == 100 else it.id + 1)

    @in_loop
    @pytest.mark.parametrize("code", [codes.CLUSTER_AUTHORIZATION_FAILED, codes.UNSUPPORTED_FOR_MESSAGE_FORMAT])
    async def test_where_sequences_are_not_allowed_it_is_sent_without(self, code: int) -> None:
        async with pier() as it:
            it.send("a")
            (await it.asked()).answer(error_code=code)
            again = await it.asked()
            assert again.numbers.producer_id == -1
            again.answer()
            assert await it.told() == codes.NONE
            assert (await it.next_numbers()).producer_id == -1

    @in_loop
    async def test_what_nobody_waits_for_is_dropped_and_its_sequence_given_to_the_next(self) -> None:
        async with pier(retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as it:
            it.send("a", "b", timeout_ms=1)
            (await it.asked()).answer(error_code=codes.NOT_LEADER_OR_FOLLOWER)
            assert await it.told() == codes.REQUEST_TIMED_OUT
            assert it.forebay.count("forebay_queued_bytes") == 0
            assert it.forebay.count("forebay_producer_epoch_bumps_total") == 0


class TestTainted:
    @in_loop
    @pytest.mark.parametrize("code", [codes.NONE, codes.DUPLICATE_SEQUENCE_NUMBER])
    async def test_it_is_acknowledged(self, code: int) -> None:
        async with pier() as it:
            (await it.tainted()).answer(error_code=code)
            assert await it.told() == codes.NONE

    @in_loop
    @pytest.mark.parametrize(
        ("code", "offset"), [*PERHAPS, *((code, -1) for code in [*MOVED, codes.NOT_ENOUGH_REPLICAS])]
    )
    async def test_it_stays_as_it_is(self, code: int, offset: int) -> None:
        async with pier() as it:
            tainted = await it.tainted()
            tainted.answer(error_code=code, base_offset=offset)
            again = await it.asked()
            assert (again.numbers, again.values) == (tainted.numbers, ["a", "b"])
            again.answer()
            assert await it.told() == codes.NONE
            assert it.cluster.values("ponds", 0) == ["a", "b"]

    @in_loop
    @pytest.mark.parametrize(
        "code",
        [
            *REFUSED,
            codes.UNKNOWN_PRODUCER_ID,
            codes.CLUSTER_AUTHORIZATION_FAILED,
            codes.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ],
    )
    async def test_a_refusal_proves_nothing_and_its_sequence_is_never_used_again(self, code: int) -> None:
        async with pier() as it:
            (await it.tainted()).answer(error_code=code)
            assert await it.told() == codes.REQUEST_TIMED_OUT
            assert await it.next_numbers() == Numbers(it.id, it.epoch + 1, 0, 1)
            assert it.forebay.count("forebay_producer_epoch_bumps_total") == 1

    @in_loop
    async def test_out_of_order_proves_that_it_is_not_there(self) -> None:
        async with pier() as it:
            (await it.tainted()).answer(error_code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
            again = await it.asked()
            assert again.numbers == Numbers(it.id, it.epoch + 1, 0, 2)
            again.answer()
            assert await it.told() == codes.NONE

    @in_loop
    async def test_where_another_attempt_follows_its_fate_is_as_unknown_as_before(self) -> None:
        """The lost one may be appended after all, behind what was out of order."""
        async with pier() as it:
            (await it.tainted()).answer(error_code=codes.OUT_OF_ORDER_SEQUENCE_NUMBER)
            (await it.asked()).answer(error_code=codes.TOPIC_AUTHORIZATION_FAILED)
            assert await it.told() == codes.REQUEST_TIMED_OUT

    @in_loop
    async def test_a_later_epoch_at_the_broker_is_told_as_unknown_and_another_id_taken(self) -> None:
        async with pier() as it:
            (await it.tainted()).answer(error_code=codes.INVALID_PRODUCER_EPOCH)
            assert await it.told() == codes.REQUEST_TIMED_OUT
            await until(lambda: it.forebay.count("forebay_producer_ids") == 2)
            assert (await it.next_numbers()).producer_id not in (-1, it.id)

    @in_loop
    async def test_what_nobody_waits_for_is_dropped_and_its_sequence_never_used_again(self) -> None:
        async with pier(retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as it:
            it.send("a", "b", timeout_ms=1)
            first = await it.asked()
            first.close()
            (await it.asked()).answer(error_code=codes.LEADER_NOT_AVAILABLE)
            assert await it.told() == codes.REQUEST_TIMED_OUT
            assert it.forebay.count("forebay_queued_bytes") == 0
            assert it.forebay.count("forebay_producer_epoch_bumps_total") == 1

    @in_loop
    async def test_records_without_a_key_stay_too_and_those_behind_them_move_away(self) -> None:
        async with two_piers() as it:
            it.send("a")
            away = await it.first()
            chosen = it.cluster[away.partitions[0][1]]
            other = it.cluster[1 - chosen.node_id]
            it.send("b", "c", "d", "e")
            await until(lambda: it.forebay.count("forebay_produce_requests_total", "client") == 5)
            chosen.down()
            other.releases(PRODUCE)
            other.forget()
            await until(lambda: it.forebay.count("forebay_retries_total", "outcome_unknown") == 1)
            assert "a" not in it.cluster.values("ponds", other.node_id)
            chosen.releases(PRODUCE)
            await chosen.up()
            assert await it.told(5) == [codes.NONE] * 5
            assert "a" in it.cluster.values("ponds", chosen.node_id)
            assert it.everything == ["a", "b", "c", "d", "e"]

    @in_loop
    async def test_whoever_can_does_not_wait_behind_one_that_fails_time_and_again(self) -> None:
        async with two_piers() as it:
            it.send("a")
            asked = await it.first()
            chosen = it.cluster[asked.partitions[0][1]]
            it.send("b", "c", "d", "e")
            await until(lambda: it.forebay.count("forebay_produce_requests_total", "client") == 5)
            it.cluster[1 - chosen.node_id].releases(PRODUCE)
            for asked_before in it.cluster[1 - chosen.node_id].requests(PRODUCE):
                asked_before.answer()
            told = 0
            while told < 4:  # as long as it takes
                asked.answer(error_code=codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
                asked = await chosen.receives(PRODUCE)
                assert asked.values == ["a"]
                told = len(it.everything)
            asked.answer()
            assert await it.told(5) == [codes.NONE] * 5
            assert it.everything == ["a", "b", "c", "d", "e"]

    @in_loop
    async def test_whoever_cannot_waits_for_as_long_as_its_client_does(self) -> None:
        async with pier() as it:
            asked = await it.tainted()
            hurried = await it.forebay.client(0)
            hurried.send(produce(1, ("ponds", 0, batch(keyed("behind"))), timeout_ms=1))
            reading = asyncio.ensure_future(hurried.receives(1))
            while not reading.done():
                asked.answer(error_code=codes.KAFKA_STORAGE_ERROR)
                asked = await it.asked()
            assert produced(reading.result()[0])["ponds", 0].error_code == codes.REQUEST_TIMED_OUT
            asked.answer()
            assert await it.told() == codes.NONE
            assert it.cluster.values("ponds", 0) == ["a", "b"]

    @in_loop
    async def test_another_lost_answer_changes_nothing(self) -> None:
        async with pier() as it:
            tainted = await it.tainted(appended=True)
            tainted.close()
            again = await it.asked()
            assert (again.numbers, again.values) == (tainted.numbers, ["a", "b"])
            again.answer()
            assert await it.told() == codes.NONE
            assert it.cluster.values("ponds", 0) == ["a", "b"]

    @in_loop
    async def test_of_a_topic_that_is_deleted_nobody_is_told_that_it_was_refused(self) -> None:
        async with pier(retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as it:
            tainted = await it.tainted()
            it.cluster.topics.clear()
            tainted.answer(error_code=codes.UNKNOWN_TOPIC_OR_PARTITION)
            assert await it.told() == codes.REQUEST_TIMED_OUT
            assert it.forebay.count("forebay_producer_epoch_bumps_total") == 1


class TestGivingUp:
    @in_loop
    async def test_a_connection_on_which_nothing_is_heard_is_left_after_a_third_of_the_clients_time(self) -> None:
        async with pier() as it:
            it.send("a", timeout_ms=1500)
            first = await it.asked()
            again = await it.asked()
            assert again.connection is not first.connection
            assert again.numbers == first.numbers
            again.answer()
            assert await it.told() == codes.NONE

    @in_loop
    async def test_a_connection_that_does_not_come_to_stand_is_left_in_time_too(self) -> None:
        async with pier() as it:
            it.cluster[0].holds(PRODUCE, API_VERSIONS)
            it.send("a", timeout_ms=4500)
            first = await it.asked()
            it.cluster[0].forget()
            await it.cluster[0].receives(API_VERSIONS)
            it.cluster[0].releases(API_VERSIONS)
            again = await it.asked()
            assert again.numbers == first.numbers
            again.answer()
            assert await it.told() == codes.NONE

    @in_loop
    async def test_with_one_that_is_silent_those_that_stand_idle_are_left(self) -> None:
        async with pier(max_in_flight_requests_per_connection=2) as it:
            it.cluster.topics["pools"] = [0]
            it.client.send(produce(1, ("pools", 0, batch(keyed("b")))))
            other = await it.asked()
            it.send("a", timeout_ms=1500)
            silent = await it.asked()
            other.answer()
            await it.client.receives(1)
            again = await it.asked()
            assert again.connection not in (silent.connection, other.connection)
            again.answer()
            assert await it.told() == codes.NONE

    @in_loop
    async def test_who_has_time_hears_the_answer_although_another_of_the_batch_has_none(self) -> None:
        """Kept records of a client that has its answer are not sent again, nor those that stand beside them."""
        async with pier() as it:
            hurried, _ = await it.with_hurried()
            assert produced((await hurried.receives(1))[0])["ponds", 0].error_code == codes.REQUEST_TIMED_OUT
            await asyncio.sleep(2 * SHORTEST_WAIT / ATTEMPTS_PER_TIMEOUT)
            it.cluster[0].requests(PRODUCE)[-1].answer()
            assert await it.told() == codes.NONE

    @in_loop
    async def test_who_has_little_time_has_nothing_of_others_sent_again(self) -> None:
        async with pier() as it:
            hurried, both = await it.with_hurried()
            sent = len(it.cluster[0].requests(PRODUCE))
            assert produced((await hurried.receives(1))[0])["ponds", 0].error_code == codes.REQUEST_TIMED_OUT
            assert len(it.cluster[0].requests(PRODUCE)) == sent
            both.answer()
            assert await it.told() == codes.NONE

    @pytest.mark.parametrize(
        ("waits", "seconds"),
        [([30_000, 1], 10.0), ([1, 9_000, 30_000], 3.0), ([100, 2_100], 0.7), ([1], 1 / 3), ([], 30.0)],
    )
    @in_loop
    async def test_nor_what_stands_beside_it_in_a_request(self, waits: list[int], seconds: float) -> None:
        async with pier() as it:
            sender = it.forebay.app._realm.dispatcher._senders[0]
            assert sender._patience([waited_for(each) for each in waits]) == pytest.approx(seconds)

    @in_loop
    async def test_without_idempotence_a_lost_answer_is_the_clients_to_know(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            asked = await cluster[0].receives(PRODUCE)
            assert asked.numbers.producer_id == -1
            asked.close()
            assert only((await client.receives(1))[0]).error_code == codes.REQUEST_TIMED_OUT
            assert len(cluster[0].requests(PRODUCE)) == 1


class TestHalves:
    """Of a client batch in which only some records have a key."""

    @in_loop
    async def test_one_is_not_refused_for_want_of_replicas_behind_the_others_back(self) -> None:
        """Told so, a client sends both again."""
        async with two_piers() as it:
            it.cluster[1].releases(PRODUCE)
            it.client.send(produce(1, ("ponds", 0, batch([*keyed("k"), *null_key("n")])), acks=-1))
            for _ in range(3):
                (await it.cluster[0].receives(PRODUCE)).answer(error_code=codes.NOT_ENOUGH_REPLICAS)
            last = await it.cluster[0].receives(PRODUCE)
            it.cluster[0].releases(PRODUCE)
            last.answer()
            assert await it.told(1) == [codes.NONE]
            assert it.everything == ["k", "n"]

    @in_loop
    async def test_one_is_not_appended_again_and_again_while_the_other_is_refused(self) -> None:
        async with two_piers() as it:
            it.refuse(codes.NOT_ENOUGH_REPLICAS, lambda record: record.key is not None)
            told = []
            for _ in range(3):
                mixed = batch([*keyed("k"), *null_key("n")])
                it.client.send(produce(1, ("ponds", 0, mixed), acks=-1, timeout_ms=1))
                told += await it.told(1)
            assert told == [codes.REQUEST_TIMED_OUT, codes.NOT_ENOUGH_REPLICAS, codes.NOT_ENOUGH_REPLICAS]
            assert it.everything == ["n"]

    @in_loop
    async def test_one_that_is_refused_for_good_has_others_go_whole(self) -> None:
        """As records without a key are where a topic is compacted."""
        async with two_piers() as it:
            it.refuse(codes.INVALID_RECORD, lambda record: record.key is None)
            for values in ("k", "n"), ("l", "m"):
                it.client.send(produce(1, ("ponds", 0, batch([*keyed(values[0]), *null_key(values[1])]))))
                assert await it.told(1) == [codes.INVALID_RECORD]
            assert it.everything == ["k"]


class TestClientsThatLeave:
    @in_loop
    async def test_kept_records_are_not_sent_again_once_their_client_has_left(self) -> None:
        async with pier() as it:
            it.send("a")
            first = await it.asked()
            await it.client_leaves()
            first.close()
            await until(lambda: it.forebay.count("forebay_producer_epoch_bumps_total") == 1)
            it.client = await it.forebay.client(0)
            assert await it.next_numbers() == Numbers(it.id, it.epoch + 1, 0, 1)
            assert it.cluster.values("ponds", 0) == ["behind"]

    @in_loop
    async def test_their_first_attempt_still_leaves(self) -> None:
        async with pier() as it:
            it.send("away")
            away = await it.asked()
            it.send("a")
            await until(lambda: it.forebay.count(*KEPT) == 3)
            await it.client_leaves()
            away.answer()
            assert (await it.asked()).values == ["a"]

    @in_loop
    async def test_of_what_was_refused_only_theirs_is_left_out(self) -> None:
        async with pier() as it:
            it.send("away")
            away = await it.asked()
            other = await it.forebay.client(0)
            it.send("a")
            other.send(produce(1, ("ponds", 0, batch(keyed("b")))))
            await until(lambda: it.forebay.count(*KEPT) == 4)
            away.answer()
            merged = await it.asked()
            assert sorted(merged.values) == ["a", "b"]
            await it.client_leaves()
            merged.answer(error_code=codes.NOT_LEADER_OR_FOLLOWER)
            again = await it.asked()
            assert again.values == ["b"]
            again.answer()
            assert produced((await other.receives(1))[0])["ponds", 0].error_code == codes.NONE
