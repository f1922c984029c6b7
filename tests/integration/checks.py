"""What must hold of records that a client sent, whatever the way: each function asserts one of it.

`found` is what the topic holds, read from the brokers themselves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.integration.route import Route
from tests.kit.clients import Client
from tests.kit.spec import Ack, ConsumedRecord, ProduceResult, ProduceSpec


def produce_and_check(route: Route, client: Client, spec: ProduceSpec) -> list[ConsumedRecord]:
    """Produces over the route, then everything below; returns what was found."""
    since = route.log.ends(spec.topic)
    result = client.produce(route.bootstrap, spec)
    found = route.log.read(spec.topic, since, at_least=spec.count)
    check_all(spec, client, result, found)
    return found


def check_all(spec: ProduceSpec, client: Client, result: ProduceResult, found: Sequence[ConsumedRecord]) -> None:
    every_record_acknowledged(spec, result)
    each_exactly_once(spec, found)
    content_unchanged(spec, found)
    kept_where_the_client_put_them(spec, client, result, found)
    kept_in_order(spec, found)


def every_record_acknowledged(spec: ProduceSpec, result: ProduceResult) -> None:
    assert not result.failures
    assert sorted(ack.seq for ack in result.acks) == list(range(spec.count))


def each_exactly_once(spec: ProduceSpec, found: Sequence[ConsumedRecord]) -> None:
    times = Counter(seq_of(spec, record) for record in found)
    missing = [seq for seq in range(spec.count) if not times[seq]]
    repeated = [seq for seq, count in times.items() if count > 1]
    assert (missing, repeated, len(times)) == ([], [], spec.count)


def content_unchanged(spec: ProduceSpec, found: Sequence[ConsumedRecord]) -> None:
    for record in found:
        seq = seq_of(spec, record)
        assert (record.key, record.value) == (spec.key(seq), spec.value(seq))
        assert record.headers == spec.record_headers(seq)
        if spec.timestamp_base is not None:
            assert record.timestamp == spec.timestamp(seq)


def kept_where_the_client_put_them(
    spec: ProduceSpec, client: Client, result: ProduceResult, found: Sequence[ConsumedRecord]
) -> None:
    """A record with a key is in the client's partition, and at the offset that the client was told, if any.

    Of a batch of which a record moved no offset is told, so only what is kept as a whole must have one. Where
    clients chose no partition by name or told none (kcat), at least no key is in two partitions.
    """
    kept_whole = spec.kept or spec.keys == "keyed"
    acks = {ack.seq: ack for ack in result.acks}
    partitions_of_key: dict[bytes, set[int]] = defaultdict(set)
    for record in found:
        seq = seq_of(spec, record)
        if not (kept_whole or spec.is_keyed(seq)):
            continue
        ack = acks[seq]
        if spec.partition is not None:
            assert record.partition == spec.partition
        if ack.partition >= 0:
            assert record.partition == ack.partition
        if record.key is not None:
            partitions_of_key[record.key].add(record.partition)
        if kept_whole and spec.acks != "0" and client.name != "kcat":
            assert (record.partition, record.offset) == (ack.partition, ack.offset)
            _timestamp_as_told(client, ack, record)
    assert all(len(partitions) == 1 for partitions in partitions_of_key.values())


def _timestamp_as_told(client: Client, ack: Ack, record: ConsumedRecord) -> None:
    # aiokafka tells each record of a batch the same timestamp.
    if client.name != "aiokafka" and ack.timestamp >= 0:
        assert record.timestamp == ack.timestamp


def kept_in_order(spec: ProduceSpec, found: Sequence[ConsumedRecord]) -> None:
    """Within a partition, what was kept stands in the order in which the client sent it."""
    by_partition: dict[int, list[int]] = defaultdict(list)
    for record in sorted(found, key=lambda record: record.offset):
        seq = seq_of(spec, record)
        if spec.kept or spec.is_keyed(seq):
            by_partition[record.partition].append(seq)
    for seqs in by_partition.values():
        assert seqs == sorted(seqs)


def seq_of(spec: ProduceSpec, record: ConsumedRecord) -> int:
    assert record.value is not None
    name, _, seq = record.value.decode().rstrip(".").rpartition("-")
    assert name == spec.name, f"a record of {name!r} among those of {spec.name!r}"
    return int(seq)


def of_spec(spec: ProduceSpec, found: Sequence[ConsumedRecord]) -> list[ConsumedRecord]:
    """Those records, of several producers', that this spec's producer sent."""
    prefix = f"{spec.name}-".encode()
    return [record for record in found if record.value is not None and record.value.startswith(prefix)]
