"""response_filter.py by way of share_responses.py, against kio; fetch_response.py has a test of its own."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_codecs.addresses import Translate
from forebay_codecs.apis import APIS, Treatment
from forebay_codecs.errors import Malformed
from forebay_codecs.primitives import Reader, Writer
from forebay_codecs.response_filter import MAX_HELD, PADDING_TAG, padded
from tests.codecs.hardening import damaged
from tests.codecs.kio_oracle import decode_response, encode_response, entities, example, message
from tests.codecs.translation import identity, nowhere

SHARE = {"share_fetch": (78, (1, 2)), "share_acknowledge": (79, (1, 2))}
CASES = pytest.mark.parametrize(
    ("api", "version"), [(api, version) for api, (_, versions) in SHARE.items() for version in versions]
)
PORT = 7000


def response_class(api: str, version: int) -> Any:
    return message(api, version, "".join(part.title() for part in api.split("_")) + "Response")


def run(api: str, version: int, data: bytes, translate: Translate, cuts: list[int] | None = None) -> bytes:
    entry = APIS[SHARE[api][0]]
    assert entry.response_treatment(version) is Treatment.STREAM
    assert entry.filter is not None
    response_filter = entry.filter(version, len(data), translate)
    out = bytearray()
    bounds = [0, *sorted(cuts or []), len(data)]
    for start, end in pairwise(bounds):
        for part in response_filter.feed(data, start, end):
            out += part
    return bytes(out)


def without_padding(out: bytes, at: int) -> bytes:
    """The response whose tagged fields begin at `at`, as kio reads it."""
    reader = Reader(out, at)
    fields = reader.tags()
    assert reader.pos == len(out)
    tags = [tag for tag, _, _ in fields]
    assert tags == sorted(set(tags))
    assert not any(any(out[start:end]) for tag, start, end in fields if tag >= PADDING_TAG)
    known = Writer()
    known.tags([(tag, out[start:end]) for tag, start, end in fields if tag < PADDING_TAG])
    return out[:at] + known.getvalue()


def read(cls: Any, out: bytes, expected: Any) -> Any:
    """`out`, which is as long as the original, where it is `expected` but for its padding."""
    return decode_response(cls, without_padding(out, len(encode_response(expected)) - 1))


def sample(api: str, version: int, *hosts: str) -> Any:
    endpoint = message(api, version, "NodeEndpoint")
    endpoints = tuple(endpoint(node_id=node, host=host, port=9092, rack=None) for node, host in enumerate(hosts))
    return replace(example(response_class(api, version)), node_endpoints=endpoints)


def translated(response: Any, host: str) -> Any:
    endpoints = tuple(replace(node, host=host, port=PORT) for node in response.node_endpoints)
    return replace(response, node_endpoints=endpoints)


@CASES
@settings(max_examples=50)
@given(data=st.data())
def test_the_same_addresses_give_the_same_bytes_however_cut(api: str, version: int, data: st.DataObject) -> None:
    encoded = encode_response(data.draw(entities(response_class(api, version))))
    cuts = data.draw(st.lists(st.integers(0, len(encoded)), max_size=8))
    assert run(api, version, encoded, identity, cuts) == encoded


@CASES
@settings(max_examples=50)
@given(data=st.data(), host=st.text(max_size=40))
def test_translates_in_the_same_length_or_leaves_out(api: str, version: int, data: st.DataObject, host: str) -> None:
    cls = response_class(api, version)
    response = data.draw(entities(cls))
    encoded = encode_response(response)
    cuts = data.draw(st.lists(st.integers(0, len(encoded)), max_size=8))
    out = run(api, version, encoded, lambda *_: (host, PORT), cuts)
    assert len(out) == len(encoded)
    expected = translated(response, host)
    spare = len(encoded) - len(encode_response(expected))
    if spare < 0 or spare in (1, 2):
        expected = replace(response, node_endpoints=())
    assert read(cls, out, expected) == expected


@CASES
def test_byte_by_byte(api: str, version: int) -> None:
    response = sample(api, version, "broker-0.internal", "broker-1.internal")
    encoded = encode_response(response)
    out = run(api, version, encoded, lambda *_: ("proxy", PORT), list(range(len(encoded))))
    expected = translated(response, "proxy")
    assert read(response_class(api, version), out, expected) == expected


@CASES
def test_brokers_without_a_listener_are_left_out(api: str, version: int) -> None:
    response = sample(api, version, "b0", "b1")
    expected = replace(response, node_endpoints=())
    out = run(api, version, encode_response(response), nowhere)
    assert read(response_class(api, version), out, expected) == expected


def test_records_of_a_share_group_pass_at_once_and_are_not_copied() -> None:
    """3 MB of them in chunks of 64 KiB, as the very views that they came as."""
    response = sample("share_fetch", 2, "broker-0.internal")
    partition = replace(response.responses[0].partitions[0], records=bytes(range(256)) * 12_000)
    response = replace(response, responses=(replace(response.responses[0], partitions=(partition,)),))
    encoded = encode_response(response)
    entry = APIS[78].filter
    assert entry is not None
    response_filter = entry(2, len(encoded), identity)
    passed = 0
    for start in range(0, len(encoded) - 65536, 65536):
        (view,) = response_filter.feed(encoded, start, start + 65536)
        assert isinstance(view, memoryview)
        passed += len(view)
    assert passed == len(encoded) // 65536 * 65536


@CASES
def test_refuses_a_response_that_is_cut_and_passes_on_what_is_too_much(api: str, version: int) -> None:
    encoded = encode_response(sample(api, version, "broker-0.internal"))
    for size in range(len(encoded)):
        with pytest.raises(Malformed):
            run(api, version, encoded[:size], identity)
    for tail in (b"\x00", b"\xff", encoded):
        assert run(api, version, encoded + tail, identity) == encoded + tail


@CASES
@settings(max_examples=100)
@given(data=st.data())
def test_survives_noise_and_keeps_its_length(api: str, version: int, data: st.DataObject) -> None:
    good = encode_response(sample(api, version, "broker-0.internal"))
    noise = data.draw(st.binary(max_size=200) | damaged(good))
    try:
        out = run(api, version, noise, lambda *_: ("proxy", PORT))
    except Malformed:
        return
    assert len(out) == len(noise)


def test_what_is_held_is_bounded() -> None:
    encoded = encode_response(sample("share_acknowledge", 2))[:-2]
    entry = APIS[79].filter
    assert entry is not None
    with pytest.raises(Malformed, match="at the end of a response"):
        entry(2, len(encoded) + MAX_HELD + 1, identity).feed(encoded, 0, len(encoded))


def test_unknown_tagged_fields_of_a_share_response_stay() -> None:
    head = bytes(4) + b"\x01\x63\x01h" + bytes(6) + b"\x00" + bytes(4) + b"\x01"
    before = head + b"\x02\x00\x00\x00\x07\x06broke\x00\x00\x00\x01\x00\x01\x09\x01t" + b"\x01\x63\x02ab"
    after = head + b"\x02\x00\x00\x00\x07\x03pr\x00\x00\x00\x02\x00\x01\x09\x01t" + b"\x02\x63\x02ab\x90\x4e\x00"
    assert run("share_acknowledge", 2, before, lambda *_: ("pr", 2)) == after


def test_padding_that_does_not_fit_is_none() -> None:
    assert [padded([], size) is not None for size in range(1, 6)] == [True, False, False, True, True]


def test_behind_the_largest_tag_is_no_room_for_another() -> None:
    largest = [((1 << 35) - 1, b"")]
    as_it_is = padded(largest, 7)
    assert as_it_is is not None
    assert Reader(as_it_is).tags() == [(largest[0][0], 7, 7)]
    assert padded(largest, 100) is None
