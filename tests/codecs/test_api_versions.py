"""api_versions.py against kio in every version: ranges cut, the rest as it came."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from forebay_codecs.api_keys import (
    API_VERSIONS,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
    PRODUCE,
    SASL_HANDSHAKE,
    SHARE_FETCH,
)
from forebay_codecs.api_versions import (
    admin,
    parse_api_versions,
    request,
    rewrite_api_versions,
    software,
    unsupported_version_response,
    with_admin,
    without_throttle_time,
)
from forebay_codecs.apis import APIS
from tests.codecs.hardening import damaged, refuses_cuts, refuses_cuts_ignores_tails, refuses_cuts_keeps_tails, survives
from tests.codecs.kio_oracle import (
    CORRELATION_ID,
    decode_request,
    decode_response,
    encode_response,
    entities,
    example,
    message,
)

VERSIONS = pytest.mark.parametrize("version", range(5))

VOTE = 52
FROM_THE_FUTURE = 999
REFUSED = ErrorCode.cluster_authorization_failed


def response_class(version: int) -> Any:
    return message("api_versions", version, "ApiVersionsResponse")


def sample(version: int, ranges: dict[int, tuple[int, int]], error: ErrorCode = ErrorCode.none) -> Any:
    """A response offering `ranges`, with something in every other field."""
    api = message("api_versions", version, "ApiVersion")
    keys = tuple(api(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items())
    return replace(example(response_class(version)), api_keys=keys, error_code=error)


def ranges_of(response: Any) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


@VERSIONS
def test_cuts_ranges_and_hides_the_rest(version: int) -> None:
    brokers = {
        PRODUCE: (0, 13),
        METADATA: (0, 14),
        8: (2, 10),
        SASL_HANDSHAKE: (0, 1),
        API_VERSIONS: (0, 4),
        VOTE: (0, 2),
        SHARE_FETCH: (0, 0),
        FROM_THE_FUTURE: (0, 0),
    }
    rewritten = rewrite_api_versions(encode_response(sample(version, brokers)), version)
    offered = {
        PRODUCE: (0, 12),
        METADATA: (0, 13),
        8: (2, 10),
        SASL_HANDSHAKE: (0, 1),
        API_VERSIONS: (0, 4),
    }
    assert rewritten == encode_response(sample(version, offered))


@VERSIONS
def test_hides_what_it_is_told_to(version: int) -> None:
    brokers = {PRODUCE: (0, 12), DESCRIBE_TOPIC_PARTITIONS: (0, 0), METADATA: (0, 13)}
    rewritten = rewrite_api_versions(encode_response(sample(version, brokers)), version, {DESCRIBE_TOPIC_PARTITIONS})
    assert rewritten == encode_response(sample(version, {PRODUCE: (0, 12), METADATA: (0, 13)}))


@VERSIONS
def test_offers_no_more_than_it_is_told_to(version: int) -> None:
    brokers = {PRODUCE: (0, 12), METADATA: (0, 8)}
    rewritten = rewrite_api_versions(encode_response(sample(version, brokers)), version, (), {PRODUCE: 8, METADATA: 9})
    assert rewritten == encode_response(sample(version, {PRODUCE: (0, 8), METADATA: (0, 8)}))


@VERSIONS
@settings(max_examples=30)
@given(data=st.data())
def test_throttle_and_features_stay(version: int, data: st.DataObject) -> None:
    response = data.draw(entities(response_class(version)))
    rewritten = rewrite_api_versions(encode_response(response), version)
    if response.error_code != ErrorCode.none:
        assert rewritten == encode_response(response)
        return
    read = decode_response(response_class(version), rewritten)
    assert replace(read, api_keys=response.api_keys) == response
    assert all(APIS[key].supports(low) and APIS[key].supports(high) for key, (low, high) in ranges_of(read).items())


def test_keeps_unknown_tagged_fields() -> None:
    """Behind a range and at the end: tag 98, two bytes."""
    tags = b"\x01\x62\x02ab"
    response = bytes(6) + b"\x03" + b"\x00\x03\x00\x00\x00\x63" + tags + b"\x03\xe7\x00\x00\x00\x00" + tags
    response += bytes(4) + tags
    cut = bytes(6) + b"\x02" + b"\x00\x03\x00\x00\x00\x0d" + tags + bytes(4) + tags
    assert rewrite_api_versions(response, 4) == cut


@VERSIONS
def test_an_error_is_relayed_as_it_is(version: int) -> None:
    response = encode_response(sample(version, {VOTE: (0, 2)}, ErrorCode.invalid_request))
    assert rewrite_api_versions(response, version) == response


@VERSIONS
def test_what_follows_unsupported_version_is_not_read(version: int) -> None:
    """Kafka answers in v0, whatever was asked; others answer otherwise."""
    answer = encode_response(sample(0, {API_VERSIONS: (0, 2)}, ErrorCode.unsupported_version))
    for data in (answer, answer[:6], answer[:6] + b"anything"):
        assert rewrite_api_versions(data, version) == data
        assert parse_api_versions(data, version) == {}


@VERSIONS
@settings(max_examples=20)
@given(data=st.data())
def test_parses_what_kio_writes(version: int, data: st.DataObject) -> None:
    response = data.draw(
        entities(response_class(version)).filter(lambda r: r.error_code != ErrorCode.unsupported_version)
    )
    assert parse_api_versions(encode_response(response), version) == ranges_of(response)


@VERSIONS
def test_refuses_what_is_cut_and_overlooks_what_is_too_much(version: int) -> None:
    good = encode_response(sample(version, {PRODUCE: (0, 13), VOTE: (0, 2)}))
    refuses_cuts_keeps_tails(lambda data: rewrite_api_versions(data, version), good)
    refuses_cuts_ignores_tails(lambda data: parse_api_versions(data, version), good)


@VERSIONS
@settings(max_examples=50)
@given(data=st.data())
def test_survives_noise(version: int, data: st.DataObject) -> None:
    good = encode_response(sample(version, {PRODUCE: (0, 13), VOTE: (0, 2)}))
    noise = data.draw(st.binary(max_size=100) | damaged(good))
    survives(lambda noise: rewrite_api_versions(noise, version), noise)
    survives(lambda noise: parse_api_versions(noise, version), noise)


def test_unsupported_version_names_the_versions_there_are() -> None:
    read = decode_response(response_class(0), unsupported_version_response(CORRELATION_ID))
    assert read.error_code == ErrorCode.unsupported_version
    assert ranges_of(read) == {API_VERSIONS: (0, 4)}


@VERSIONS
def test_request_is_what_kio_reads(version: int) -> None:
    cls = message("api_versions", version, "ApiVersionsRequest")
    header, read = decode_request(cls, request(77, "forebay", version, "forebay", "0.1.0"))
    assert (header.request_api_key, header.request_api_version) == (API_VERSIONS, version)
    assert (header.correlation_id, header.client_id) == (77, "forebay")
    if version >= 3:
        assert (read.client_software_name, read.client_software_version) == ("forebay", "0.1.0")


@VERSIONS
def test_what_software_asks_is_read(version: int) -> None:
    frame = request(77, "some-client", version, "old-faithful", "0.1.0")
    assert software(frame, version) == (("old-faithful", "0.1.0") if version >= 3 else (None, None))
    if version >= 3:
        refuses_cuts(lambda data: software(data, version), frame[:-1])


@pytest.mark.parametrize("version", [3, 4])
@settings(max_examples=30)
@given(data=st.data())
def test_the_admin_endpoint_stands_where_others_skip_it(version: int, data: st.DataObject) -> None:
    plain = encode_response(replace(data.draw(entities(response_class(version))), error_code=ErrorCode.none))
    assert admin(plain) is None
    refused = encode_response(replace(decode_response(response_class(version), plain), error_code=REFUSED))
    assert with_admin(refused, "127.0.0.1:9644") == refused
    told = with_admin(plain, "127.0.0.1:9644")
    assert admin(told) == "127.0.0.1:9644"
    assert parse_api_versions(told, version) == parse_api_versions(plain, version)


@VERSIONS
@settings(max_examples=30)
@given(data=st.data())
def test_without_its_throttle_time_all_else_is_as_it_came(version: int, data: st.DataObject) -> None:
    told = replace(data.draw(entities(response_class(version))), error_code=ErrorCode.none)
    if version >= 1:
        told = replace(told, throttle_time=timedelta(milliseconds=800))
    expected = replace(told, throttle_time=timedelta(0)) if version >= 1 else told
    assert without_throttle_time(encode_response(told), version) == encode_response(expected)
    refused = encode_response(replace(told, error_code=REFUSED))
    assert without_throttle_time(refused, version) == refused
