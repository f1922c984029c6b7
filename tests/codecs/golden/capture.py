"""Takes the golden responses from a real Kafka: `python -m tests.codecs.golden.capture`, after tests.kit.setup.

Each .hex file here holds one response of Kafka 4.3.1, from correlation_id on, as a cluster of two brokers gave it. The
requests were written by kio. Produce, Fetch and ShareFetch went to a broker that does not lead the partition, which
makes it name the one that does (KIP-951).
"""

from __future__ import annotations

import importlib
import io
import socket
import struct
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]
from kio.serial import entity_writer
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from tests.codecs.kio_oracle import CORRELATION_ID, decode_response, message
from tests.kit.kafka import KafkaCluster

FOLDER = Path(__file__).parent
VERSION = "4.3.1"
TOPIC = "golden"
SHARE_GROUP = "golden-sharers"


def ask(broker: socket.socket, request: Any) -> bytes:
    header = request.__header_schema__
    out = io.BytesIO()
    values = {"request_api_key": request.__api_key__, "request_api_version": request.__version__}
    entity_writer(header)(out, header(**values, correlation_id=i32(CORRELATION_ID), client_id="golden"))
    entity_writer(type(request))(out, request)
    broker.sendall(struct.pack(">i", len(out.getvalue())) + out.getvalue())
    return receive(broker, struct.unpack(">i", receive(broker, 4))[0])


def receive(broker: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = broker.recv(size - len(data))
        assert chunk, "the broker closed the connection"
        data += chunk
    return data


def save(name: str, version: int, response: bytes) -> None:
    lines = [response[at : at + 48].hex() for at in range(0, len(response), 48)]
    (FOLDER / f"{name}-v{version}.hex").write_text("\n".join(lines) + "\n")


def build(api: str, version: int, entity: str = "", /, **values: Any) -> Any:
    """A request of `api`, or the struct `entity` in it."""
    module = importlib.import_module(f"kio.schema.{api}.v{version}.request")
    return getattr(module, entity or "".join(part.title() for part in api.split("_")) + "Request")(**values)


def capture(leader: socket.socket, other: socket.socket) -> None:
    for version in range(5):
        names = {"client_software_name": "golden", "client_software_version": "1"} if version >= 3 else {}
        save("api_versions", version, ask(leader, build("api_versions", version, **names)))
    topic_id = capture_metadata(leader)
    capture_cluster(leader)
    capture_coordinators(leader)
    capture_produce(other)
    capture_fetch(other, topic_id)
    capture_share(other, topic_id)


def capture_metadata(broker: socket.socket) -> uuid.UUID:
    response = b""
    for version in range(14):
        topic = {"name": TOPIC} | ({"topic_id": None} if version >= 10 else {})
        options: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
        if version >= 8:
            options["include_topic_authorized_operations"] = False
        if 8 <= version <= 10:
            options["include_cluster_authorized_operations"] = True
        topics = (build("metadata", version, "MetadataRequestTopic", **topic),)
        response = ask(broker, build("metadata", version, topics=topics, **options))
        save("metadata", version, response)
    read = decode_response(message("metadata", 13, "MetadataResponse"), response)
    assert isinstance(read.topics[0].topic_id, uuid.UUID)
    return read.topics[0].topic_id


def capture_cluster(broker: socket.socket) -> None:
    for version in range(3):
        options: dict[str, Any] = {"include_cluster_authorized_operations": True}
        if version >= 1:
            options["endpoint_type"] = i8(1)
        if version >= 2:
            options["include_fenced_brokers"] = True
        save("describe_cluster", version, ask(broker, build("describe_cluster", version, **options)))


def capture_coordinators(broker: socket.socket) -> None:
    for version in range(7):
        if version < 4:
            options: dict[str, Any] = {"key": "a-group"} | ({"key_type": i8(0)} if version >= 1 else {})
        else:
            options = {"key_type": i8(0), "coordinator_keys": ("a-group", "another", "")}
        cls = message("find_coordinator", version, "FindCoordinatorResponse")
        deadline = time.monotonic() + 30
        while True:  # the first question makes the broker create the offsets topic
            response = ask(broker, build("find_coordinator", version, **options))
            read = decode_response(cls, response)
            nodes = [c.node_id for c in read.coordinators[:2]] if version >= 4 else [read.node_id]
            if min(nodes) >= 0:
                break
            assert time.monotonic() < deadline, read
        save("find_coordinator", version, response)


def capture_produce(broker: socket.socket) -> None:
    builder = DefaultRecordBatchBuilder(
        2, 0, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=16384
    )
    builder.append(0, 1_700_000_000_000, None, b"value", [])
    records = bytes(builder.build())
    for version in (10, 11, 12):
        partition = build("produce", version, "PartitionProduceData", index=i32(0), records=records)
        topic = build("produce", version, "TopicProduceData", name=TOPIC, partition_data=(partition,))
        request = build(
            "produce",
            version,
            transactional_id=None,
            acks=i16(1),
            timeout=i32Timedelta.parse(timedelta(seconds=5)),
            topic_data=(topic,),
        )
        save("produce", version, ask(broker, request))


def capture_fetch(broker: socket.socket, topic_id: uuid.UUID) -> None:
    for version in (16, 17, 18):
        partition = build(
            "fetch",
            version,
            "FetchPartition",
            partition=i32(0),
            fetch_offset=i64(0),
            log_start_offset=i64(-1),
            partition_max_bytes=i32(1 << 20),
        )
        topic = build("fetch", version, "FetchTopic", topic_id=topic_id, partitions=(partition,))
        request = build(
            "fetch",
            version,
            max_wait=i32Timedelta.parse(timedelta(0)),
            min_bytes=i32(0),
            topics=(topic,),
            forgotten_topics_data=(),
        )
        save("fetch", version, ask(broker, request))


def capture_share(broker: socket.socket, topic_id: uuid.UUID) -> None:
    """An acknowledgement needs a session, which the first fetch on the same connection opens."""
    for version in (1, 2):
        session = {"group_id": SHARE_GROUP, "member_id": f"member-{version}"}
        partition = {"partition_index": i32(0), "acknowledgement_batches": ()}
        fetched = build("share_fetch", version, "FetchPartition", **partition)
        fetch = build(
            "share_fetch",
            version,
            **session,
            share_session_epoch=i32(0),
            max_wait=i32Timedelta.parse(timedelta(0)),
            min_bytes=i32(0),
            max_records=i32(10),
            batch_size=i32(10),
            topics=(build("share_fetch", version, "FetchTopic", topic_id=topic_id, partitions=(fetched,)),),
            forgotten_topics_data=(),
        )
        save("share_fetch", version, ask(broker, fetch))
        accepted = build(
            "share_acknowledge",
            version,
            "AcknowledgementBatch",
            first_offset=i64(0),
            last_offset=i64(0),
            acknowledge_types=(i8(1),),
        )
        partition["acknowledgement_batches"] = (accepted,)
        acknowledged = build("share_acknowledge", version, "AcknowledgePartition", **partition)
        topic = build("share_acknowledge", version, "AcknowledgeTopic", topic_id=topic_id, partitions=(acknowledged,))
        acknowledge = build("share_acknowledge", version, **session, share_session_epoch=i32(1), topics=(topic,))
        save("share_acknowledge", version, ask(broker, acknowledge))


def main() -> None:
    with KafkaCluster(VERSION, brokers=2) as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        leader, other = (socket.create_connection(("127.0.0.1", port), 30) for port in cluster.ports.values())
        with leader, other:
            capture(leader, other)


if __name__ == "__main__":
    main()
