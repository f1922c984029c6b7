"""The table of APIs against Kafka's schemas as kio has them, and against a rule of its own: no response leaks."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from forebay_codecs.api_keys import (
    API_VERSIONS,
    DESCRIBE_QUORUM,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    SASL_HANDSHAKE,
    SHARE_FETCH,
)
from forebay_codecs.apis import APIS, Treatment

HIDDEN = {
    "allocate_producer_ids",
    "alter_partition",
    "assign_replicas_to_dirs",
    "begin_quorum_epoch",
    "broker_heartbeat",
    "broker_registration",
    "controller_registration",
    "delete_share_group_state",
    "end_quorum_epoch",
    "envelope",
    "fetch_snapshot",
    "initialize_share_group_state",
    "read_share_group_state",
    "read_share_group_state_summary",
    "update_raft_voter",
    "vote",
    "write_share_group_state",
}
"""What brokers and controllers speak among themselves."""

OF_KAFKA_4_4 = {93: "StreamsGroupTopologyDescriptionUpdate", 94: "UnregisterController"}
"""Which kio does not know yet."""

NOT_A_BROKERS = {"streams_group_heartbeat", "streams_group_describe", "describe_quorum"}
"""Host and port there are an endpoint of the application's own, or a controller's, to which no client connects."""

KEYS = pytest.mark.parametrize("key", [key for key in api_key_map if key in APIS])


def versions(key: int) -> Iterator[int]:
    yield from schema_name_map[api_key_map[key]]


def structs(cls: Any) -> Iterator[Any]:
    """A message class and all that is nested in it."""
    yield cls
    for field in dataclasses.fields(cls):
        for hint in (field.type, *typing.get_args(field.type)):
            if dataclasses.is_dataclass(hint):
                yield from structs(hint)


def has_address(key: int, version: int) -> bool:
    for struct in structs(load_response_schema(key, version)):
        if {"host", "port"} <= {field.name for field in dataclasses.fields(struct)}:
            return True
    return False


def test_shows_every_api_that_is_not_of_the_brokers_own() -> None:
    shown = {key: name.replace("_", "") for key, name in api_key_map.items() if name not in HIDDEN}
    newer = {key: name.lower() for key, name in OF_KAFKA_4_4.items()}
    assert {key: api.name.lower() for key, api in APIS.items()} == shown | newer


def test_each_api_stands_under_its_key() -> None:
    assert all(api.key == key for key, api in APIS.items())


def test_apis_of_kafka_4_4_are_passed_through() -> None:
    for key, name in OF_KAFKA_4_4.items():
        api = APIS[key]
        assert (api.name, api.flexible(0), api.treatment) == (name, True, Treatment.OPAQUE)


@KEYS
def test_flexible_versions_are_kafkas(key: int) -> None:
    for version in versions(key):
        assert APIS[key].flexible(version) == load_response_schema(key, version).__flexible__


@KEYS
def test_what_names_a_broker_is_treated(key: int) -> None:
    api = APIS[key]
    for version in versions(key):
        if has_address(key, version) and api_key_map[key] not in NOT_A_BROKERS and api.supports(version):
            assert api.response_treatment(version) is not Treatment.OPAQUE
            assert api.rewrite is not None or api.response_treatment(version) is Treatment.STREAM
            assert api.highest is not None


@KEYS
def test_what_names_no_broker_is_left_alone(key: int) -> None:
    for version in versions(key):
        if not has_address(key, version):
            assert APIS[key].response_treatment(version) in (Treatment.OPAQUE, Treatment.LOCAL)


@pytest.mark.parametrize(
    ("key", "brokers", "offered"),
    [
        (PRODUCE, (0, 13), (0, 12)),
        (PRODUCE, (3, 13), (0, 12)),
        (PRODUCE, (0, 11), (0, 11)),
        (PRODUCE, (13, 13), None),
        (FETCH, (4, 18), (4, 18)),
        (FETCH, (0, 99), (0, 18)),
        (METADATA, (0, 99), (0, 13)),
        (FIND_COORDINATOR, (0, 7), (0, 6)),
        (SASL_HANDSHAKE, (0, 1), (0, 1)),
        (SASL_HANDSHAKE, (0, 2), (0, 1)),
        (API_VERSIONS, (0, 5), (0, 4)),
        (DESCRIBE_QUORUM, (0, 2), (0, 2)),
        (SHARE_FETCH, (0, 0), None),
        (8, (2, 99), (2, 99)),
    ],
)
def test_offers_what_both_sides_understand(key: int, brokers: tuple[int, int], offered: tuple[int, int] | None) -> None:
    assert APIS[key].offered(*brokers) == offered
    for version in range(100):
        assert APIS[key].supports(version) or not (offered and offered[0] <= version <= offered[1])


def test_fetch_is_filtered_from_v16_on() -> None:
    treatments = [APIS[FETCH].response_treatment(version) for version in (4, 15, 16, 18)]
    assert treatments == [Treatment.OPAQUE, Treatment.OPAQUE, Treatment.STREAM, Treatment.STREAM]
