"""version_support.py: which versions Kafka 4 accepts. Integration tests compare the table with a broker."""

from __future__ import annotations

import pytest

from forebay_codecs.api_keys import API_VERSIONS, FETCH, METADATA, PRODUCE
from forebay_codecs.apis import APIS
from forebay_codecs.version_support import LOWEST, takes


@pytest.mark.parametrize(
    ("api_key", "version", "taken"),
    [(PRODUCE, 2, False), (PRODUCE, 3, True), (FETCH, 3, False), (FETCH, 4, True), (METADATA, 0, True)],
)
def test_versions_from_the_lowest_on_are_taken(api_key: int, version: int, *, taken: bool) -> None:
    assert takes(api_key, version) is taken


def test_nothing_is_said_against_versions_and_apis_that_are_newer() -> None:
    assert takes(API_VERSIONS, 32_767)
    assert takes(32_767, 0)


def test_an_api_without_an_entry_is_taken_in_every_version() -> None:
    assert all(lowest > 0 for lowest in LOWEST.values())
    assert all(takes(key, 0) is (key not in LOWEST) for key in APIS)
