"""What happens to requests that are gathered whole: answered here, or judged by the broker."""

from __future__ import annotations

import struct

import pytest

from forebay_codecs import api_versions
from forebay_codecs.api_keys import API_VERSIONS, METADATA, PRODUCE
from forebay_codecs.apis import APIS
from forebay_codecs.error_codes import NONE, UNSUPPORTED_VERSION
from forebay_codecs.metadata import parse_metadata_response
from forebay_proxy.metrics import clients_seen
from tests.kit.app import running
from tests.kit.event_loop import in_loop
from tests.kit.fake_broker import FakeCluster
from tests.kit.wire import (
    CLIENT_ID,
    LIST_GROUPS,
    batch,
    echo,
    framed,
    keyed,
    metadata,
    null_key,
    only,
    produce,
    produced,
    request,
)

UNREADABLE = {
    "records overrun": produce(1, ("ponds", 0, b""))[:-4] + b"\x7f\xff\xff\xff",
    "acks=9": request(PRODUCE, 7, 1, b"\xff\xff\x00\x09"),
    "a header alone": request(PRODUCE, 7, 1, b""),
    "a topic that is not UTF-8": produce(1, ("!", 0, b"")).replace(b"!", b"\xe4"),
    "Metadata, a topic that is not UTF-8": metadata(1, "!").replace(b"!", b"\xe4"),
    "Metadata, a header alone": request(METADATA, 4, 1, b""),
}
ALL_TOPICS_BY_LIBRDKAFKA = (
    struct.pack(">hhih", METADATA, 12, 1, len(CLIENT_ID)) + CLIENT_ID.encode() + b"\0" + bytes(4) + b"\1\0\0"
)
"""A Metadata v12 request for all topics as librdkafka 2.16 writes it: null in four bytes, of which one is read."""


class TestTheBrokerIsTheJudge:
    @in_loop
    @pytest.mark.parametrize("frame", UNREADABLE.values(), ids=UNREADABLE)
    async def test_what_cannot_be_read_goes_on_as_it_came(self, frame: bytes) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            key = int.from_bytes(frame[4:6], "big")
            cluster[0].holds(key, LIST_GROUPS)
            client = await forebay.client(0)
            client.send(frame, echo(2, b"two"))
            second = await cluster[0].receives(LIST_GROUPS)
            asked = next(asked for asked in cluster[0].requests(key) if asked.client_id == CLIENT_ID)
            assert asked.frame == frame[4:]
            asked.respond(bytes(8 if key == PRODUCE else 18))
            second.answer()
            await client.receives(1, 2)
            assert forebay.count("forebay_requests_unread_total", APIS[key].name) == 1

    @in_loop
    async def test_records_without_acks_that_cannot_be_read_leave_no_gap_in_the_answers(self) -> None:
        bad = bytearray(produce(1, ("!", 0, batch(null_key("a"))), acks=0))
        bad[bad.index(b"!")] = 0xE4
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(bytes(bad), echo(2))
            await client.receives(2)
            assert (await cluster[0].receives(PRODUCE)).frame == bad[4:]

    @in_loop
    async def test_a_broker_that_cannot_read_it_either_closes_that_client_alone(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            neighbour, client = await forebay.client(0), await forebay.client(0)
            neighbour.send(echo(1))
            await neighbour.receives(1)
            client.send(UNREADABLE["records overrun"])
            assert await client.is_closed()
            neighbour.send(produce(2, ("ponds", 0, batch(keyed("a")))), echo(3))
            await neighbour.receives(2, 3)

    @in_loop
    async def test_bytes_left_over_are_overlooked(self) -> None:
        async with FakeCluster({"ponds": [0, 0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(framed(ALL_TOPICS_BY_LIBRDKAFKA))
            (response,) = await client.receives(1)
            told = parse_metadata_response(response.whole, 12)
            assert [(topic.name, len(topic.partitions)) for topic in told.topics] == [("ponds", 2)]
            client.send(framed(produce(2, ("ponds", 0, batch(keyed("a"))))[4:] + b"\0\0\0"))
            (response,) = await client.receives(2)
            assert only(response).error_code == NONE
            assert forebay.count("forebay_requests_unread_total", "Metadata") == 0

    @in_loop
    async def test_a_client_id_that_is_not_utf_8_is_no_hindrance(self) -> None:
        async with (
            FakeCluster({"ponds": [0], "raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            client = await forebay.client(0)
            touched, untouched = ("ponds", 0, batch(null_key("a"))), ("raw", 0, batch(null_key("b")))
            client.send(produce(1, touched, untouched, client_id="till-\udce4"), echo(2))
            response, _ = await client.receives(1, 2)
            assert {answer.error_code for answer in produced(response).values()} == {NONE}
            own = next(asked for asked in cluster[0].requests(PRODUCE) if asked.partitions == [("raw", 0)])
            assert b"till-\xe4" in own.frame
            (seen,) = clients_seen.rows(forebay.clients())
            assert seen["client_id"] == r"till-\xe4"


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
            assert offered[PRODUCE] == (0, 12), "old ones are taken here"
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
            asked = api_versions.request(1, "producer", 3, "producer", "1")
            client.send(len(asked).to_bytes(4, "big") + asked)
            assert await client.is_closed()

    @in_loop
    async def test_those_who_would_take_that_for_an_answer_are_told_by_another(self) -> None:
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            cluster[1].down()
            for version in (0, 3):
                client = await forebay.client(1)
                asked = api_versions.request(1, "old-producer", version, "kafka-python", "2.1.5")
                client.send(len(asked).to_bytes(4, "big") + asked)
                (told,) = await client.receives(1)
                assert api_versions.parse_api_versions(told.whole, version)[PRODUCE] == (0, 8)
