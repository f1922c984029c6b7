"""one_broker.py against kio in every version: one broker wherever there were several, all else as it came."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.static.primitive import i32

from forebay_codecs import produce_response
from forebay_codecs.api_keys import DESCRIBE_CLUSTER, METADATA, PRODUCE
from forebay_codecs.apis import APIS
from forebay_codecs.metadata import Broker, Partition, Topic
from forebay_codecs.one_broker import (
    NODE_ID,
    REWRITTEN,
    of_topic,
    only_broker,
    rewrite_describe_cluster,
    rewrite_metadata,
    rewrite_produce,
)
from tests.codecs.hardening import damaged, refuses_cuts_ignores_tails, refuses_cuts_keeps_tails, survives
from tests.codecs.kio_oracle import decode_response, encode_response, entities, example, message
from tests.codecs.translation import nowhere


def at_port(node_id: int, host: str, port: int) -> tuple[str, int]:
    assert node_id == NODE_ID
    return "proxy.example", 9092


def present(response: Any, *names: str) -> dict[str, Any]:
    """Those fields that this version has."""
    return {name: getattr(response, name) for name in names if name in {field.name for field in fields(response)}}


def expected_partition(partition: Any) -> Any:
    alone = {
        name: (i32(0),) if nodes else () for name, nodes in present(partition, "replica_nodes", "isr_nodes").items()
    }
    gone = dict.fromkeys(present(partition, "offline_replicas"), ())
    return replace(partition, leader_id=i32(min(0, max(-1, partition.leader_id))), **alone, **gone)


def expected_metadata(response: Any, broker: type) -> Any:
    only = broker(node_id=i32(0), host="proxy.example", port=i32(9092))
    controller = {name: i32(min(0, max(-1, value))) for name, value in present(response, "controller_id").items()}
    topics = tuple(
        replace(topic, partitions=tuple(expected_partition(partition) for partition in topic.partitions))
        for topic in response.topics
    )
    return replace(response, brokers=(only,), topics=topics, **controller)


@pytest.mark.parametrize("version", range(14))
@settings(max_examples=30)
@given(data=st.data())
def test_metadata_has_one_broker_for_all(version: int, data: st.DataObject) -> None:
    response = data.draw(entities(message("metadata", version, "MetadataResponse")))
    rewritten = rewrite_metadata(encode_response(response), version, at_port)
    broker = message("metadata", version, "MetadataResponseBroker")
    assert rewritten == encode_response(expected_metadata(response, broker))


@pytest.mark.parametrize("version", range(3))
@settings(max_examples=30)
@given(data=st.data())
def test_describe_cluster_has_one_broker_and_no_controllers(version: int, data: st.DataObject) -> None:
    response = data.draw(entities(message("describe_cluster", version, "DescribeClusterResponse")))
    rewritten = rewrite_describe_cluster(encode_response(response), version, at_port)
    broker = message("describe_cluster", version, "DescribeClusterBroker")
    unfenced = {"is_fenced": False} if version >= 2 else {}
    only = broker(broker_id=i32(0), host="proxy.example", port=i32(9092), **unfenced)
    controllers = getattr(response, "endpoint_type", 1) == 2
    assert rewritten == encode_response(
        replace(
            response,
            brokers=(only,) if response.brokers and not controllers else (),
            controller_id=i32(min(0, max(-1, response.controller_id))),
        )
    )


@pytest.mark.parametrize("version", range(3, 13))
def test_a_produce_response_names_no_leader(version: int) -> None:
    data = encode_response(example(message("produce", version, "ProduceResponse")))
    before = produce_response.parse(data, version)
    after = produce_response.parse(rewrite_produce(data, version, at_port), version)
    assert after.nodes == ()
    assert after.throttle_time_ms == before.throttle_time_ms
    for _, partitions in before.topics:
        for partition in partitions:
            partition.current_leader = None
    assert after.topics == before.topics
    decode_response(message("produce", version, "ProduceResponse"), rewrite_produce(data, version, at_port))


@pytest.mark.parametrize(
    ("api", "version"), [("metadata", version) for version in range(14)] + [("describe_cluster", v) for v in range(3)]
)
def test_cut_short_it_is_malformed_and_a_tail_goes_on(api: str, version: int) -> None:
    name = "".join(part.title() for part in api.split("_"))
    rewrite = {"metadata": rewrite_metadata, "describe_cluster": rewrite_describe_cluster}[api]
    good = encode_response(example(message(api, version, f"{name}Response")))
    refuses_cuts_keeps_tails(lambda data: rewrite(data, version, at_port), good)


def test_a_produce_response_cut_short_is_malformed() -> None:
    good = encode_response(example(message("produce", 10, "ProduceResponse")))
    refuses_cuts_ignores_tails(lambda data: rewrite_produce(data, 10, at_port), good)


@pytest.mark.parametrize("key", [METADATA, DESCRIBE_CLUSTER, PRODUCE])
@given(data=st.data())
def test_noise_is_malformed_at_worst(key: int, data: st.DataObject) -> None:
    api = REWRITTEN[key]
    assert (api.key, api.name, api.highest) == (key, APIS[key].name, APIS[key].highest)
    name = {METADATA: "metadata", DESCRIBE_CLUSTER: "describe_cluster", PRODUCE: "produce"}[key]
    assert api.highest is not None
    good = encode_response(example(message(name, api.highest, f"{api.name}Response")))
    noise = data.draw(damaged(good))
    assert api.rewrite is not None
    rewrite = api.rewrite
    survives(lambda it: rewrite(it, api.highest or 0, at_port), noise)


def test_without_an_address_there_is_no_broker() -> None:
    assert only_broker(nowhere) == {}
    assert only_broker(at_port) == {0: Broker("proxy.example", 9092, None)}


def test_a_topic_keeps_its_epochs_its_id_and_what_has_no_leader() -> None:
    partitions = (Partition(0, 0, 3, 17, (3, 4), (3,), (4,)), Partition(5, 1, -1, 18, (4,), (), (4,)))
    topic = Topic(0, "ponds", bytes(range(16)), False, partitions)
    assert of_topic(topic) == topic._replace(
        partitions=(Partition(0, 0, 0, 17, (0,), (0,)), Partition(5, 1, -1, 18, (0,), ()))
    )
