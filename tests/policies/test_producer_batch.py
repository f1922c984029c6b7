"""One batch: sent as it came while alone, merged behind a backlog; memory in chained chunks; halves."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_codecs import compression
from forebay_codecs.record_batch import ClientBatch
from forebay_codecs.records import renumber, starts, take
from forebay_policies import producer_batch
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.producer_batch import Lane, ProducerBatch, RecordRun, run_overhead
from tests.policies.batches import (
    FakeOwner,
    batch_bytes,
    client_batch,
    encoded,
    read_sent,
    run_of,
    sent,
    sized,
    split_off,
    with_header,
)

KIB = 1024
CODECS = range(len(compression.NAMES))


def make(
    codec: int = compression.NONE,
    pool: BufferPool | None = None,
    ready_size: int = 16 * KIB,
    max_size: int = 256 * KIB,
) -> ProducerBatch:
    pool = pool or BufferPool(1024 * KIB, 4 * KIB, 16 * KIB)
    return ProducerBatch(7, Lane(1, codec, movable=True), 3, pool, ready_size, max_size, 5.0)


def add(batch: ProducerBatch, came: ClientBatch, owner: FakeOwner | None = None) -> RecordRun:
    assert batch.has_room(came)
    run = run_of(came, owner)
    batch.append(run, came)
    return run


# Alone: as it came


@pytest.mark.parametrize("codec", CODECS)
def test_alone_it_is_sent_byte_for_byte_as_it_came(codec: int) -> None:
    batch = make(codec)

    # Bytes that Forebay would not write itself: a leader epoch and a base offset of the client's.
    data = bytearray(batch_bytes([b"a" * 100, b"b" * 5000], codec, headers=[("h", b"1")]))
    data[0:8] = (77).to_bytes(8, "big")
    came = with_header(client_batch(b"a" * 100, b"b" * 5000, codec=codec, headers=[("h", b"1")]), bytes(data[:61]))
    add(batch, came)

    assert batch.flush_reason == "adopted"
    assert encoded(batch) == bytes(data)
    assert encoded(batch) == bytes(data), "and again, when it is retried"


@pytest.mark.parametrize("codec", CODECS)
def test_alone_it_takes_as_much_memory_as_it_came_with(codec: int) -> None:
    batch = make(codec)
    came = client_batch(b"a" * 9000, codec=codec)
    add(batch, came)

    assert batch.size == len(came.records)
    assert batch.section_size == len(came.section)


def test_whatever_its_size_a_first_batch_is_taken_and_one_at_the_cap_is_closed() -> None:
    large, full, small = make(), make(), make()
    for batch, size in ((large, 300 * KIB), (full, 256 * KIB), (small, 256 * KIB - 1)):
        batch.append(run_of(sized(size)), sized(size))

    assert (large.closed, full.closed, small.closed) == (True, True, False)
    assert large.flush_reason == "adopted"
    assert [batch.held for batch in (large, full, small)] == [300 * KIB, 256 * KIB, 256 * KIB]


@pytest.mark.parametrize("codec", CODECS)
def test_a_part_split_off_is_written_anew_and_compressed(codec: int) -> None:
    batch = make(codec)
    add(batch, split_off(client_batch(b"a" * 200, b"b" * 200, codec=codec)))

    assert batch.flush_reason != "adopted"
    found = sent(batch)
    assert (found.codec, found.values) == (codec, [b"a" * 200, b"b" * 200])


# Together: merged


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("first_split_off", [False, True])
def test_a_second_part_makes_one_batch_of_both_in_the_lanes_codec(codec: int, *, first_split_off: bool) -> None:
    batch = make(codec)
    first = client_batch(b"a", b"b" * 5000, codec=codec, timestamps=[1000, 990], key=b"k")
    second = client_batch(b"c" * 3000, b"d", codec=codec, timestamps=[400, 70_000], headers=[("h", b"1")])
    runs = [add(batch, split_off(first) if first_split_off else first), add(batch, second)]

    found = sent(batch)
    assert batch.flush_reason != "adopted"
    assert found.codec == codec
    assert found.values == [b"a", b"b" * 5000, b"c" * 3000, b"d"]
    assert [record.timestamp for record in found.records] == [1000, 990, 400, 70_000]
    assert [record.key for record in found.records] == [b"k", b"k", None, None]
    assert [record.headers for record in found.records] == [[], [], [("h", b"1")], [("h", b"1")]]
    assert (found.base_timestamp, found.max_timestamp) == (1000, 70_000)
    assert [run.first for run in runs] == [0, 2]
    assert batch.record_count == 4


def test_the_first_part_stands_unchanged_in_the_merged_batch() -> None:
    batch = make()
    first, second = client_batch(b"a", b"b"), client_batch(b"c")
    add(batch, first)
    add(batch, second)

    records = encoded(batch)[61:]
    assert records.startswith(first.section)
    assert records[len(first.section) :] != second.section, "the second is renumbered"


def test_the_greatest_timestamp_may_be_the_first_runs() -> None:
    batch = make()
    add(batch, client_batch(b"a", timestamps=[9000]))
    add(batch, client_batch(b"b", timestamps=[8000]))

    assert sent(batch).max_timestamp == 9000


client_batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.binary(max_size=120), st.integers(0, 1 << 40)), min_size=1, max_size=4),
        st.one_of(st.none(), st.binary(max_size=5)),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(client_batches, st.sampled_from(CODECS), st.integers(1, 200))
def test_what_is_sent_is_what_came_one_behind_the_other(
    contents: list[tuple[list[tuple[bytes, int]], bytes | None]], codec: int, chunk_size: int
) -> None:
    pool = BufferPool(1 << 20, chunk_size, 200)
    batch = make(codec, pool)
    first = 0
    for records, key in contents:
        came = client_batch(
            *[value for value, _ in records], codec=codec, timestamps=[time for _, time in records], key=key
        )
        assert add(batch, came).first == first
        first += len(records)

    expected = [(time, key, value) for records, key in contents for value, time in records]
    assert [(record.timestamp, record.key, record.value) for record in sent(batch).records] == expected
    assert batch.record_count == first
    assert sum(map(len, batch.buffers())) == batch.size
    assert batch.held == pool.used * chunk_size
    assert 0 <= pool.used - -(-batch.size // chunk_size) <= len(contents)
    if len(contents) > 1:
        assert batch.section_size == batch.size

    batch.release()
    assert pool.used == 0


# Memory: the numbers of KIP-782


def test_a_chain_of_4_kb_ready_at_16_kb_and_yet_growing_to_256_kb() -> None:
    batch = make()
    steps = []
    for _ in range(4):
        before = list(batch._chunks)
        add(batch, sized(3 * KIB + 500))
        assert all(old is new for old, new in zip(before, batch._chunks, strict=False)), "chained, not copied"
        steps.append((batch.held // (4 * KIB), batch.ready))
    assert steps == [(1, False), (2, False), (3, False), (4, False)]

    add(batch, sized(16 * KIB - batch.size - 1))
    assert not batch.ready
    add(batch, client_batch(b""))
    assert (batch.ready, batch.closed) == (True, False)

    oldest = list(batch._chunks)
    while batch.has_room(sized(3 * KIB)):
        add(batch, sized(3 * KIB))
    assert 252 * KIB < batch.size <= 256 * KIB
    assert batch.held <= 256 * KIB
    assert {len(chunk) for chunk in batch._chunks} == {4096}
    assert all(old is new for old, new in zip(oldest, batch._chunks, strict=False))


def test_the_cap_counts_what_the_records_take_after_renumbering() -> None:
    """Records of 7 bytes grow by a half when their offsets and timestamps are far from the batch's first."""
    batch = make(max_size=4 * KIB)
    add(batch, client_batch(b"", timestamps=[0]))
    while batch.has_room(came := client_batch(*[b""] * 10, timestamps=[1 << 30] * 10)):
        add(batch, came)

    growth = 10 * 8
    assert 4 * KIB - len(came.section) < batch.size <= 4 * KIB + growth


