"""init_producer_id.py against kio in every version."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from forebay_codecs.init_producer_id import (
    MAX_VERSION,
    ProducerIdResponse,
    encode_init_producer_id,
    parse_init_producer_id,
)
from tests.codecs.hardening import damaged, refuses_cuts_ignores_tails, survives
from tests.codecs.kio_oracle import CORRELATION_ID, decode_request, encode_response, message

VERSIONS = pytest.mark.parametrize("version", range(MAX_VERSION + 1))
NAME = "init_producer_id"


def response(version: int, **fields: Any) -> bytes:
    made = message(NAME, version, "InitProducerIdResponse")
    told = {"error_code": ErrorCode.none, "producer_id": 1 << 40, "producer_epoch": 7} | fields
    return encode_response(made(throttle_time=i32Timedelta.parse(timedelta(milliseconds=300)), **told))


@VERSIONS
def test_it_asks_for_a_new_id_without_a_transaction(version: int) -> None:
    frame = encode_init_producer_id(CORRELATION_ID, "forebay", version)
    _, asked = decode_request(message(NAME, version, "InitProducerIdRequest"), frame)
    assert asked.transactional_id is None
    if version >= 3:
        assert (asked.producer_id, asked.producer_epoch) == (-1, -1)


@VERSIONS
def test_the_answer_has_an_id_and_its_first_epoch(version: int) -> None:
    whole = response(version)
    assert parse_init_producer_id(whole, version) == ProducerIdResponse(0, 1 << 40, 7)


@VERSIONS
def test_the_answer_has_an_error(version: int) -> None:
    whole = response(version, error_code=ErrorCode.cluster_authorization_failed, producer_id=-1, producer_epoch=-1)
    assert parse_init_producer_id(whole, version) == ProducerIdResponse(31, -1, -1)


@VERSIONS
def test_an_answer_that_is_cut_short_is_refused(version: int) -> None:
    refuses_cuts_ignores_tails(lambda data: parse_init_producer_id(data, version), response(version))


@VERSIONS
@given(data=st.data())
def test_a_damaged_answer_is_read_or_refused(version: int, data: st.DataObject) -> None:
    survives(lambda noise: parse_init_producer_id(noise, version), data.draw(damaged(response(version))))
