"""addresses.py against kio in every version: brokers translated, everything else byte for byte as it came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from forebay_codecs.addresses import (
    Translate,
    rewrite_describe_cluster,
    rewrite_find_coordinator,
    rewrite_produce,
)
from tests.codecs.hardening import damaged, refuses_cuts_keeps_tails, survives
from tests.codecs.kio_oracle import decode_response, encode_response, entities, example, message
from tests.codecs.translation import Listeners, identity, nowhere

Rewriter = Callable[[bytes, int, Translate], bytes]

REWRITERS: dict[str, tuple[Rewriter, range]] = {
    "find_coordinator": (rewrite_find_coordinator, range(7)),
    "describe_cluster": (rewrite_describe_cluster, range(3)),
    "produce": (rewrite_produce, range(10, 14)),
}

CASES = [(api, version) for api, (_, versions) in REWRITERS.items() for version in versions]


def response_class(api: str, version: int) -> Any:
    return message(api, version, "".join(part.title() for part in api.split("_")) + "Response")


def expected(api: str, response: Any, listeners: Listeners) -> Any:
    """`response` with its brokers translated, as this test's own reading of the schemas has it."""
    if api == "describe_cluster":
        if getattr(response, "endpoint_type", 1) == 2:
            return replace(response, brokers=())
        return replace(response, brokers=listeners.expected(response.brokers))
    if api == "find_coordinator":
        if hasattr(response, "coordinators"):
            coordinators = (c if c.node_id < 0 else listeners.translated(c) for c in response.coordinators)
            return replace(response, coordinators=tuple(coordinators))
        return response if response.node_id < 0 else listeners.translated(response)
    return replace(response, node_endpoints=listeners.expected(response.node_endpoints))


def named(api: str, response: Any) -> list[tuple[int, str, int]]:
    """Every broker that `translate` is to be asked for."""
    if api == "describe_cluster":
        if getattr(response, "endpoint_type", 1) == 2:
            return []
        return [(b.broker_id, b.host, b.port) for b in response.brokers]
    if api == "find_coordinator":
        found = getattr(response, "coordinators", [response])
        return [(c.node_id, c.host, c.port) for c in found if c.node_id >= 0]
    return [(n.node_id, n.host, n.port) for n in response.node_endpoints]


@pytest.mark.parametrize(("api", "version"), CASES)
@settings(max_examples=30)
@given(data=st.data())
def test_translates_brokers_and_nothing_else(api: str, version: int, data: st.DataObject) -> None:
    response = data.draw(entities(response_class(api, version)))
    listeners = Listeners()
    rewritten = REWRITERS[api][0](encode_response(response), version, listeners)
    assert rewritten == encode_response(expected(api, response, Listeners()))
    assert listeners.asked == named(api, response)


@pytest.mark.parametrize(("api", "version"), CASES)
@settings(max_examples=20)
@given(data=st.data())
def test_brokers_without_a_listener_are_not_named(api: str, version: int, data: st.DataObject) -> None:
    cls = response_class(api, version)
    response = data.draw(entities(cls))
    rewritten = decode_response(cls, REWRITERS[api][0](encode_response(response), version, nowhere))
    assert named(api, rewritten) == []
    if api == "produce":
        assert rewritten == replace(response, node_endpoints=())


@pytest.mark.parametrize(("api", "version"), CASES)
def test_refuses_what_is_cut_and_passes_on_what_is_too_much(api: str, version: int) -> None:
    rewrite = REWRITERS[api][0]
    refuses_cuts_keeps_tails(
        lambda data: rewrite(data, version, identity), encode_response(example(response_class(api, version)))
    )


@pytest.mark.parametrize(("api", "version"), CASES)
@settings(max_examples=50)
@given(data=st.data())
def test_survives_noise(api: str, version: int, data: st.DataObject) -> None:
    rewrite = REWRITERS[api][0]
    good = data.draw(entities(response_class(api, version)).map(encode_response))
    noise = data.draw(st.binary(max_size=200) | damaged(good))
    survives(lambda noise: rewrite(noise, version, identity), noise)


@pytest.mark.parametrize("version", range(4))
def test_a_coordinator_without_a_listener_is_not_available(version: int) -> None:
    cls = response_class("find_coordinator", version)
    fields = {"error_code": ErrorCode.none, "node_id": 3, "host": "b3", "port": 9092}
    if version >= 1:
        template = example(cls)
        fields |= {"throttle_time": template.throttle_time, "error_message": "fine"}
    response = cls(**fields)
    rewritten = decode_response(cls, rewrite_find_coordinator(encode_response(response), version, nowhere))
    changed = {"error_code": ErrorCode.coordinator_not_available, "node_id": -1, "host": "", "port": -1}
    if version >= 1:
        changed["error_message"] = None
    assert rewritten == replace(response, **changed)


@pytest.mark.parametrize("version", range(4, 7))
def test_each_key_keeps_an_answer(version: int) -> None:
    """A client that asked for one key and finds no entry gives up; an entry that is not available it asks for again."""
    cls = response_class("find_coordinator", version)
    template = example(cls)
    one = template.coordinators[0]
    known = replace(one, key="a", node_id=1, host="b1", port=1, error_code=ErrorCode.none, error_message=None)
    unknown = replace(known, key="b", node_id=2)
    refused = replace(
        known,
        key="c",
        node_id=-1,
        host="",
        port=-1,
        error_code=ErrorCode.group_authorization_failed,
        error_message="no",
    )
    response = replace(template, coordinators=(known, unknown, refused))
    rewritten = rewrite_find_coordinator(
        encode_response(response), version, lambda node, host, port: ("proxy", 9094) if node == 1 else None
    )
    assert decode_response(cls, rewritten) == replace(
        template,
        coordinators=(
            replace(known, host="proxy", port=9094),
            replace(unknown, node_id=-1, host="", port=-1, error_code=ErrorCode.coordinator_not_available),
            refused,
        ),
    )


@pytest.mark.parametrize("version", [1, 2])
def test_controllers_are_left_out(version: int) -> None:
    cls = response_class("describe_cluster", version)
    response = replace(example(cls), endpoint_type=2)
    listeners = Listeners()
    rewritten = decode_response(cls, rewrite_describe_cluster(encode_response(response), version, listeners))
    assert response.brokers
    assert rewritten == replace(response, brokers=())
    assert listeners.asked == []


@pytest.mark.parametrize("version", range(3, 10))
def test_produce_before_v10_is_relayed_unread(version: int) -> None:
    assert rewrite_produce(b"whatever", version, nowhere) == b"whatever"


def test_produce_keeps_unknown_tagged_fields() -> None:
    head = bytes(4) + b"\x00" + b"\x01" + bytes(4)
    before = head + b"\x02" + b"\x00\x0e\x02\x00\x00\x00\x07\x03b7\x00\x00\x00\x01\x00\x00" + b"\x63\x02ab"
    after = head + b"\x02" + b"\x00\x11\x02\x00\x00\x00\x07\x06proxy\x00\x00\x00\x02\x00\x00" + b"\x63\x02ab"
    assert rewrite_produce(before, 12, lambda *_: ("proxy", 2)) == after