@pytest.mark.parametrize("codec", CODECS)
def test_the_cap_counts_uncompressed_bytes(codec: int) -> None:
    batch = make(codec, max_size=64 * KIB)
    add(batch, sized(60 * KIB, codec))

    assert batch.has_room(sized(4 * KIB, codec))
    assert not batch.has_room(sized(4 * KIB + 1, codec))


def test_all_its_memory_is_given_back_once() -> None:
    pool = BufferPool(1024 * KIB, 4 * KIB, 16 * KIB)
    batch = make(pool=pool)
    add(batch, sized(40 * KIB))
    assert pool.used == 10

    batch.release()
    batch.release()

    assert (pool.used, pool.free_chunks) == (0, 0), "they were none of the pool's"


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
def test_what_its_runs_take_beside_their_records_counts_in_whole_chunks(codec: int) -> None:
    """However small they are. What makes no whole chunk takes none: one request takes what its records take."""
    pool = BufferPool(1024 * KIB, 4 * KIB, 16 * KIB)
    batch = make(codec, pool)
    held = []
    for number in range(10):
        came = client_batch(b"x", codec=codec)
        batch.append(run_of(came, FakeOwner(client_id=f"{number % 2}"), overhead=2560), came)
        held.append(pool.used)
        assert batch.held == pool.used * pool.chunk_size
    assert held == [1 + number * 2560 // 4096 for number in range(1, 11)]
    assert batch.size < 200, "and no more is sent, nor sooner"

    pieces = [piece for _, piece in batch.by_client_id(lambda: 8)]
    pieces += [*pieces[0].halves((9, 10), 6.0), pieces[1].of(11, pieces[1].runs[:2])]
    assert [piece.held // pool.chunk_size for piece in pieces] == [4, 3, 2, 2, 2]
    assert sum([piece.held for piece in [batch, *pieces]]) == pool.used * pool.chunk_size
    for each in (batch, *pieces):
        each.release()
    assert pool.used == 0


def test_a_request_takes_as_much_however_many_partitions_it_is_for() -> None:
    assert [sum([run_overhead(partitions)] * partitions) for partitions in (1, 2, 64)] == [2560, 3072, 34_816]


def test_chunks_beyond_a_batch_are_not_kept_for_another() -> None:
    pool = BufferPool(1024 * KIB, 4 * KIB, 16 * KIB)
    batch = make(pool=pool)
    for _ in range(10):
        add(batch, sized(4 * KIB - 100))
    assert pool.used == 10

    batch.release()

    assert (pool.used, pool.free_chunks) == (0, 4)


def test_records_as_large_as_a_chunk_stay_in_what_they_came_in() -> None:
    pool = BufferPool(1024 * KIB, 4 * KIB, 16 * KIB)
    batch = make(pool=pool)
    came = client_batch(b"a" * 9000)
    add(batch, came)
    (buffer,) = batch.buffers()
    assert isinstance(buffer, memoryview)
    assert buffer.obj is came.data
    assert pool.used == 3

    for small in (b"b", b"c"):
        add(batch, client_batch(small))
    add(batch, client_batch(b"d" * 9000))
    assert batch.buffers()[0] is buffer
    assert pool.used == 3 + 1 + 2, "what is kept counts together"
    assert sent(batch).values == [b"a" * 9000, b"b", b"c", b"d" * 9000]


def test_but_not_in_a_frame_that_holds_much_else() -> None:
    section = client_batch(b"a" * 9000).section
    for beside, stays in ((len(section) // 8, True), (len(section) // 8 + 1, False)):
        frame = bytes(beside) + section
        came = ClientBatch(b"", frame, frame, 0, 1, 1, 0, 0, beside, len(frame))
        batch = make()
        add(batch, came)
        (buffer,) = batch.buffers()
        assert (isinstance(buffer, memoryview) and buffer.obj is frame) is stays
        assert bytes(buffer) == section


@pytest.mark.parametrize("codec", CODECS[1:])
def test_opening_up_gives_back_the_memory_of_the_compressed_bytes(codec: int) -> None:
    pool = BufferPool(1024 * KIB, 4 * KIB, 16 * KIB)
    batch = make(codec, pool)
    add(batch, client_batch(bytes(100_000), codec=codec))
    assert pool.used < 25

    add(batch, client_batch(b"b", codec=codec))

    assert pool.used == batch.held // (4 * KIB) == 26, "and the record of the second in one of its own"
    assert sent(batch).values == [bytes(100_000), b"b"]


def test_without_memory_for_it_decompressed_a_batch_is_not_opened_up() -> None:
    """A request of a few bytes for each partition would else unpack a full batch in each."""
    pool = BufferPool(64 * KIB, 4 * KIB, 16 * KIB)
    batch = make(compression.GZIP, pool)
    add(batch, client_batch(bytes(50_000), codec=compression.GZIP))
    other = [pool.take() for _ in range(4)]

    assert not batch.has_room(client_batch(b"b", codec=compression.GZIP))
    pool.give_back(other)
    assert batch.has_room(client_batch(b"b", codec=compression.GZIP))


def test_uncompressed_a_batch_needs_no_memory_to_be_joined() -> None:
    pool = BufferPool(64 * KIB, 4 * KIB, 16 * KIB)
    batch = make(pool=pool)
    add(batch, sized(50 * KIB))
    for _ in range(3):
        pool.take()

    assert batch.has_room(client_batch(b"b"))


# Room


def test_no_room_past_the_cap_nor_in_a_closed_batch() -> None:
    batch = make(max_size=8 * KIB)
    add(batch, sized(6 * KIB))

    assert batch.has_room(sized(2 * KIB))
    assert not batch.has_room(sized(2 * KIB + 1))
    batch.closed = True
    assert not batch.has_room(client_batch(b""))


def test_no_room_for_records_of_another_age_of_the_world() -> None:
    batch = make()
    add(batch, client_batch(b"a", timestamps=[0]))

    assert batch.has_room(client_batch(b"b", timestamps=[(1 << 48) - 1]))
    assert not batch.has_room(client_batch(b"b", timestamps=[1 << 48]))
    add(batch, client_batch(b"b", timestamps=[(1 << 48) - 1]))
    assert [record.timestamp for record in sent(batch).records] == [0, (1 << 48) - 1]


@pytest.mark.parametrize(("size", "ready"), [(16 * KIB - 1, False), (16 * KIB, True)])
def test_ready_at_batch_size_to_the_byte(size: int, *, ready: bool) -> None:
    batch = make()
    add(batch, sized(size))

    assert (batch.ready, batch.closed) == (ready, False)


def test_ready_when_due_closed_or_full() -> None:
    due, closed = make(), make()
    for batch in (due, closed):
        add(batch, client_batch(b"a"))
        assert not batch.ready
    due.due = True
    closed.closed = True

    assert due.ready
    assert closed.ready
    assert due.has_room(client_batch(b"b")), "due, and yet growing until it is drained"


@pytest.mark.parametrize(
    ("waits", "shortest"), [([30_000, 10_000], 10_000), ([100, 30_000, 3_000, 2_999], 3_000), ([100, 2_000], 2_000)]
)
def test_who_is_in_a_hurry_sets_no_time_for_others(waits: list[int], shortest: int) -> None:
    batch = make()
    for timeout_ms in waits:
        add(batch, client_batch(b"a"), FakeOwner(timeout_ms))
    assert batch.timeouts_ms == (shortest, max(waits))


def test_who_has_its_answer_sets_no_time_for_others() -> None:
    batch = make()
    owners = [FakeOwner(timeout_ms) for timeout_ms in (5_000, 10_000, 30_000)]
    for owner in owners:
        add(batch, client_batch(b"a"), owner)
    owners[0].done = owners[2].done = True
    assert batch.timeouts_ms == (10_000, 10_000)


def test_abandoned_when_nobody_waits_any_more() -> None:
    owners = [FakeOwner(), FakeOwner()]
    batch = make()
    for owner in owners:
        add(batch, client_batch(b"a"), owner)

    owners[0].done = True
    assert not batch.abandoned
    owners[1].done = True
    assert batch.abandoned


# Halves


@pytest.mark.parametrize("codec", CODECS)
def test_halves_hold_each_part_whole_and_in_order(codec: int) -> None:
    pool = BufferPool(1024 * KIB, 4 * KIB, 16 * KIB)
    batch = make(codec, pool)
    contents = [[b"a", b"b" * 5000], [b"c"], [b"d", b"e", b"f" * 3000]]
    times = [[9000, 50], [7000], [100, 8000, 3]]
    for values, stamps in zip(contents, times, strict=True):
        add(batch, client_batch(*values, codec=codec, timestamps=stamps))
    runs = list(batch.runs)
    whole = sent(batch)

    first, second = batch.halves((8, 9), 6.0)

    assert (first.number, second.number) == (8, 9)
    assert first.runs + second.runs == runs
    assert first.runs
    assert second.runs
    assert [record[1:] for half in (first, second) for record in sent(half).records] == [
        record[1:] for record in whole.records
    ]
    for half in (first, second):
        assert (half.lane, half.partition, half.closed, half.ready) == (batch.lane, 3, True, True)
        assert half.record_count == sum(run.record_count for run in half.runs)
        found = sent(half).values
        for run in half.runs:
            assert found[run.first : run.first + run.record_count] == contents[runs.index(run)]
    batch.release()
    assert sent(first).codec == codec, "the halves hold memory of their own"
    assert pool.used * pool.chunk_size == first.held + second.held


def test_halves_of_halves_end_at_single_runs() -> None:
    batch = make()
    for value in (b"a", b"b", b"c", b"d", b"e"):
        add(batch, client_batch(value))
    todo, singles = [batch], []
    while todo:
        piece = todo.pop(0)
        if len(piece.runs) == 1:
            singles.append(piece)
        else:
            todo = [*piece.halves((0, 0), 0.0), *todo]

    assert [sent(single).values for single in singles] == [[b"a"], [b"b"], [b"c"], [b"d"], [b"e"]]
    assert [single.runs[0].first for single in singles] == [0] * 5


# Pieces


@settings(max_examples=100, deadline=None)
@given(client_batches, st.sampled_from(CODECS), st.integers(1, 200), st.data())
def test_a_piece_holds_what_is_asked_for_in_order(
    contents: list[tuple[list[tuple[bytes, int]], bytes | None]], codec: int, chunk_size: int, data: st.DataObject
) -> None:
    def filled() -> ProducerBatch:
        batch = make(codec, BufferPool(1 << 20, chunk_size, 200))
        for (came, key), client_id in zip(contents, client_ids, strict=True):
            values, times = [value for value, _ in came], [time for _, time in came]
            owner = FakeOwner(client_id=client_id)
            add(batch, client_batch(*values, codec=codec, timestamps=times, key=key), owner)
        batch.tries, batch.refused_by = 2, (1,)
        return batch

    def holds(piece: ProducerBatch, client_id: str) -> None:
        theirs = [content for content, whose in zip(contents, client_ids, strict=True) if whose == client_id]
        expected = [(time, key, value) for came, key in theirs for value, time in came]
        found = sent(piece)
        assert [(record.timestamp, record.key, record.value) for record in found.records] == expected
        assert found.codec == codec
        assert [run.record_count for run in piece.runs] == [len(came) for came, _ in theirs]
        assert [run.first for run in piece.runs] == [
            sum(len(came) for came, _ in theirs[:place]) for place in range(len(theirs))
        ]
        assert (piece.record_count, piece.tries, piece.refused_by) == (len(expected), 2, (1,))

    client_ids = [data.draw(st.sampled_from("abc")) for _ in contents]
    numbers = count(100)

    pieces = filled().by_client_id(lambda: next(numbers))
    assert [client_id for client_id, _ in pieces] == list(dict.fromkeys(client_ids))
    for client_id, piece in pieces:
        assert client_id is not None
        holds(piece, client_id)
    for client_id in set(client_ids) if len(pieces) > 1 else ():
        batch = filled()
        holds(batch.of(99, [run for run in batch.runs if run.owner.client_id == client_id]), client_id)


def test_each_record_is_read_a_few_times_however_the_pieces_interleave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small records of many clients may be tens of thousands in a batch, cut while the loop stands still.

    (Calls among compiled modules cannot be counted.)
    """
    read = [0]

    class Counted:
        @staticmethod
        def starts(data: bytes, start: int, end: int, numbers: list[int]) -> list[int]:
            read[0] += end - start
            return starts(data, start, end, numbers)

        @staticmethod
        def take(data: bytes, start: int, end: int, *rest: int) -> tuple[bytes, int]:
            read[0] += end - start
            return take(data, start, end, *rest)

        @staticmethod
        def renumber(data: bytes, start: int, end: int, *rest: int) -> bytes:
            read[0] += end - start
            return renumber(data, start, end, *rest)

    batch = make()
    owners = [FakeOwner(client_id=f"{number}") for number in range(100)]
    for number in range(300):
        add(batch, client_batch(b"x"), owners[number % 100])
    monkeypatch.setattr(producer_batch, "records", Counted)
    numbers = count(100)

    pieces = batch.by_client_id(lambda: next(numbers))

    assert len(pieces) == 100
    assert read[0] <= 2 * batch.section_size
    rest = pieces[0][1].of(99, pieces[0][1].runs[::2])
    assert sent(rest).values == [b"x", b"x"]
    assert read[0] <= 2 * (batch.section_size + pieces[0][1].section_size)


def test_a_broker_reads_a_batch_that_fills_its_last_chunk_exactly() -> None:
    batch = make()
    for _ in range(4):
        add(batch, sized(2 * KIB))

    assert batch.held == 8 * KIB
    assert [len(buffer) for buffer in batch.buffers()] == [4096, 4096]
    assert len(read_sent([encoded(batch)]).records) == 4
