"""The keys beside those that kio has of Kafka's schemas."""

from __future__ import annotations

from kio.schema.index import api_key_map

from forebay_codecs import api_keys

KEYS = {name: key for name, key in vars(api_keys).items() if name.isupper()}

OF_KAFKA_4_4 = {"STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE": 93, "UNREGISTER_CONTROLLER": 94}
"""Which kio does not know yet."""


def test_each_key_is_kafkas() -> None:
    theirs = {name.upper(): key for key, name in api_key_map.items()}
    assert {name: theirs[name] for name in KEYS if name not in OF_KAFKA_4_4} | OF_KAFKA_4_4 == KEYS
