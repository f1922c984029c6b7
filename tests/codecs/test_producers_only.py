"""Refusals against kio in every version that it has: a response that clients can read, for all that was asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.static.primitive import i8

from forebay_codecs.api_keys import FETCH, FIND_COORDINATOR, INIT_PRODUCER_ID, LIST_OFFSETS
from forebay_codecs.errors import Malformed
from forebay_codecs.primitives import Reader, Writer
from forebay_codecs.producers_only import LOOKED_AT, MAX_KEYS, MESSAGE, refusal
from tests.codecs.hardening import damaged, survives
from tests.codecs.kio_oracle import decode_response, encode_request, entities, example, message

VERSIONS: dict[str, Iterable[int]] = {
    "fetch": range(4, 19),
    "list_offsets": range(1, 12),
    "find_coordinator": range(7),
    "init_producer_id": range(7),
}
NAMES = {api: "".join(part.title() for part in api.split("_")) for api in VERSIONS}
CASES = [(api, version) for api, versions in VERSIONS.items() for version in versions]
PARTITIONED = [(api, version) for api, version in CASES if api in ("fetch", "list_offsets")]


def refused(api: str, version: int, request: Any) -> Any:
    frame = refusal(encode_request(request))
    assert frame is not None
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return decode_response(message(api, version, f"{NAMES[api]}Response"), frame[4:])


@pytest.mark.parametrize(("api", "version"), PARTITIONED)
@settings(max_examples=20)
@given(data=st.data())
def test_every_partition_that_was_asked_for_is_refused(api: str, version: int, data: st.DataObject) -> None:
    request = data.draw(entities(message(api, version, f"{NAMES[api]}Request")))
    response = refused(api, version, request)
    topics = response.responses if api == "fetch" else response.topics
    asked = [
        (getattr(topic, "topic", None) or getattr(topic, "topic_id", None) or getattr(topic, "name", None))
        for topic in request.topics
    ]
    told = [
        (getattr(topic, "topic", None) or getattr(topic, "topic_id", None) or getattr(topic, "name", None))
        for topic in topics
    ]
    assert told == asked
    for topic, answer in zip(request.topics, topics, strict=True):
        indexes = [getattr(it, "partition", getattr(it, "partition_index", None)) for it in topic.partitions]
        assert [it.partition_index for it in answer.partitions] == indexes
        assert all(it.error_code.value == 29 for it in answer.partitions)
        assert all(not getattr(it, "records", None) for it in answer.partitions)


@pytest.mark.parametrize("version", VERSIONS["find_coordinator"])
@pytest.mark.parametrize(("key_type", "code"), [(0, 30), (1, 53), (2, 30)])
def test_there_is_no_coordinator(version: int, key_type: int, code: int) -> None:
    request = example(message("find_coordinator", version, "FindCoordinatorRequest"))
    if version >= 1:
        request = replace(request, key_type=i8(key_type))
    elif key_type:
        return  # before v1 there are groups only
    response = refused("find_coordinator", version, request)
    found = response.coordinators if version >= 4 else [response]
    assert [(it.error_code.value, it.node_id, it.host, it.port) for it in found] == [(code, -1, "", -1)]
    if version >= 1:
        assert [it.error_message for it in found] == [MESSAGE]
    if version >= 4:
        assert [it.key for it in found] == list(request.coordinator_keys)


def test_there_is_an_end_to_the_coordinators_that_one_may_ask_for() -> None:
    request = example(message("find_coordinator", 4, "FindCoordinatorRequest"))
    request = replace(request, coordinator_keys=tuple(str(number) for number in range(MAX_KEYS + 1)))
    response = refused("find_coordinator", 4, request)
    assert [it.key for it in response.coordinators] == [str(number) for number in range(MAX_KEYS)]


@pytest.mark.parametrize("version", VERSIONS["init_producer_id"])
def test_a_producer_id_is_refused_for_transactions_only(version: int) -> None:
    request = example(message("init_producer_id", version, "InitProducerIdRequest"))
    response = refused("init_producer_id", version, request)
    assert (response.error_code.value, response.producer_id, response.producer_epoch) == (53, -1, -1)
    alone = replace(request, transactional_id=None)
    assert refusal(encode_request(alone)) is None


def old_request(key: int, version: int, body: Writer) -> bytes:
    writer = Writer()
    writer.i16(key)
    writer.i16(version)
    writer.i32(5)
    writer.client_id("old")
    writer.raw(body.getvalue())
    return writer.getvalue()


@pytest.mark.parametrize("version", range(4))
def test_a_fetch_of_consumers_before_kafka_0_11(version: int) -> None:
    body = Writer()
    for number in (-1, 500, 1) + ((1 << 20,) if version == 3 else ()):
        body.i32(number)
    body.array(1, False)
    body.string("ponds", False)
    body.array(2, False)
    for partition in (3, 4):
        body.i32(partition)
        body.i64(0)
        body.i32(1 << 20)
    frame = refusal(old_request(FETCH, version, body))
    assert frame is not None
    reader = Reader(frame, 4)
    assert reader.i32() == 5
    if version >= 1:
        reader.skip(4)
    assert (reader.i32(), reader.string(False), reader.i32()) == (1, "ponds", 2)
    told = [(reader.i32(), reader.i16(), reader.i64(), reader.i32()) for _ in range(2)]
    assert told == [(3, 29, -1, 0), (4, 29, -1, 0)]
    assert reader.pos == len(frame)


def test_the_oldest_list_offsets() -> None:
    body = Writer()
    body.i32(-1)
    body.array(1, False)
    body.string("ponds", False)
    body.array(1, False)
    body.i32(3)
    body.i64(-2)
    body.i32(1)
    frame = refusal(old_request(LIST_OFFSETS, 0, body))
    assert frame is not None
    reader = Reader(frame, 8)
    assert (reader.i32(), reader.string(False), reader.i32()) == (1, "ponds", 1)
    assert (reader.i32(), reader.i16(), reader.i32(), reader.pos) == (3, 29, 0, len(frame))


@pytest.mark.parametrize(("api", "version"), CASES)
@settings(max_examples=20)
@given(data=st.data())
def test_noise_is_malformed_at_worst(api: str, version: int, data: st.DataObject) -> None:
    good = encode_request(example(message(api, version, f"{NAMES[api]}Request")))
    survives(lambda it: refusal(good[:8] + it[8:]), data.draw(damaged(good)))


@pytest.mark.parametrize("key", sorted(LOOKED_AT))
def test_versions_that_are_not_known_are_malformed(key: int) -> None:
    assert key in (FETCH, LIST_OFFSETS, FIND_COORDINATOR, INIT_PRODUCER_ID)
    for version in (-1, 19, 99):
        with pytest.raises(Malformed):
            refusal(old_request(key, version, Writer()))
