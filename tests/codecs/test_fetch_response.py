"""fetch_response.py: whole, byte by byte and cut anywhere, against kio."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from forebay_codecs.addresses import Translate
from forebay_codecs.errors import Malformed
from forebay_codecs.fetch_response import FetchResponseFilter
from forebay_codecs.primitives import Reader, Writer
from forebay_codecs.response_filter import MAX_HELD, PADDING_TAG
from tests.codecs.hardening import damaged
from tests.codecs.kio_oracle import (
    decode_response,
    encode_response,
    entities,
    example,
    message,
)
from tests.codecs.translation import identity, nowhere

VERSIONS = pytest.mark.parametrize("version", [16, 17, 18])


def response_class(version: int) -> Any:
    return message("fetch", version, "FetchResponse")


def sample(version: int, *hosts: str) -> Any:
    """A response with a record set, an aborted transaction, tagged fields of a partition, endpoints from node 0 on."""
    endpoint = message("fetch", version, "NodeEndpoint")
    endpoints = tuple(endpoint(node_id=i, host=host, port=9092, rack=None) for i, host in enumerate(hosts))
    return replace(example(response_class(version)), node_endpoints=endpoints)


def chunks(data: bytes, cuts: list[int]) -> Iterator[tuple[bytes, int, int]]:
    """`data` as feed() takes it, cut at `cuts`, each chunk with strangers before and behind it."""
    for start, end in pairwise([0, *sorted(cuts), len(data)]):
        yield b"before" + data[start:end] + b"behind", 6, 6 + end - start


def run(
    version: int,
    data: bytes,
    translate: Translate = identity,
    cuts: list[int] | None = None,
    size: int | None = None,
) -> bytes:
    response_filter = FetchResponseFilter(version, len(data) if size is None else size, translate)
    out: list[bytes] = []
    for chunk, start, end in chunks(data, cuts or []):
        out.extend(bytes(part) for part in response_filter.feed(chunk, start, end))
    return b"".join(out)


def to(host: str) -> Translate:
    return lambda node_id, _host, _port: (host, 7000 + node_id % 1000)


def decode_padded(version: int, out: bytes, section_size: int) -> Any:
    """What kio reads without the padding, which it does not know. Padding is all zeros, its tags rise."""
    at = len(out) - section_size
    reader = Reader(out, at)
    fields = reader.tags()
    assert reader.pos == len(out)
    tags = [tag for tag, _, _ in fields]
    assert tags == sorted(set(tags))
    known = Writer()
    known.tags([(tag, out[start:end]) for tag, start, end in fields if tag < PADDING_TAG])
    assert not any(any(out[start:end]) for tag, start, end in fields if tag >= PADDING_TAG)
    return decode_response(response_class(version), out[:at] + known.getvalue())


def section_size(response: Any) -> int:
    """The size of the tagged fields at the end of the response."""
    return len(encode_response(response)) - len(encode_response(replace(response, node_endpoints=()))) + 1


def endpoints_of(response: Any) -> list[tuple[int, str, int]]:
    return [(node.node_id, node.host, node.port) for node in response.node_endpoints]


@VERSIONS
@settings(max_examples=100)
@given(data=st.data())
def test_the_same_addresses_give_the_same_bytes_however_cut(version: int, data: st.DataObject) -> None:
    encoded = encode_response(data.draw(entities(response_class(version))))
    cuts = data.draw(st.lists(st.integers(0, len(encoded)), max_size=8))
    assert run(version, encoded, cuts=cuts) == encoded


@VERSIONS
@settings(max_examples=100)
@given(data=st.data(), host=st.text(max_size=40))
def test_translates_in_the_same_length_or_leaves_out(version: int, data: st.DataObject, host: str) -> None:
    response = data.draw(entities(response_class(version)))
    encoded = encode_response(response)
    cuts = data.draw(st.lists(st.integers(0, len(encoded)), max_size=8))
    out = run(version, encoded, to(host), cuts)
    assert len(out) == len(encoded)
    read = decode_padded(version, out, section_size(response))
    translated = replace(
        response,
        node_endpoints=tuple(
            replace(node, host=host, port=7000 + node.node_id % 1000) for node in response.node_endpoints
        ),
    )
    spare = len(encoded) - len(encode_response(translated))
    assert read == (translated if spare == 0 or spare >= 3 else replace(response, node_endpoints=()))


@VERSIONS
def test_byte_by_byte(version: int) -> None:
    response = sample(version, "broker-0.internal", "broker-1.internal")
    encoded = encode_response(response)
    out = run(version, encoded, to("proxy"), cuts=list(range(len(encoded))))
    assert len(out) == len(encoded)
    read = decode_padded(version, out, section_size(response))
    assert endpoints_of(read) == [(0, "proxy", 7000), (1, "proxy", 7001)]


def test_what_comes_before_the_last_section_passes_at_once() -> None:
    """Without being copied: views of what was fed."""
    encoded = encode_response(sample(18, "broker-0.internal"))
    section = section_size(sample(18, "broker-0.internal"))
    response_filter = FetchResponseFilter(18, len(encoded), identity)
    passed = 0
    for at in range(len(encoded) - section):
        parts = response_filter.feed(encoded, at, at + 1)
        assert [(bytes(part), isinstance(part, memoryview)) for part in parts] == [(encoded[at : at + 1], True)]
        passed += 1
    for at in range(passed, len(encoded) - 1):
        assert response_filter.feed(encoded, at, at + 1) == []
    assert response_filter.feed(encoded, len(encoded) - 1, len(encoded)) == [encoded[-section:]]


def test_records_are_not_looked_at() -> None:
    """Records of 3 MB, in chunks of 64 KiB that pass as the very views that they came as."""
    response = sample(18, "broker-0.internal")
    partition = replace(response.responses[0].partitions[0], records=bytes(range(256)) * 12_000)
    response = replace(response, responses=(replace(response.responses[0], partitions=(partition,)),))
    encoded = encode_response(response)
    response_filter = FetchResponseFilter(18, len(encoded), to("proxy"))
    out: list[bytes | memoryview] = []
    for start in range(0, len(encoded), 65536):
        out += response_filter.feed(encoded, start, min(start + 65536, len(encoded)))
    assert len(out) == len(encoded) // 65536 + 2  # one a chunk, and the section
    read = decode_padded(18, b"".join(out), section_size(response))
    assert endpoints_of(read) == [(0, "proxy", 7000)]
    assert read.responses == response.responses


@pytest.mark.parametrize("spares", [range(400), [16_379, *range(16_383, 16_395)]])
def test_padding_fits_every_gap(spares: Iterable[int]) -> None:
    """The translated host is shorter by `spare` bytes. Of all gaps only 1 and 2 are too small for a padding field."""
    for spare in spares:
        response = sample(18, "p" * (2 + spare))
        encoded = encode_response(response)
        out = run(18, encoded, to("pp"))
        assert len(out) == len(encoded)
        saved = len(encoded) - len(encode_response(sample(18, "pp")))
        read = endpoints_of(decode_padded(18, out, section_size(response)))
        assert read == ([] if saved in (1, 2) else [(0, "pp", 7000)]), spare


def test_addresses_that_do_not_fit_are_left_out() -> None:
    response = sample(18, "b0", "b1")
    encoded = encode_response(response)
    out = run(18, encoded, to("a-much-longer-name.example"))
    assert len(out) == len(encoded)
    assert decode_padded(18, out, section_size(response)) == sample(18)


def test_brokers_without_a_listener_are_left_out() -> None:
    response = sample(18, "b0", "b1")
    encoded = encode_response(response)
    assert decode_padded(18, run(18, encoded, nowhere), section_size(response)) == sample(18)
    out = run(18, encoded, lambda node, host, port: ("p1", 7001) if node else None)
    assert endpoints_of(decode_padded(18, out, section_size(response))) == [(1, "p1", 7001)]


def section_of(fields: list[tuple[int, bytes]]) -> bytes:
    """Tagged fields of less than 128 bytes, tags below 16384, as KIP-482 has them."""
    out = bytes([len(fields)])
    for tag, data in fields:
        out += bytes([tag]) if tag < 128 else bytes([tag & 0x7F | 0x80, tag >> 7])
        out += bytes([len(data)]) + data
    return out


def endpoints_field(host: str) -> bytes:
    endpoint = message("fetch", 18, "NodeEndpoint")
    buffer = io.BytesIO()
    entity_writer(endpoint)(buffer, endpoint(node_id=7, host=host, port=7007, rack="r"))
    return b"\x02" + buffer.getvalue()


@pytest.mark.parametrize("other", [9, PADDING_TAG, PADDING_TAG + 1])
def test_unknown_tagged_fields_stay_and_padding_goes_behind_them(other: int) -> None:
    head = encode_response(sample(18))[:-1]
    before = section_of([(0, endpoints_field("broker-7")), (other, b"??")])
    after = section_of(
        [(0, endpoints_field("p")), (other, b"??"), (max(PADDING_TAG, other + 1), bytes(len("roker-7") - 3))]
    )
    assert len(before) == len(after)
    assert run(18, head + before, lambda *_: ("p", 7007)) == head + after


def test_without_endpoints_tagged_fields_pass_as_they_are() -> None:
    encoded = encode_response(sample(18))[:-1] + section_of([(9, b"??")])
    assert run(18, encoded, nowhere) == encoded


@VERSIONS
def test_refuses_a_response_that_is_shorter_than_its_structure_and_passes_on_what_is_too_much(version: int) -> None:
    encoded = encode_response(sample(version, "broker-0.internal"))
    for size in range(len(encoded)):
        with pytest.raises(Malformed):
            run(version, encoded[:size])
        with pytest.raises(Malformed):
            run(version, encoded[:size], cuts=list(range(size)))
    for tail in (b"\x00", b"\xff", encoded):
        assert run(version, encoded + tail, to("b")) == run(version, encoded, to("b")) + tail


@pytest.mark.parametrize("cuts", [[], [30], list(range(60))])
def test_refuses_more_bytes_than_the_size_promised(cuts: list[int]) -> None:
    encoded = encode_response(sample(18, "broker-0.internal"))
    for missing in (1, 40):
        with pytest.raises(Malformed):
            run(18, encoded, cuts=cuts, size=len(encoded) - missing)
    with pytest.raises(Malformed):
        run(18, encoded + b"\x00", cuts=cuts, size=len(encoded))


def test_refuses_bytes_after_the_response() -> None:
    encoded = encode_response(sample(18, "broker-0.internal"))
    response_filter = FetchResponseFilter(18, len(encoded), identity)
    response_filter.feed(encoded, 0, len(encoded))
    assert response_filter.feed(b"", 0, 0) == []
    with pytest.raises(Malformed):
        response_filter.feed(b"x", 0, 1)


def test_what_is_held_is_bounded() -> None:
    encoded = encode_response(sample(18))[:-1]
    response_filter = FetchResponseFilter(18, len(encoded) + MAX_HELD + 1, identity)
    with pytest.raises(Malformed, match="tagged fields"):
        response_filter.feed(encoded, 0, len(encoded))


@VERSIONS
@settings(max_examples=200)
@given(data=st.data())
def test_survives_noise_and_keeps_its_length(version: int, data: st.DataObject) -> None:
    good = encode_response(sample(version, "broker-0.internal"))
    noise = data.draw(st.binary(max_size=200) | damaged(good))
    cuts = data.draw(st.lists(st.integers(0, len(noise)), max_size=4))
    try:
        whole = run(version, noise, to("proxy"))
    except Malformed:
        with pytest.raises(Malformed):
            run(version, noise, to("proxy"), cuts)
        return
    assert len(whole) == len(noise)
    assert run(version, noise, to("proxy"), cuts) == whole
