"""Parts of the proxy that a unit test puts around the one it is about: an accumulator with real memory, owners that
remember what they were told, metadata as a broker would have told it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forebay_codecs import error_codes
from forebay_codecs.metadata import NO_TOPIC_ID, Broker, Metadata, Partition, Topic
from forebay_codecs.record_batch import ClientBatch, open_batch, read_header
from forebay_policies.accumulator import Accumulator, PartitionQueue
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.producer_batch import Lane, ProducerBatch, RecordRun
from forebay_proxy.brokers.cluster import Cluster
from tests.codecs.record_oracle import Record, decode_batch
from tests.kit.wire import batch
from tests.policies import accumulator_kit

CHUNK = 4096
BATCH_SIZE = 16_384


class FakeOwner:
    """A client request that waits: (what, …) for each time it was told something."""

    def __init__(self, timeout_ms: int = 30_000) -> None:
        self.client = self
        self.client_id: str | None = "client"
        self.timeout_ms = timeout_ms
        self.done = False
        self.left = False
        self.told: list[tuple[object, ...]] = []

    def acknowledged(self, run: RecordRun, base_offset: int, log_append_time: int, log_start_offset: int) -> None:
        self.told.append(("acknowledged", base_offset + run.first, run.moved))

    def failed(
        self, run: RecordRun, error_code: int, message: str | None, record_errors: list[tuple[int, str | None]]
    ) -> None:
        self.told.append(("failed", error_code, record_errors))

    def throttle(self, throttle_time_ms: int) -> None:
        self.told.append(("throttle", throttle_time_ms))


def accumulator(memory: int = 1 << 20) -> Accumulator:
    pool = BufferPool(memory, CHUNK, BATCH_SIZE)
    return Accumulator(pool, BATCH_SIZE, BATCH_SIZE * 4)


def client_batch(records: list[Record], codec: int = 0) -> ClientBatch:
    data = batch(records, codec)
    header = read_header(data, 0, len(data))
    assert header is not None
    return open_batch(data, header, 1 << 20)


def append(
    to: Accumulator, queue: PartitionQueue, records: list[Record], movable: bool = False, whole: bool = True
) -> FakeOwner:
    owner = FakeOwner()
    run = RecordRun(owner, 0, len(records), moved=False, whole=whole)
    to.append(queue, Lane(1, 0, movable), run, client_batch(records), 0.0)
    return owner


def flush(queue: PartitionQueue, to: Accumulator) -> None:
    """Whatever lingers is due."""
    for waiting in queue.batches:
        waiting.due = True
    to.update_readiness(queue, 0.0)


def drain(to: Accumulator, queue: PartitionQueue) -> ProducerBatch:
    """The queue's next batch, on its way to its leader."""
    flush(queue, to)
    drained = dict(accumulator_kit.drain(to, queue.leader))
    return drained[queue]


def values(sent: ProducerBatch) -> list[str]:
    """What a broker would read."""
    _, buffers = sent.encode()
    return [(record.value or b"").decode() for record in decode_batch(b"".join(buffers)).records]


def metadata(
    topics: Mapping[str, Iterable[int]],
    nodes: Iterable[int] = (0, 1),
    errors: Mapping[str, int] | None = None,
    internal: Iterable[str] = (),
) -> Metadata:
    """`topics`: leaders by partition; a broker n is on n.example:9092."""
    brokers = {node: Broker(f"{node}.example", 9092, None) for node in nodes}
    found = []
    for name, leaders in topics.items():
        partitions = tuple(Partition(error_codes.NONE, index, leader, -1) for index, leader in enumerate(leaders))
        found.append(Topic((errors or {}).get(name, 0), name, NO_TOPIC_ID, name in internal, partitions))
    return Metadata(0, brokers, "fake", 0, tuple(found), error_codes.NONE)


def known(to: Accumulator, topics: Mapping[str, Iterable[int]], nodes: Iterable[int] = (0, 1)) -> Cluster:
    cluster = Cluster(to)
    cluster.apply(metadata(topics, nodes), set(topics), 0.0, 300.0)
    return cluster
