"""Produce requests of real clients (golden/produce_requests/README.md) through every codec on their way."""

from __future__ import annotations

import itertools

import pytest

from forebay_codecs.compression import NAMES
from forebay_codecs.frame import Frame, FrameSplitter, Head
from forebay_codecs.produce_request import encode, parse
from forebay_codecs.record_batch import BadBatch, ClientBatch, open_batch, read_header, split_by_key
from tests.codecs.golden.produce_requests.cases import CLIENTS, FOLDER, TOPIC, path, read, specs
from tests.codecs.hardening import refuses_cuts_ignores_tails
from tests.codecs.merging import encoded, merged
from tests.codecs.record_oracle import CODECS, NO_LIMIT, Record, decode_batch, decode_section
from tests.kit.spec import ProduceSpec

VERSIONS = {"java-1.1.1": 5, "java-2.8.2": 9, "java-4.3.1": 12, "confluent": 10, "aiokafka": 7, "kafka-python": 9}
ACKS = {"0": 0, "1": 1, "all": -1}
CASES = [(client, case) for client in CLIENTS for case in specs(client)]

each = pytest.mark.parametrize(("client", "case"), CASES, ids=["-".join(names) for names in CASES])


def sent(spec: ProduceSpec) -> list[Record]:
    """What the client was told to send."""
    records = []
    for seq in range(spec.count):
        timestamp = spec.timestamp(seq)
        assert timestamp is not None
        records.append(Record(spec.key(seq), spec.value(seq), spec.record_headers(seq), timestamp))
    return records


def records_field(frame: bytes) -> tuple[int, int]:
    ((_, ((_, start, end),)),) = parse(frame).topics
    return start, end


def opened(client: str, case: str) -> ClientBatch:
    frame = read(client, case)
    header = read_header(frame, *records_field(frame))
    assert header is not None
    return open_batch(frame, header, NO_LIMIT)


def test_there_is_a_request_of_each_case_and_no_other() -> None:
    assert sorted(FOLDER.glob("*.hex")) == sorted(path(*case) for case in CASES)


@each
def test_the_request_is_what_was_sent(client: str, case: str) -> None:
    spec = specs(client)[case]
    frame = read(client, case)
    request = parse(frame)
    assert request.version == VERSIONS[client]
    assert (request.acks, request.transactional_id) == (ACKS[spec.acks], None)
    assert request.client_id
    assert request.timeout_ms > 0
    start, end = records_field(frame)
    assert request.topics == [(TOPIC, [(0, start, end)])]


@each
def test_the_records_are_what_was_sent(client: str, case: str) -> None:
    spec = specs(client)[case]
    frame = read(client, case)
    header = read_header(frame, *records_field(frame))
    assert header is not None
    assert (header.producer_id >= 0) == spec.idempotence
    batch = open_batch(frame, header, NO_LIMIT)
    wanted = sent(spec)
    assert NAMES[batch.codec] == spec.compression
    assert decode_section(batch.section, batch.record_count, batch.base_timestamp) == wanted
    assert batch.null_keys == sum(record.key is None for record in wanted)
    assert (batch.base_timestamp, batch.max_timestamp) == (wanted[0].timestamp, wanted[-1].timestamp)
    assert batch.max_timestamp == header.max_timestamp


@each
def test_the_frame_comes_whole_or_byte_by_byte(client: str, case: str) -> None:
    frame = read(client, case)
    stream = len(frame).to_bytes(4, "big") + frame
    for size in (len(stream), 1):
        splitter = FrameSplitter(8, len(frame))
        found = []
        for at in range(0, len(stream), size):
            splitter.feed(stream[at : at + size])
            while (event := splitter.next_event()) is not None:
                if isinstance(event, Head):
                    splitter.collect()
                found.append(event)
        assert found == [Head(len(frame), frame[:8]), Frame(frame)]


@each
def test_the_frame_refuses_cuts_and_ignores_tails(client: str, case: str) -> None:
    refuses_cuts_ignores_tails(parse, read(client, case))


@each
def test_every_byte_of_the_batch_counts(client: str, case: str) -> None:
    """Behind the fields that a broker sets, each is covered by the checksum or the length."""
    frame = bytearray(read(client, case))
    start, end = records_field(bytes(frame))
    for at in itertools.chain(range(start + 8, start + 12), range(start + 16, end)):
        frame[at] ^= 0x40
        header = read_header(bytes(frame), start, end)
        if header is not None:
            with pytest.raises(BadBatch):
                open_batch(bytes(frame), header, NO_LIMIT)
        frame[at] ^= 0x40


@each
def test_encodes_the_request_as_the_client_did(client: str, case: str) -> None:
    frame = read(client, case)
    request = parse(frame)
    start, end = records_field(frame)
    records = memoryview(frame)[start:end]
    topics = [(TOPIC, [(0, len(records), [records])])]
    made = encode(request.version, request.correlation_id, request.client_id, request.acks, request.timeout_ms, topics)
    assert b"".join(made)[4:] == frame


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_different_clients_merge(codec: int) -> None:
    cases = [(client, case) for client, case in CASES if case == f"{NAMES[codec]}-mixed"]
    assert len(cases) >= 5
    found = decode_batch(encoded(merged([opened(*case) for case in cases], codec)))
    assert found.records == [record for client, case in cases for record in sent(specs(client)[case])]
    parts = [split_by_key(opened(*case)) for case in cases]
    for side, keyed in ((0, True), (1, False)):
        wanted = [record for record in found.records if (record.key is not None) == keyed]
        assert decode_batch(encoded(merged([pair[side] for pair in parts], codec))).records == wanted
