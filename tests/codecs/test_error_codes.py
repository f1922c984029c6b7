"""The numbers of Kafka's error codes, beside those that kafka-python has of them, and Kio of newer ones."""

from __future__ import annotations

import pytest
from kafka import errors  # type: ignore[import-untyped]
from kio.schema.errors import ErrorCode

from forebay_codecs import error_codes

NUMBERS = {name: number for name, number in vars(error_codes).items() if isinstance(number, int)}
THEIR_NAMES = {
    "UNKNOWN_SERVER_ERROR": "UNKNOWN",
    "NONE": "NO_ERROR",
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "MESSAGE_TOO_LARGE": "MESSAGE_SIZE_TOO_LARGE",
    "INVALID_TOPIC_EXCEPTION": "INVALID_TOPIC",
}

NEWER = ("REBOOTSTRAP_REQUIRED",)


@pytest.mark.parametrize("name", NEWER)
def test_each_newer_number_is_kafkas(name: str) -> None:
    assert ErrorCode(NUMBERS[name]).name == name.lower()


@pytest.mark.parametrize("name", [name for name in NUMBERS if name not in NEWER])
def test_each_number_is_kafkas(name: str) -> None:
    assert errors.for_code(NUMBERS[name]).message == THEIR_NAMES.get(name, name)
