"""What a client sees of its connection: order, refusals, and that others are not harmed."""

from __future__ import annotations

import struct

import pytest
import structlog

from forebay_codecs import api_versions
from forebay_codecs.apis import API_VERSIONS, FETCH, PRODUCE
from forebay_codecs.error_codes import CORRUPT_MESSAGE, NONE, UNSUPPORTED_VERSION
from tests.kit.app import running
from tests.kit.event_loop import in_loop, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.wire import (
    LIST_GROUPS,
    batch,
    echo,
    keyed,
    metadata,
    null_key,
    old_produce,
    only,
    produce,
    produced,
    request,
    transactional,
)


class TestOrder:
    @in_loop
    async def test_a_fast_opaque_answer_waits_for_the_slow_produce_answer_before_it(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))), echo(2, b"two"))
            asked = await cluster[0].receives(PRODUCE)
            await cluster[0].receives(LIST_GROUPS)
            client.send(echo(3, b"three"))
            await cluster[0].receives(LIST_GROUPS)
            asked.answer()
            produced_, second, third = await client.receives(1, 2, 3)
            assert only(produced_).error_code == NONE
            assert (second.body, third.body) == (b"two", b"three")

    @in_loop
    async def test_a_fast_produce_answer_waits_for_the_slow_opaque_answer_before_it(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(LIST_GROUPS)
            client = await forebay.client(0)
            client.send(echo(1, b"one"), produce(2, ("ponds", 0, batch(null_key("a")))))
            slow = await cluster[0].receives(LIST_GROUPS)
            await until(lambda: cluster.values("ponds", 0) == ["a"])
            slow.answer()
            await client.receives(1, 2)

    @in_loop
    async def test_an_untouched_batch_beside_a_touched_one_goes_out_behind_the_requests_before_it(self) -> None:
        async with (
            FakeCluster({"ponds": [0], "raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("first"))), ("raw", 0, batch(null_key("first")))))
            await client.receives(1)
            client.send(
                echo(2, b"two"),
                produce(3, ("ponds", 0, batch(null_key("a"))), ("raw", 0, batch(null_key("b")))),
                echo(4, b"four"),
            )
            second, mixed, fourth = await client.receives(2, 3, 4)
            assert (second.body, fourth.body) == (b"two", b"four")
            assert {where: answer.error_code for where, answer in produced(mixed).items()} == {
                ("ponds", 0): NONE,
                ("raw", 0): NONE,
            }
            assert cluster.values("raw", 0) == ["first", "b"]

    @in_loop
    async def test_an_untouched_batch_does_not_cut_into_a_request_that_arrived_in_pieces(self) -> None:
        async with (
            FakeCluster({"ponds": [0], "raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("first"))), ("raw", 0, batch(null_key("first")))))
            await client.receives(1)
            opaque = echo(2, b"x" * 1000)
            received = forebay.count("forebay_request_bytes_total", "client") + 500
            client.send(opaque[:500])
            await until(lambda: forebay.count("forebay_request_bytes_total", "client") == received)
            mixed = produce(3, ("ponds", 0, batch(null_key("a"))), ("raw", 0, batch(null_key("b"))))
            client.send(opaque[500:], mixed)
            second, _ = await client.receives(2, 3)
            assert second.body == b"x" * 1000

    @in_loop
    async def test_records_without_acks_do_not_stand_in_the_order(self) -> None:
        async with (
            FakeCluster({"ponds": [0], "raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(
                produce(1, ("ponds", 0, batch(null_key("a"))), acks=0),
                echo(2),
                produce(3, ("raw", 0, batch(null_key("b"))), acks=0),
                old_produce(4, acks=0),
                echo(5),
            )
            await client.receives(2, 5)

    @in_loop
    async def test_old_produce_is_forwarded_as_it_came_and_answered_in_its_place(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(old_produce(1, acks=1, body=b"as it came"), echo(2))
            first, _ = await client.receives(1, 2)
            assert first.body == b"old"
            assert (await cluster[0].receives(PRODUCE)).body == struct.pack(">hi", 1, 30_000) + b"as it came"

    @in_loop
    @pytest.mark.parametrize("most", [1, 2, 3])
    async def test_a_client_has_no_more_requests_under_way_than_it_may(self, most: int) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, client_max_in_flight_requests=most) as forebay,
        ):
            cluster[0].holds(LIST_GROUPS)
            client = await forebay.client(0)
            client.send(*[echo(number, bytes([number])) for number in range(10)])
            for number in range(10):
                asked = await cluster[0].receives(LIST_GROUPS)
                assert len(cluster[0].requests(LIST_GROUPS)) <= number + most
                asked.answer()
                (response,) = await client.receives(number)
                assert response.body == bytes([number])

    @in_loop
    async def test_what_lingers_leaves_when_its_client_may_send_no_more(self) -> None:
        limits = {"linger_ms": 60_000, "client_max_in_flight_requests": 2}
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, **limits) as forebay:
            client = await forebay.client(0)
            client.send(*[produce(number, ("ponds", 0, batch(keyed("a")))) for number in range(4)])
            await client.receives(0, 1, 2, 3)


REFUSED = {
    "unknown API": request(99, 0, 1, b""),
    "Produce v13": request(PRODUCE, 13, 1, b""),
    "Fetch v19": request(FETCH, 19, 1, b""),
    "short": (3).to_bytes(4, "big") + b"abc",
    "negative": (-1).to_bytes(4, "big", signed=True),
    "records overrun": produce(1, ("ponds", 0, b""))[:-4] + b"\x7f\xff\xff\xff",
    "acks=9": request(PRODUCE, 7, 1, b"\xff\xff\x00\x09"),
}


class TestRefusals:
    @in_loop
    @pytest.mark.parametrize("frame", REFUSED.values(), ids=REFUSED)
    async def test_what_is_not_offered_or_malformed_closes_its_own_connection_only(self, frame: bytes) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            neighbour, client = await forebay.client(0), await forebay.client(0)
            client.send(frame)
            assert await client.is_closed()
            neighbour.send(echo(1))
            await neighbour.receives(1)

    @in_loop
    @pytest.mark.parametrize("frame", REFUSED.values(), ids=REFUSED)
    async def test_what_was_asked_before_is_answered_before_the_connection_closes(self, frame: bytes) -> None:
        async with (
            FakeCluster({"ponds": [0], "raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            cluster[0].holds(PRODUCE, LIST_GROUPS)
            client = await forebay.client(0)
            touched, untouched = ("ponds", 0, batch(null_key("a"))), ("raw", 0, batch(null_key("b")))
            client.send(produce(1, touched), echo(2, b"two"), produce(3, untouched), frame, echo(5))
            second = await cluster[0].receives(LIST_GROUPS)
            asked = [await cluster[0].receives(PRODUCE) for _ in range(2)]
            second.answer()
            for request_ in asked:
                request_.answer()
            first, _, third = await client.receives(1, 2, 3)
            assert [only(first).error_code, only(third).error_code] == [NONE, NONE]
            assert await client.is_closed()
            assert len(cluster[0].requests(LIST_GROUPS)) == 1

    @in_loop
    async def test_refused_records_without_acks_close_the_client_behind_the_answers_before(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(LIST_GROUPS)
            client = await forebay.client(0)
            client.send(echo(1, b"one"), produce(2, ("ponds", 0, batch(null_key("a"), crc=1)), acks=0))
            (await cluster[0].receives(LIST_GROUPS)).answer()
            await client.receives(1)
            assert await client.is_closed()

    @in_loop
    async def test_a_frame_too_large_is_refused_by_its_size_alone_with_a_line_in_the_log(self) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, socket_request_max_bytes=10_000) as forebay,
        ):
            neighbour, client = await forebay.client(0), await forebay.client(0)
            with structlog.testing.capture_logs() as logs:
                neighbour.send(echo(1, b"x" * 9_000))
                client.send((10_001).to_bytes(4, "big"))
                assert await client.is_closed()
            assert [line["log_level"] for line in logs if "10001" in line.get("error", "")] == ["warning"]
            await neighbour.receives(1)
            assert forebay.count("forebay_frames_refused_total", "too_large") == 1

    @in_loop
    async def test_refused_records_without_acks_close_the_client_as_a_broker_does(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a"), crc=1)), acks=0))
            assert await client.is_closed()

    @in_loop
    async def test_nothing_behind_the_request_that_closed_the_client_is_carried_out(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("first")))))
            await client.receives(1)
            client.send(
                produce(2, ("ponds", 0, batch(null_key("a"), crc=1)), acks=0),
                produce(3, ("ponds", 0, batch(null_key("b"))), acks=0),
                echo(4),
            )
            assert await client.is_closed()
            client.close()
            other = await forebay.client(0)
            other.send(produce(5, ("ponds", 0, batch(null_key("later")))), echo(6))
            await other.receives(5, 6)
            assert cluster.values("ponds", 0) == ["first", "later"]

    @in_loop
    async def test_a_broker_that_refuses_records_without_acks_closes_their_client(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a"))), acks=0))
            asked = await cluster[0].receives(PRODUCE)
            assert asked.produce.acks == 1  # or the refusal would go unseen
            asked.answer(error_code=CORRUPT_MESSAGE)
            assert await client.is_closed()

    @in_loop
    async def test_connections_beyond_the_most_are_closed_at_once(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, max_connections=2) as forebay:
            first, second = await forebay.client(0), await forebay.client()
            third = await forebay.client(0)
            assert await third.is_closed()
            for client in (first, second):
                client.send(echo(1))
                await client.receives(1)
            first.close()
            await until(lambda: forebay.count("forebay_connections", "node") == 0)
            fourth = await forebay.client(0)
            fourth.send(echo(1))
            await fourth.receives(1)


class TestApiVersions:
    @in_loop
    @pytest.mark.parametrize("version", [0, 1, 2, 3])
    async def test_says_what_both_sides_understand(self, version: int) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster.produce_versions = (3, 13)
            client = await forebay.client(0)
            asked = api_versions.request(-7, "old-producer", version, "old", "1")
            client.send(len(asked).to_bytes(4, "big") + asked, echo(2))
            response = await client.receive()
            await client.receives(2)
            assert response.correlation_id.to_bytes(4, "big") == (-7).to_bytes(4, "big", signed=True)
            offered = api_versions.parse_api_versions(response.whole, version)
            assert offered[PRODUCE] == (3, 12)
            assert 99 not in offered

    @in_loop
    @pytest.mark.parametrize("version", [5, 32_767])
    async def test_a_version_that_is_too_new_is_answered_in_the_oldest(self, version: int) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client()
            client.send(request(API_VERSIONS, version, 1, b"whatever"))
            (response,) = await client.receives(1)
            assert response.body == struct.pack(">hihhh", UNSUPPORTED_VERSION, 1, API_VERSIONS, 0, 4)

    @in_loop
    async def test_clients_of_a_broker_that_is_away_are_closed(self) -> None:
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            cluster[1].down()
            client = await forebay.client(1)
            asked = api_versions.request(1, "old-producer", 0, "old", "1")
            client.send(len(asked).to_bytes(4, "big") + asked)
            assert await client.is_closed()


class TestUntouched:
    @in_loop
    @pytest.mark.parametrize(
        ("frame", "settings"),
        [
            (transactional(produce(1, ("ponds", 0, batch(null_key("a"))))), {}),
            (produce(1, ("ponds", 0, batch(null_key("a"), producer_id=7))), {}),
            (produce(1, ("ponds", 0, batch(null_key("a"))), client_id="app-1-StreamThread-2-producer"), {}),
            (produce(1, ("ponds", 0, batch(null_key("a")))), {"topics_exclude": ("p*",)}),
            (produce(1, ("__consumer_offsets", 0, batch(null_key("a")))), {}),
        ],
        ids=["transactional", "idempotent", "client excluded", "topic excluded", "internal topic"],
    )
    async def test_reaches_the_broker_byte_for_byte(self, frame: bytes, settings: dict[str, object]) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, **settings) as forebay:
            client = await forebay.client(0)
            client.send(frame)
            asked = await cluster[0].receives(PRODUCE)
            assert asked.frame == frame[4:]
            await client.receives(1)

    @in_loop
    async def test_what_a_topic_that_the_brokers_call_internal_holds_is_forwarded(self) -> None:
        async with FakeCluster({"ponds": [0], "inner": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster.internal.add("inner")
            client = await forebay.client(0)
            batches = ("ponds", 0, batch(keyed("a"))), ("inner", 0, batch(keyed("b")))
            client.send(produce(1, *batches), metadata(2))
            answers = produced((await client.receives(1, 2))[0])
            assert {where: answer.error_code for where, answer in answers.items()} == {
                ("ponds", 0): NONE,
                ("inner", 0): NONE,
            }
            untouched = [asked for asked in cluster[0].requests(PRODUCE) if asked.client_id == "old-producer"]
            assert [asked.partitions for asked in untouched] == [[("inner", 0)]]
