"""Which way a request goes, told from its key and version alone."""

from __future__ import annotations

import pytest

from forebay_codecs.api_keys import (
    API_VERSIONS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from forebay_codecs.apis import APIS
from forebay_proxy.clients.request_router import Route, route, route_of_producer


@pytest.mark.parametrize(
    ("key", "version", "expected"),
    [
        (PRODUCE, 0, Route.PRODUCE),
        (PRODUCE, 2, Route.PRODUCE),
        (PRODUCE, 3, Route.PRODUCE),
        (PRODUCE, 12, Route.PRODUCE),
        (PRODUCE, 13, Route.REFUSED),
        (PRODUCE, -1, Route.REFUSED),
        (FETCH, 18, Route.OPAQUE),
        (FETCH, 19, Route.REFUSED),
        (METADATA, 13, Route.METADATA),
        (METADATA, 14, Route.REFUSED),
        (SASL_HANDSHAKE, 0, Route.OPAQUE),
        (SASL_HANDSHAKE, 1, Route.OPAQUE),
        (SASL_HANDSHAKE, 2, Route.REFUSED),
        (API_VERSIONS, 0, Route.API_VERSIONS),
        (API_VERSIONS, 32_767, Route.API_VERSIONS),
        (API_VERSIONS, -1, Route.API_VERSIONS),
        (4, 0, Route.REFUSED),  # LeaderAndIsr, between brokers
        (-1, 0, Route.REFUSED),
        (32_767, 0, Route.REFUSED),
    ],
)
def test_route(key: int, version: int, expected: Route) -> None:
    assert route(key, version) == (expected, APIS.get(key))


def test_what_names_no_broker_passes_in_any_version() -> None:
    for api in APIS.values():
        if api.highest is None:
            assert route(api.key, 32_767) == (Route.OPAQUE, api)


@pytest.mark.parametrize(
    ("key", "version", "expected"),
    [
        (PRODUCE, 12, Route.PRODUCE),
        (METADATA, 13, Route.METADATA),
        (API_VERSIONS, 0, Route.API_VERSIONS),
        (FETCH, 18, Route.CHECKED),
        (FETCH, 19, Route.REFUSED),
        (LIST_OFFSETS, 0, Route.CHECKED),
        (FIND_COORDINATOR, 6, Route.CHECKED),
        (INIT_PRODUCER_ID, 5, Route.CHECKED),
        (SASL_HANDSHAKE, 0, Route.REFUSED),
        (SASL_AUTHENTICATE, 0, Route.REFUSED),
        (19, 5, Route.OPAQUE),  # CreateTopics
        (4, 0, Route.REFUSED),
    ],
)
def test_route_where_only_producers_are_served(key: int, version: int, expected: Route) -> None:
    assert route_of_producer(key, version) == (expected, APIS.get(key))
