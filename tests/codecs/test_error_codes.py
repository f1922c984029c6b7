"""The numbers of Kafka's error codes, beside those that kafka-python has of them."""

from __future__ import annotations

import pytest
from kafka import errors  # type: ignore[import-untyped]

from forebay_codecs import error_codes

NUMBERS = {name: number for name, number in vars(error_codes).items() if isinstance(number, int)}
THEIR_NAMES = {
    "UNKNOWN_SERVER_ERROR": "UNKNOWN",
    "NONE": "NO_ERROR",
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "MESSAGE_TOO_LARGE": "MESSAGE_SIZE_TOO_LARGE",
    "INVALID_TOPIC_EXCEPTION": "INVALID_TOPIC",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_each_number_is_kafkas(name: str) -> None:
    assert errors.for_code(NUMBERS[name]).message == THEIR_NAMES.get(name, name)
