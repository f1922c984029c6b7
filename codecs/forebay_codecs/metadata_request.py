"""Metadata requests v0 to v13: clients' are read, the proxy's own written.

They begin at api_key (no size prefix). Raises Malformed. Bytes after the last field are ignored, as by brokers:
librdkafka up to 2.16 writes null as four bytes in flexible versions, where one is enough.
In v0 an empty list of topics asks for all of them; from v1 on null does, and an empty list asks for the brokers only.
v4+ allow_auto_topic_creation (implied before); v8+ authorized operations (the cluster's until v10); v9+ flexible;
v10+ topic ids, usable from v12 on, where the name may be null. Source: Kafka's MetadataRequest.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from forebay_codecs.api_keys import METADATA
from forebay_codecs.errors import Malformed
from forebay_codecs.header import begin_request, read_client_id
from forebay_codecs.metadata import FLEXIBLE_FROM, NO_TOPIC_ID, TOPIC_ID_FROM
from forebay_codecs.primitives import Reader

MAX_VERSION: Final = 13
ASK_BY_ID_FROM: Final = 12
LOWEST_WRITTEN: Final = 4
MAX_NAMES: Final = 5_000
"""Topics that a client may name: putting together what is known of 2,000 takes 3 ms. Who names more asks its broker."""


class MetadataRequest(NamedTuple):
    """A client's request: the topics in `names` and `ids`, without duplicates, or `all_topics`.

    `authorized_operations`: it asks for those of the cluster or of the topics.
    """

    version: int
    correlation_id: int
    client_id: str | None
    names: list[str]
    ids: list[bytes]
    all_topics: bool
    allow_auto_topic_creation: bool
    authorized_operations: bool


def parse_metadata_request(frame: bytes) -> MetadataRequest:
    """Read a request frame. Raises Malformed, also for versions above MAX_VERSION."""
    reader = Reader(frame)
    reader.i16()
    version = reader.i16()
    correlation_id = reader.i32()
    if not 0 <= version <= MAX_VERSION:
        raise Malformed(f"Metadata v{version} is not understood")
    flexible = version >= FLEXIBLE_FROM
    client_id = read_client_id(reader, flexible=flexible)
    count = reader.nullable_array(flexible)
    if count < 0 and version == 0:
        raise Malformed("null where the topics must stand")
    if count > MAX_NAMES:
        raise Malformed(f"{count} topics in one request")
    names: dict[str, None] = {}
    ids: dict[bytes, None] = {}
    for _ in range(max(0, count)):
        topic_id = reader.raw(16) if version >= TOPIC_ID_FROM else NO_TOPIC_ID
        name = reader.nullable_string(flexible) if version >= TOPIC_ID_FROM else reader.string(flexible)
        reader.skip_tags(flexible)
        if version >= ASK_BY_ID_FROM and topic_id != NO_TOPIC_ID:
            ids[topic_id] = None  # whatever its name: kafka-clients leaves it empty, not null
        elif name is not None:
            names[name] = None
        else:  # a broker that is asked for it fails, and tells of no topic at all
            raise Malformed("a topic without a name and an id")
    creates = reader.boolean() if version >= 4 else True
    authorized = reader.boolean() if 8 <= version <= 10 else False
    if version >= 8:
        authorized = reader.boolean() or authorized
    reader.skip_tags(flexible)
    all_topics = count == 0 if version == 0 else count < 0
    return MetadataRequest(version, correlation_id, client_id, list(names), list(ids), all_topics, creates, authorized)


def encode_metadata_request(
    correlation_id: int,
    client_id: str | None,
    version: int,
    topics: Sequence[str] | None,
    ids: Sequence[bytes] = (),
    *,
    allow_auto_topic_creation: bool = False,
) -> bytes:
    """A v4–v13 request of the proxy's own, header included.

    `topics` are names; None asks for all topics, neither names nor `ids` for the brokers only. ValueError for other
    versions, and for ids before v12.
    """
    if not LOWEST_WRITTEN <= version <= MAX_VERSION:
        raise ValueError(f"Metadata request v{version}: v4 to v13 are written")
    if ids and version < ASK_BY_ID_FROM:
        raise ValueError(f"Metadata request v{version}: topics are asked for by id from v12 on")
    flexible = version >= FLEXIBLE_FROM
    writer = begin_request(METADATA, version, correlation_id, client_id, flexible=flexible)
    writer.array(-1 if topics is None else len(topics) + len(ids), flexible)
    for name in topics or ():
        if version >= TOPIC_ID_FROM:
            writer.raw(NO_TOPIC_ID)
        writer.string(name, flexible)
        if flexible:
            writer.tags()
    for topic_id in ids:
        writer.raw(topic_id)
        writer.nullable_string(None, flexible)
        writer.tags()
    writer.boolean(allow_auto_topic_creation)
    if 8 <= version <= 10:
        writer.boolean(value=False)  # include_cluster_authorized_operations
    if version >= 8:
        writer.boolean(value=False)  # include_topic_authorized_operations
    if flexible:
        writer.tags()
    return writer.getvalue()
