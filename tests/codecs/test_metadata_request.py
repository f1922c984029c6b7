"""metadata_request.py against kio in every version, and against bytes that are none of the protocol's."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_codecs.errors import Malformed
from forebay_codecs.metadata import NO_TOPIC_ID
from forebay_codecs.metadata_request import MAX_NAMES, encode_metadata_request, parse_metadata_request
from tests.codecs.hardening import damaged, refuses_cuts_ignores_tails, survives
from tests.codecs.kio_oracle import (
    CORRELATION_ID,
    decode_request,
    encode_request,
    entities,
    example,
    message,
    topic_id,
)

VERSIONS = range(14)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30)
@given(data=st.data())
def test_parses_what_kio_writes(version: int, data: st.DataObject) -> None:
    theirs = data.draw(entities(message("metadata", version, "MetadataRequest")))
    if version >= 10 and theirs.topics is not None:
        named = (topic if topic.name is not None else replace(topic, name="named") for topic in theirs.topics)
        theirs = replace(theirs, topics=tuple(named))
    if version == 0 and theirs.topics is None:
        return
    ours = parse_metadata_request(encode_request(theirs, "älter"))
    assert (ours.version, ours.correlation_id, ours.client_id) == (version, CORRELATION_ID, "älter")
    asked = [(topic.name, topic_id(topic.topic_id) if version >= 12 else NO_TOPIC_ID) for topic in theirs.topics or ()]
    assert ours.names == list(dict.fromkeys(name for name, id_ in asked if id_ == NO_TOPIC_ID and name is not None))
    assert ours.ids == list(dict.fromkeys(id_ for _, id_ in asked if id_ != NO_TOPIC_ID))
    assert ours.all_topics == (theirs.topics == () if version == 0 else theirs.topics is None)
    assert ours.allow_auto_topic_creation == getattr(theirs, "allow_auto_topic_creation", True)
    assert ours.authorized_operations == (
        getattr(theirs, "include_cluster_authorized_operations", False)
        or getattr(theirs, "include_topic_authorized_operations", False)
    )


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize("name", ["", "orders", None])
def test_a_topic_id_counts_whatever_the_name(version: int, name: str | None) -> None:
    """kafka-clients asks by id with an empty name (a SubscriptionPattern's topics, KIP-848)."""
    cls, topic = message("metadata", version, "MetadataRequest"), message("metadata", version, "MetadataRequestTopic")
    asked = replace(example(topic), name=name, topic_id=UUID(int=7))
    ours = parse_metadata_request(encode_request(replace(example(cls), topics=(asked,))))
    assert (ours.names, ours.ids) == ([], [UUID(int=7).bytes])


def test_null_is_no_list_of_topics_in_v0() -> None:
    empty = encode_request(replace(example(message("metadata", 0, "MetadataRequest")), topics=()))
    with pytest.raises(Malformed):
        parse_metadata_request(empty[:-4] + b"\xff\xff\xff\xff")


@pytest.mark.parametrize(("version", "id_"), [(10, 7), (11, 7), (12, 0), (13, 0)])
def test_a_topic_without_a_name_is_refused_where_it_has_no_id_that_counts(version: int, id_: int) -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR for all that is asked for with it, and names no brokers."""
    cls = message("metadata", version, "MetadataRequest")
    topic = replace(example(message("metadata", version, "MetadataRequestTopic")), name=None, topic_id=UUID(int=id_))
    with pytest.raises(Malformed, match="without a name"):
        parse_metadata_request(encode_request(replace(example(cls), topics=(topic,))))


def test_names_are_bounded() -> None:
    names = [str(number) for number in range(MAX_NAMES)]
    assert parse_metadata_request(encode_metadata_request(1, None, 4, names)).names == names
    with pytest.raises(Malformed, match="5001 topics"):
        parse_metadata_request(encode_metadata_request(1, None, 4, [*names, "one more"]))


@pytest.mark.parametrize("version", [14, -1])
def test_other_versions_are_refused(version: int) -> None:
    frame = b"\0\3" + version.to_bytes(2, "big", signed=True) + bytes(20)
    with pytest.raises(Malformed):
        parse_metadata_request(frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_cut_it_is_refused_lengthened_it_is_read(version: int) -> None:
    good = encode_request(example(message("metadata", version, "MetadataRequest")))
    refuses_cuts_ignores_tails(parse_metadata_request, good)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_survives_noise(version: int, data: st.DataObject) -> None:
    good = encode_request(example(message("metadata", version, "MetadataRequest")))
    survives(parse_metadata_request, data.draw(st.binary(max_size=200) | damaged(good)))


@pytest.mark.parametrize("version", range(4, 14))
@pytest.mark.parametrize("topics", [None, [], ["orders"], ["orders", "zähler"]])
def test_what_is_written_is_what_kio_reads(version: int, topics: list[str] | None) -> None:
    cls = message("metadata", version, "MetadataRequest")
    header, request = decode_request(cls, encode_metadata_request(99, "forebay", version, topics))
    assert (header.request_api_key, header.request_api_version) == (3, version)
    assert (header.correlation_id, header.client_id) == (99, "forebay")
    assert (None if request.topics is None else [topic.name for topic in request.topics]) == topics
    assert all(getattr(topic, "topic_id", None) is None for topic in request.topics or ())
    assert request.allow_auto_topic_creation is False
    assert not getattr(request, "include_cluster_authorized_operations", False)
    assert not getattr(request, "include_topic_authorized_operations", False)


@pytest.mark.parametrize("version", [12, 13])
def test_ids_are_written_beside_names(version: int) -> None:
    one = bytes(range(16))
    request = parse_metadata_request(encode_metadata_request(1, None, version, ["orders"], ids=[one]))
    assert (request.names, request.ids) == (["orders"], [one])
    _, theirs = decode_request(
        message("metadata", version, "MetadataRequest"), encode_metadata_request(1, None, version, [], ids=[one])
    )
    assert [(topic.name, topic_id(topic.topic_id)) for topic in theirs.topics] == [(None, one)]
    assert one != NO_TOPIC_ID


def test_ids_are_not_written_before_v12() -> None:
    with pytest.raises(ValueError, match="v11"):
        encode_metadata_request(1, None, 11, [], ids=[bytes(range(16))])


def test_it_may_create_topics() -> None:
    data = encode_metadata_request(1, None, 12, ["new"], allow_auto_topic_creation=True)
    assert decode_request(message("metadata", 12, "MetadataRequest"), data)[1].allow_auto_topic_creation is True


@pytest.mark.parametrize("version", [3, 14])
def test_versions_that_are_written_are_bounded(version: int) -> None:
    with pytest.raises(ValueError, match=f"v{version}"):
        encode_metadata_request(1, None, version, [])
