"""Control messages that are wrong, against Kafka's schemas: what is read of those accepted, what clients are given.

Each response begins with a byte that says the version. Forebay does not look into every field: where the schema finds
fault with one that it passed over, there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from forebay_codecs import api_versions, produce_request, produce_response
from forebay_codecs.addresses import PRODUCE_NAMES_BROKERS_FROM, Translate
from forebay_codecs.api_keys import API_VERSIONS
from forebay_codecs.apis import APIS, Treatment
from forebay_codecs.errors import Malformed
from forebay_codecs.metadata import NO_TOPIC_ID, parse_metadata_response
from forebay_codecs.metadata_request import encode_metadata_request, parse_metadata_request
from forebay_codecs.primitives import Reader
from forebay_codecs.produce_request import ProduceRequest
from forebay_codecs.produce_response import PartitionResponse
from forebay_codecs.response_filter import ResponseFilter
from tests.codecs.kio_oracle import encode_request, example, message
from tests.codecs.translation import Listeners, nowhere
from tests.fuzz.corpus import VERSIONS, produce_requests, response_class, responses
from tests.fuzz.mutation import behind, mutated
from tests.fuzz.schema import Message, read
from tests.fuzz.target import Target
from tests.kit.wire import old_produce

_BY_NAME: Final = {api.name.lower(): api for api in APIS.values()}
_HOST: Final = "proxy.example"
_STREAMED: Final = ("fetch", "share_fetch", "share_acknowledge")
_NO_IDS: Final = (None, NO_TOPIC_ID)


# Addresses


def rewritten(name: str, version: int, data: bytes, translate: Translate) -> bytes:
    api = _BY_NAME[name.replace("_", "")]
    if api.response_treatment(version) is Treatment.STREAM:
        assert api.filter is not None
        return streamed(api.filter(version, len(data), translate), data, Random(len(data)))
    assert api.rewrite is not None
    return api.rewrite(data, version, translate)


def streamed(response_filter: ResponseFilter, data: bytes, rng: Random) -> bytes:
    """Through the filter in chunks of any size."""
    step = rng.choice((1, 3, 50, 1 << 20))
    out = []
    for start in range(0, len(data), step):
        out += response_filter.feed(data, start, min(start + step, len(data)))
    found = b"".join(out)
    if len(found) != len(data):
        raise Malformed("a response without an end")
    return found


def translated(name: str, response: Message) -> Message:
    """What a client should read."""
    if name == "find_coordinator":
        if "coordinators" in response:
            return response | {"coordinators": [_translated(found) for found in response["coordinators"]]}
        return _translated(response)
    field = "brokers" if name in ("metadata", "describe_cluster") else "node_endpoints"
    if response.get(field) is None:
        return response
    controllers = response.get("endpoint_type") == 2
    return response | {field: [] if controllers else [_translated(broker) for broker in response[field]]}


def _translated(broker: Message) -> Message:
    node_id = broker["broker_id"] if "broker_id" in broker else broker["node_id"]
    if node_id < 0 and ("key" in broker or "header" in broker):  # no coordinator
        return broker
    host, port = Listeners.address(node_id)
    return broker | {"host": host, "port": port}


def check_addresses(name: str, data: bytes) -> bool:
    version, response = _versioned(name, data)
    if name == "produce" and version < PRODUCE_NAMES_BROKERS_FROM:
        return False
    listeners = Listeners()
    try:
        out = rewritten(name, version, response, listeners)
    except Malformed:
        return False
    cls = response_class(name, version)
    original = read(cls, response)
    if original is not None:
        wanted, found = translated(name, original), read(cls, out)
        if name in _STREAMED:
            assert found is not None
            assert not any(any(value) for tag, value in found["tags"].items() if tag not in original["tags"])
            wanted["tags"] = found["tags"] = {tag: found["tags"].get(tag) for tag in original["tags"]}
            none: list[Message] | None = None if name == "fetch" else []
            assert found in (wanted, wanted | {"node_endpoints": none})  # none: there was no room for them
        else:
            assert found == wanted
    again = Listeners()
    if name not in _STREAMED:  # of a response that streams endpoints may have been left out
        assert rewritten(name, version, out, again) == out
        assert all(host == _HOST for _, host, _ in again.asked)
        assert len(again.asked) == len(listeners.asked)
    without = rewritten(name, version, response, nowhere)
    named = Listeners()
    rewritten(name, version, without, named)
    assert not named.asked
    return True


def _versioned(name: str, data: bytes) -> tuple[int, bytes]:
    versions = VERSIONS[name]
    version = data[0] if data else 0
    return version if version in versions else versions[version % len(versions)], data[1:]


# What is read


def check_metadata(data: bytes) -> bool:
    version, response = _versioned("metadata", data)
    try:
        found = parse_metadata_response(response, version)
    except Malformed:
        return False
    other = read(response_class("metadata", version), response)
    if other is None:
        return True
    brokers = {b["node_id"]: (b["host"], b["port"], b.get("rack")) for b in other["brokers"]}
    assert {node: tuple(broker) for node, broker in found.brokers.items()} == brokers
    assert found.controller_id == other.get("controller_id", -1)
    assert found.cluster_id == other.get("cluster_id")
    assert found.error_code == other.get("error_code", 0)
    assert [
        (t.error_code, t.name, t.topic_id, t.is_internal, [tuple(p) for p in t.partitions]) for t in found.topics
    ] == [
        (
            t["error_code"],
            t["name"],
            t.get("topic_id", NO_TOPIC_ID),
            t.get("is_internal", False),
            [
                (
                    p["error_code"],
                    p["partition_index"],
                    p["leader_id"],
                    p.get("leader_epoch", -1),
                    tuple(p["replica_nodes"]),
                    tuple(p["isr_nodes"]),
                    tuple(p.get("offline_replicas", ())),
                )
                for p in t["partitions"]
            ],
        )
        for t in other["topics"]
    ]
    return True


def check_api_versions(data: bytes) -> bool:
    version, response = _versioned("api_versions", data)
    try:
        found = api_versions.parse_api_versions(response, version)
        cut = api_versions.rewrite_api_versions(response, version)
    except Malformed:
        return False
    if response[4:6] != b"\0\0":  # what stands behind an error is not looked at
        return True
    cls = response_class("api_versions", version)
    other, kept = read(cls, response), read(cls, cut)
    if other is None or len(other["api_keys"]) > len(found):
        return True
    assert kept is not None
    assert found == {key["api_key"]: (key["min_version"], key["max_version"]) for key in other["api_keys"]}
    for key in kept["api_keys"]:
        lowest, highest = found[key["api_key"]]
        api = APIS[key["api_key"]]
        offered = api.lowest if api.answered_here else max(lowest, api.lowest)
        assert offered == key["min_version"] <= key["max_version"] <= highest
        assert api.highest is None or key["max_version"] <= api.highest
    assert kept | {"api_keys": []} == other | {"api_keys": []}
    return True


def _partition(other: Message) -> tuple[object, ...]:
    errors = [(e["batch_index"], e["batch_index_error_message"]) for e in other.get("record_errors", ())]
    return (
        *(other["index"], other["error_code"], other["base_offset"], other["log_append_time"]),
        *(other.get("log_start_offset", -1), errors, other.get("error_message")),
    )


def _without_leader(found: PartitionResponse) -> tuple[object, ...]:
    said = found.log_start_offset, found.record_errors, found.error_message
    return *_in_all_versions(found), found.log_append_time, *said


def _in_all_versions(found: PartitionResponse) -> tuple[int, int, int]:
    return found.partition, found.error_code, found.base_offset


def check_produce_response(data: bytes) -> bool:
    version, response = _versioned("produce", data)
    try:
        found = produce_response.parse(response, version)
    except Malformed:
        return False
    other = read(response_class("produce", version), response)
    if other is not None:
        assert found.throttle_time_ms == other["throttle_time"]
        assert [(name, [_without_leader(p) for p in partitions]) for name, partitions in found.topics] == [
            (topic["name"], [_partition(p) for p in topic["partition_responses"]]) for topic in other["responses"]
        ]
    for spoken in range(13):  # the client's version is another than the broker's
        frame = produce_response.encode(spoken, 7, found.topics, found.throttle_time_ms)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        told = produce_response.parse(frame[4:], spoken)
        assert told.throttle_time_ms == (found.throttle_time_ms if spoken else 0)
        assert [(name, [_in_all_versions(p) for p in parts]) for name, parts in told.topics] == [
            (name, [_in_all_versions(p) for p in parts]) for name, parts in found.topics
        ]
        if spoken >= 2:
            times = [[p.log_append_time for _, parts in each.topics for p in parts] for each in (told, found)]
            assert times[0] == times[1]
    return True


# What clients send


def _java(client_id: str | None) -> str | None:
    """A client id, which need not be UTF-8, as brokers read it."""
    return None if client_id is None else client_id.encode(errors="surrogateescape").decode(errors="replace")


def check_produce_request(data: bytes) -> bool:
    try:
        found = produce_request.parse(data)
    except Malformed:
        return False
    if found.version >= produce_request.RECORD_BATCHES_FROM:  # Kafka's schemas do not have the others any more
        other = read(message("produce", found.version, "ProduceRequest"), data, ends=False, as_brokers=True)
        assert other is not None, "a broker would take none of it"
        assert (found.acks, found.transactional_id) == (other["acks"], other["transactional_id"])
        assert (found.timeout_ms, _java(found.client_id)) == (other["timeout"], other["header"]["client_id"])
        assert _contents(found, data) == [
            (topic["name"], [(p["index"], p["records"] or b"") for p in topic["partition_data"]])
            for topic in other["topic_data"]
        ]
    for version in (
        max(3, found.version),
        3,
        8,
        9,
        12,
    ):  # untouched batches go on in the client's, others in the broker's
        view = memoryview(data)
        topics = [
            (name, [(index, end - start, [view[start:end]]) for index, start, end in partitions])
            for name, partitions in found.topics
        ]
        frame = b"".join(
            produce_request.encode(version, found.correlation_id, found.client_id, found.acks, found.timeout_ms, topics)
        )
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert _contents(produce_request.parse(frame[4:]), frame[4:]) == _contents(found, data)
    return True


def old_produce_requests() -> list[bytes]:
    return [
        old_produce(7, ("golden", 0, b"records"), ("ponds", 1, b""), acks=acks, version=version)[4:]
        for acks in (0, 1)
        for version in range(produce_request.RECORD_BATCHES_FROM)
    ]


def _contents(request: ProduceRequest, frame: bytes) -> list[tuple[str, list[tuple[int, bytes]]]]:
    return [
        (name, [(index, frame[start:end]) for index, start, end in partitions]) for name, partitions in request.topics
    ]


def metadata_requests() -> list[bytes]:
    return [encode_request(example(message("metadata", version, "MetadataRequest"))) for version in range(14)]


def check_metadata_request(data: bytes) -> bool:
    try:
        found = parse_metadata_request(data)
    except Malformed:
        return False
    other = read(message("metadata", found.version, "MetadataRequest"), data)
    if other is not None:
        topics = other["topics"]
        by_name = [topic for topic in topics or () if found.version < 12 or topic["topic_id"] in _NO_IDS]
        names = [topic["name"] for topic in by_name if topic["name"] is not None]
        assert found.names == list(dict.fromkeys(names))
        assert found.client_id == other["header"]["client_id"]
        assert found.all_topics == (not topics if found.version == 0 else topics is None)
        assert found.allow_auto_topic_creation == other.get("allow_auto_topic_creation", True)
    for version in (4, 8, 9, 12, 13):  # as brokers are asked
        ids = found.ids if version >= 12 else []
        names_or_all = None if found.all_topics else found.names
        again = parse_metadata_request(
            encode_metadata_request(
                1,
                found.client_id,
                version,
                names_or_all,
                ids if names_or_all else [],
                allow_auto_topic_creation=found.allow_auto_topic_creation,
            )
        )
        assert (again.names, again.all_topics) == (found.names, found.all_topics)
        assert again.allow_auto_topic_creation == found.allow_auto_topic_creation
    return True


# The types themselves

_READS: Final[tuple[Callable[[Reader], object], ...]] = (
    Reader.i8,
    Reader.i16,
    Reader.i32,
    Reader.i64,
    Reader.boolean,
    Reader.uvarint,
    Reader.tags,
    Reader.skip_tags,
    *[
        partial(method, flexible=flexible)
        for method in (Reader.string, Reader.nullable_string)
        for flexible in (False, True)
    ],
    *[
        partial(method, flexible=flexible)
        for method in (Reader.array, Reader.nullable_bytes)
        for flexible in (False, True)
    ],
)


def check_primitives(data: bytes) -> bool:
    """Values, or Malformed; never past the end, and never back."""
    reader = Reader(data, 0, len(data) - len(data) % 3)
    try:
        while reader.pos < reader.end:
            before = reader.pos
            _READS[reader.i8() % len(_READS)](reader)
            assert before < reader.pos <= reader.end
    except Malformed:
        return False
    return True


def targets() -> list[Target]:
    found = [
        Target(f"addresses-{name}", responses(name), partial(check_addresses, name), behind(1), 0.7)
        for name in VERSIONS
        if _BY_NAME[name.replace("_", "")].key != API_VERSIONS
    ]
    return [
        *found,
        Target("metadata", responses("metadata"), check_metadata, behind(1), 0.7),
        Target("api_versions", responses("api_versions"), check_api_versions, behind(1), 0.7),
        Target("produce_response", responses("produce"), check_produce_response, behind(1)),
        Target("metadata_request", metadata_requests(), check_metadata_request, behind(2), 0.7),
        Target(
            "produce_request", (*produce_requests(), *old_produce_requests()), check_produce_request, behind(2), 1.5
        ),
        Target("primitives", [bytes(range(17)) * 2], check_primitives, mutated, 0.3),
    ]
