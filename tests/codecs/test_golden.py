"""Responses of a real Kafka 4.3.1 (golden/capture.py says how they were taken) through every rewriter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forebay_codecs.addresses import Translate
from forebay_codecs.api_keys import API_VERSIONS, FETCH, PRODUCE
from forebay_codecs.api_versions import parse_api_versions, rewrite_api_versions
from forebay_codecs.apis import APIS, Treatment
from forebay_codecs.metadata import NO_TOPIC_ID, Partition, parse_metadata_response
from tests.codecs.hardening import refuses_cuts_keeps_tails
from tests.codecs.translation import Listeners, identity, nowhere

FOLDER = Path(__file__).parent / "golden"
NAMES = {api.name.lower(): api for api in APIS.values()}
FILES = sorted(path.stem for path in FOLDER.glob("*.hex"))
CONTENTS = [tuple(name.rsplit("-v", 1)) for name in FILES]
NAMING = [(api, int(version)) for api, version in CONTENTS if api != "api_versions"]

HOST = b"127.0.0.1"


def golden(api: str, version: int) -> bytes:
    return bytes.fromhex((FOLDER / f"{api}-v{version}.hex").read_text())


def rewriter(api: str, version: int) -> Callable[[bytes, Translate], bytes]:
    """As the table says that responses of this version are to be treated."""
    entry = NAMES[api.replace("_", "")]
    if entry.response_treatment(version) is Treatment.STREAM:
        of_api = entry.filter
        assert of_api is not None
        return lambda data, translate: b"".join(of_api(version, len(data), translate).feed(data, 0, len(data)))
    rewrite = entry.rewrite
    assert rewrite is not None
    return lambda data, translate: rewrite(data, version, translate)


def test_there_are_responses_of_every_api_that_names_brokers() -> None:
    naming = {key for key, api in APIS.items() if api.treatment is not Treatment.OPAQUE and key != API_VERSIONS}
    assert {NAMES[api.replace("_", "")].key for api, _ in NAMING} == naming


@pytest.mark.parametrize(("api", "version"), NAMING)
def test_no_address_of_a_broker_is_left(api: str, version: int) -> None:
    listeners = Listeners()
    rewritten = rewriter(api, version)(golden(api, version), listeners)
    assert HOST not in rewritten
    # An acknowledgement to the wrong broker is answered without naming the right one.
    assert bool(listeners.asked) == (HOST in golden(api, version)) == (api != "share_acknowledge")
    assert all(host.encode() == HOST and node in (0, 1) and port > 0 for node, host, port in listeners.asked)


@pytest.mark.parametrize(("api", "version"), NAMING)
def test_brokers_without_a_listener_are_not_named(api: str, version: int) -> None:
    assert HOST not in rewriter(api, version)(golden(api, version), nowhere)


@pytest.mark.parametrize(("api", "version"), NAMING)
def test_the_same_addresses_give_the_same_bytes(api: str, version: int) -> None:
    rewrite = rewriter(api, version)
    data = golden(api, version)
    assert rewrite(data, identity) == data
    refuses_cuts_keeps_tails(lambda data: rewrite(data, identity), data)


@pytest.mark.parametrize("version", range(14))
def test_parses_metadata(version: int) -> None:
    metadata = parse_metadata_response(golden("metadata", version), version)
    assert [(node, broker.host) for node, broker in metadata.brokers.items()] == [
        (0, HOST.decode()),
        (1, HOST.decode()),
    ]
    assert metadata.cluster_id == ("Zm9yZWJheS1raXQtMDAwMA" if version >= 2 else None)
    (topic,) = metadata.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "golden", False)
    assert (topic.topic_id != NO_TOPIC_ID) == (version >= 10)
    assert topic.partitions == (Partition(0, 0, 0, 0 if version >= 7 else -1, (0,), (0,)),)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_of_kafka_4_3(version: int) -> None:
    data = golden("api_versions", version)
    brokers = parse_api_versions(data, version)
    offered = parse_api_versions(rewrite_api_versions(data, version), version)
    assert brokers[PRODUCE] == (0, 13)
    cut = {PRODUCE: (0, 12)}
    assert offered == {key: offer for key, offer in brokers.items() if key in APIS} | cut
    assert offered[FETCH] == (4, 18)
    # Whatever follows the array is relayed.
    fixed = 6 + (1 if version >= 3 else 4)
    each = 7 if version >= 3 else 6
    rewritten = rewrite_api_versions(data, version)
    assert rewritten[fixed + each * len(offered) :] == data[fixed + each * len(brokers) :]
