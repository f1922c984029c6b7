"""What stands in the journal after real traffic of a whole proxy before fake brokers."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import structlog

from forebay_codecs.api_keys import METADATA, PRODUCE
from forebay_codecs.error_codes import (
    CORRUPT_MESSAGE,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
)
from forebay_policies.eligibility import LONGEST_NAME
from forebay_policies.journal_rows import (
    LONGEST_CLIENT_ID,
    VERSION,
    BatchFate,
    BatchRow,
    ChoiceRow,
    GaugeRow,
    LedgerRow,
    MetadataRow,
    RackRow,
    Row,
)
from forebay_proxy.journal.files import JournalFiles
from forebay_proxy.journal.recorder import MAX_RACK_TOPICS, MOST_LATER, ROWS_A_TURN, ROWS_AT_ONCE, Journal
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.handler import SLICE
from tests.codecs.message_oracle import messages
from tests.codecs.record_oracle import Record
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.journal import closed_files, decoded, of, rows_in
from tests.kit.wire import batch, keyed, null_key, old_produce, produce, transactional
from tests.pipeline import rows as make
from tests.pipeline.rows import content_crcs, keys_of


async def ended(forebay: Running, folder: Path) -> list[Row]:
    """Everything, after an orderly end."""
    await forebay.app.drain()
    return rows_in(folder)


class _Lines:
    """A sink that keeps what it is given."""

    at_once = 1 << 20
    crowded = False
    dropped = 0
    files_before = None

    def __init__(self) -> None:
        self.lines = b""

    def open(self) -> None:
        pass

    def put(self, lines: bytes, rows: int) -> None:
        self.lines += lines

    async def close(self) -> None:
        pass


class TestRacks:
    @in_loop
    async def test_topics_beyond_the_bound_have_one_row_together(self) -> None:
        sink = _Lines()
        journal = Journal(0, MetricRegistry(), own_topic="journal")
        journal.start(sink)
        for number in range(MAX_RACK_TOPICS + 2):
            journal.crossed(f"t{number}", other=5, unknown=1)
        journal.crossed("t0", same=7)
        journal.crossed("journal", same=7)
        await journal.close()
        rows = {row.topic: row for row in of(RackRow, decoded(sink.lines))}
        assert len(rows) == MAX_RACK_TOPICS + 1
        assert (rows["t0"].same_bytes, rows["t0"].other_bytes, rows["t0"].unknown_bytes) == (7, 5, 1)
        assert (rows[""].same_bytes, rows[""].other_bytes, rows[""].unknown_bytes) == (0, 10, 2)

    @in_loop
    async def test_a_name_that_no_topic_has_is_not_told(self) -> None:
        sink = _Lines()
        journal = Journal(0, MetricRegistry())
        journal.start(sink)
        journal.crossed("t" * 250, other=5)
        journal.crossed("t" * 249, same=7)
        await journal.close()
        rows = of(RackRow, decoded(sink.lines))
        assert {row.topic: row.same_bytes + row.other_bytes for row in rows} == {"": 5, "t" * 249: 7}


class TestManyRows:
    """Those of a request of thousands of partitions."""

    def setup_method(self) -> None:
        self.made = 0
        self.done: list[int] = []
        """How many were dropped of each request, once it is done."""
        self.stats = MetricRegistry()

    def _begun(self, patience_s: float = 60.0) -> tuple[_Lines, Journal]:
        sink, journal = _Lines(), Journal(0, self.stats)
        journal.patience_s = patience_s
        journal.start(sink)
        return sink, journal

    def _rows(self, journal: Journal, count: int, first: int = 0) -> Iterator[Row]:
        for number in range(first, first + count):
            self.made += 1
            yield RackRow(0, 0, journal.process, "t", 0, 0, 0, VERSION, number)

    def _adds(self, journal: Journal, count: int, first: int = 0, size: int = 0) -> None:
        journal.write_many(self._rows(journal, count, first), count, size or 100 * count, self.done.append)

    @in_loop
    async def test_they_take_turns_with_what_else_there_is_to_do(self) -> None:
        sink, journal = self._begun()
        self._adds(journal, 10 * ROWS_A_TURN)
        await turns(3)
        assert 0 < self.made <= 3 * ROWS_A_TURN
        self._adds(journal, 2 * ROWS_A_TURN, first=-2 * ROWS_A_TURN)
        assert self.done == []
        await turns(20)
        assert self.made == 12 * ROWS_A_TURN
        assert self.done == [0, 0]
        await journal.close()
        found = [row.seq or 0 for row in of(RackRow, decoded(sink.lines))]
        assert sorted(found) == list(range(-2 * ROWS_A_TURN, 10 * ROWS_A_TURN))
        assert [number for number in found if number >= 0] == list(range(10 * ROWS_A_TURN))
        assert found[-1] > 0, "the smaller request was done first"

    @in_loop
    async def test_they_wait_where_the_sink_is_crowded(self) -> None:
        sink, journal = self._begun()
        sink.crowded = True
        self._adds(journal, 2 * ROWS_A_TURN)
        await turns(20)
        assert self.made == 0
        sink.crowded = False
        await until(lambda: self.made == 2 * ROWS_A_TURN)
        await journal.close()

    @in_loop
    async def test_what_waits_too_long_is_dropped_and_what_comes_after_is_not(self) -> None:
        sink, journal = self._begun(patience_s=0.05)
        self._adds(journal, 9 * ROWS_A_TURN)
        await turns(2)
        left = 9 * ROWS_A_TURN - self.made
        assert 0 < left < 9 * ROWS_A_TURN
        sink.crowded = True
        with structlog.testing.capture_logs() as lines:
            await until(lambda: self.done)
        assert self.done == [left]
        assert [(line["event"], line["rows"]) for line in lines] == [("journal rows dropped", left)]
        assert self.stats.take().counters["forebay_journal_rows_dropped_total", ()] == left
        self._adds(journal, 2 * ROWS_A_TURN)
        await until(lambda: self.done[1:] == [2 * ROWS_A_TURN])
        sink.crowded = False
        self._adds(journal, 2 * ROWS_A_TURN)
        await until(lambda: self.done[2:] == [0])
        await until(lambda: journal._crowded_since is None)
        journal.patience_s = 60.0
        sink.crowded = True
        self._adds(journal, 2 * ROWS_A_TURN)
        await turns(5)
        assert self.done[3:] == []
        sink.crowded = False
        await journal.close()

    @in_loop
    async def test_closed_a_journal_has_all(self) -> None:
        """Turn by turn, too, as far as there is room."""
        sink, journal = self._begun()
        sink.crowded = True
        self._adds(journal, 10 * ROWS_A_TURN)
        closing = asyncio.ensure_future(journal.close())
        await turns(5)
        assert not closing.done()
        sink.crowded = False
        await closing
        assert [row.seq for row in of(RackRow, decoded(sink.lines))] == list(range(10 * ROWS_A_TURN))

    @in_loop
    async def test_closed_for_good_it_tells_what_is_not_there(self) -> None:
        sink, journal = self._begun()
        sink.crowded = True
        self._adds(journal, 2 * ROWS_A_TURN)
        closing = asyncio.ensure_future(journal.close())
        await turns(5)
        closing.cancel()
        await asyncio.wait([closing])
        await turns(1)
        assert self.done == [2 * ROWS_A_TURN]
        assert self.stats.take().counters["forebay_journal_rows_dropped_total", ()] == 2 * ROWS_A_TURN

    @in_loop
    async def test_only_so_much_waits(self) -> None:
        """But for one request, however large."""
        _, journal = self._begun()
        self._adds(journal, 2 * ROWS_A_TURN, size=2 * MOST_LATER)
        self._adds(journal, 3 * ROWS_A_TURN)
        await until(lambda: len(self.done) == 2)
        assert self.done == [3 * ROWS_A_TURN, 0]
        assert self.made == 2 * ROWS_A_TURN
        self._adds(journal, 2 * ROWS_A_TURN, size=MOST_LATER - 1)
        self._adds(journal, 2 * ROWS_A_TURN, size=1)
        self._adds(journal, 2 * ROWS_A_TURN, size=1)
        await turns(1)
        assert self.done[2:] == [2 * ROWS_A_TURN]
        await journal.close()
        await turns(1)
        assert self.done[3:] == [0, 0]


class TestFaults:
    @in_loop
    async def test_a_row_that_cannot_be_written_costs_neither_the_others_nor_who_writes_it(self) -> None:
        sink, stats = _Lines(), MetricRegistry()
        journal = Journal(0, stats)
        journal.start(sink)
        for number in range(2 * ROWS_AT_ONCE):
            name = "half of a character: \ud800" if number == 3 else f"t{number}"
            journal.write(RackRow(0, 0, journal.process, name, 0, 0, 0, VERSION, number))
        await journal.close()
        assert [row.seq for row in of(RackRow, decoded(sink.lines))] == [0, 1, 2, *range(4, 2 * ROWS_AT_ONCE)]
        assert stats.take().counters["forebay_journal_rows_dropped_total", ()] == 1

    @in_loop
    async def test_where_rows_are_not_handed_over_any_more_the_log_says_so(self) -> None:
        def broken() -> GaugeRow:
            raise RuntimeError("a fault of ours")

        journal = Journal(0, MetricRegistry())
        with structlog.testing.capture_logs() as lines:
            journal.start(_Lines(), broken)
            await until(lambda: lines)
        assert [line["event"] for line in lines] == ["the journal has failed: most rows are not handed over any more"]


class TestBatches:
    @in_loop
    async def test_a_row_for_each_batch_says_what_became_of_it(self, tmp_path: Path) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path)) as forebay,
        ):
            client = await forebay.client(0)
            before = time.time_ns() // 1000
            client.send(produce(1, ("ponds", 0, batch(keyed("a", "b"))), acks=-1))
            await client.receives(1)
            (row,) = of(BatchRow, await ended(forebay, tmp_path))
        assert (row.topic, row.partition, row.leader, row.records) == ("ponds", 0, 0, 2)
        assert (row.reason, row.fate, row.error_code) == ("adopted", "acknowledged", NONE)
        assert (row.acks, row.runs, row.movable, row.tries) == (-1, 1, False, 0)
        assert (row.base_offset, row.worker, row.codec) == (0, 0, 0)
        assert row.bytes == row.load > 0
        assert before - 1000 <= row.time_us <= time.time_ns() // 1000
        assert 0 <= row.linger_us + row.upstream_us <= row.time_us - before + 1000

    @in_loop
    async def test_merged_batches_count_their_parts(self, tmp_path: Path) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path)) as forebay,
        ):
            client = await forebay.client(0)
            cluster[0].holds(PRODUCE)
            client.send(produce(0, ("ponds", 0, batch(keyed("first")))))
            away = await cluster[0].receives(PRODUCE)
            client.send(*[produce(n, ("ponds", 0, batch(keyed(f"{n}"))), client_id=f"c{n % 2}") for n in (1, 2, 3)])
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == 4)
            await asyncio.sleep(0.01)  # what it waits is what is looked at below
            cluster[0].releases(PRODUCE)
            away.answer()
            await client.receives(0, 1, 2, 3)
            rows = of(BatchRow, await ended(forebay, tmp_path))
        merged = rows[-1]
        assert (merged.runs, merged.records, merged.base_offset) == (3, 3, 1)
        assert merged.reason == "linger"
        assert merged.linger_us >= 10_000

    @pytest.mark.parametrize(
        ("code", "fates"),
        [
            (NOT_LEADER_OR_FOLLOWER, ["retried", "acknowledged"]),
            (CORRUPT_MESSAGE, ["refused"]),
        ],
    )
    @in_loop
    async def test_a_batch_that_is_not_taken_has_a_row_for_each_try(
        self, tmp_path: Path, code: int, fates: list[BatchFate]
    ) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path)) as forebay,
        ):
            client = await forebay.client(0)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            asked = await cluster[0].receives(PRODUCE)
            cluster[0].releases(PRODUCE)
            asked.answer(code)
            await client.receives(1)
            rows = of(BatchRow, await ended(forebay, tmp_path))
        assert [row.fate for row in rows] == fates
        assert [row.tries for row in rows] == list(range(len(fates)))
        assert (rows[0].error_code, rows[0].base_offset) == (code, -1)

    @in_loop
    async def test_a_lost_connection_is_an_unknown_fate(self, tmp_path: Path) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path)) as forebay,
        ):
            client = await forebay.client(0)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            (await cluster[0].receives(PRODUCE)).close()
            await client.receives(1)
            (row,) = of(BatchRow, await ended(forebay, tmp_path))
        assert (row.fate, row.error_code, row.base_offset) == ("unknown", REQUEST_TIMED_OUT, -1)

    @in_loop
    async def test_a_batch_that_is_refused_as_a_whole_is_told_as_split(self, tmp_path: Path) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path), linger_ms=60_000) as forebay,
        ):
            client = await forebay.client(0)
            cluster[0].holds(PRODUCE)
            client.send(*[produce(n, ("ponds", 0, batch(keyed("x" * 9000)))) for n in (1, 2)])
            asked = await cluster[0].receives(PRODUCE)
            cluster[0].releases(PRODUCE)
            asked.answer(MESSAGE_TOO_LARGE)
            await client.receives(1, 2)
            rows = of(BatchRow, await ended(forebay, tmp_path))
        assert [(row.fate, row.records) for row in rows] == [
            ("split", 2),
            ("acknowledged", 1),
            ("acknowledged", 1),
        ]
        assert rows[0].reason == "full"


class TestChoices:
    @in_loop
    async def test_a_row_for_each_turn_says_what_the_partitioner_saw(self, tmp_path: Path) -> None:
        async with (
            FakeCluster({"ponds": [0, 0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path), partitioner_sticky_batch_size=300) as forebay,
        ):
            client = await forebay.client(0)
            cluster[0].holds_produce(lambda asked: asked.partitions == [("ponds", 1)])
            client.send(produce(0, ("ponds", 1, batch(keyed("away")))))
            away = await cluster[0].receives(PRODUCE)
            client.send(*[produce(n, ("ponds", 0, batch(null_key("x" * 90)))) for n in range(1, 13)])
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == 13)
            cluster[0].releases(PRODUCE)
            away.answer()
            await client.receives(*range(13))
            switched = forebay.count("forebay_partitioner_choices_total", "adaptive", "switch")
            rows = of(ChoiceRow, await ended(forebay, tmp_path))
        assert len(rows) == switched >= 2
        assert {row.partition for row in rows} <= {0, 1}
        first = rows[0]
        assert (first.topic, first.partitions, first.available, first.loaded) == ("ponds", 2, 2, 1)
        ((partition, load),) = zip(first.loaded_partitions, first.loads, strict=True)
        assert partition == 1
        assert load > 0

    @pytest.mark.parametrize("partitioner", ["sticky", "round_robin", "uniform", "expected_wait"])
    @in_loop
    async def test_every_partitioner_tells_each_new_choice_once(self, tmp_path: Path, partitioner: str) -> None:
        async with (
            FakeCluster({"ponds": [0, 0, 0]}) as cluster,
            running(
                cluster.bootstrap,
                journal_dir=str(tmp_path),
                partitioner=partitioner,
                partitioner_sticky_batch_size=300,
            ) as forebay,
        ):
            client = await forebay.client(0)
            for number in range(20):
                client.send(produce(number, ("ponds", 0, batch(null_key("x" * 90)))))
                await client.receives(number)
            switched = forebay.count("forebay_partitioner_choices_total", partitioner, "switch")
            rows = of(ChoiceRow, await ended(forebay, tmp_path))
            stored = {index for index in range(3) if cluster.values("ponds", index)}
        # The KIP-480 partitioner also switches behind the last record, where nothing is placed any more.
        assert len(rows) in ((switched, switched - 1) if partitioner == "sticky" else (switched,))
        assert stored <= {row.partition for row in rows}


class TestTheRest:
    @in_loop
    async def test_metadata_requests_and_gauges(self, tmp_path: Path) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path)) as forebay,
        ):
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            await client.receives(1)
            asked = forebay.count("forebay_metadata_upstream_requests_total")
            sent = forebay.count("forebay_metadata_upstream_bytes_total", "request")
            received = forebay.count("forebay_metadata_upstream_bytes_total", "response")
            rows = await ended(forebay, tmp_path)
        metadata = of(MetadataRow, rows)
        assert len(metadata) == asked
        assert sum(row.request_bytes for row in metadata) == sent
        assert sum(row.response_bytes for row in metadata) == received
        assert [row.topics for row in metadata].count(1) == 1
        assert {row.error for row in metadata} == {""}
        gauges = of(GaugeRow, rows)
        assert gauges
        last = gauges[-1]
        assert last.pool_bytes == last.pool_available_bytes == 33_554_432
        assert last.rows_dropped_total == 0
        assert last.last

    @in_loop
    async def test_rows_are_numbered_and_the_last_one_tells_how_many_there_are(self, tmp_path: Path) -> None:
        cluster = FakeCluster({"ponds": [0, 0]})
        cluster.topic_ids["ponds"] = bytes(range(16))
        cluster.metadata_versions = (0, 12)
        async with (
            cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path), journal_ledger=True) as forebay,
        ):
            client = await forebay.client(0)
            client.send(*[produce(number, ("ponds", 0, batch(null_key("a")))) for number in range(3)])
            await client.receives(0, 1, 2)
            rows = await ended(forebay, tmp_path)
        kinds = (BatchRow, ChoiceRow, MetadataRow, LedgerRow, GaugeRow)
        for kind in kinds:
            numbers = [row.seq for row in rows if isinstance(row, kind)]
            assert numbers == list(range(1, len(numbers) + 1))
        last = rows[-1]
        assert isinstance(last, GaugeRow)
        assert [row.last for row in of(GaugeRow, rows)] == [False] * (len(of(GaugeRow, rows)) - 1) + [True]
        told = (last.batch_rows_total, last.choice_rows_total, last.metadata_rows_total, last.ledger_rows_total)
        assert told == tuple(sum(isinstance(row, kind) for row in rows) for kind in kinds[:4])
        assert last.cluster_id == "fake"
        assert {row.topic_id for row in of(LedgerRow, rows)} == {"AAECAwQFBgcICQoLDA0ODw"}

    @in_loop
    async def test_a_metadata_request_that_fails_says_why(self, tmp_path: Path) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path)) as forebay,
        ):
            cluster[0].holds(METADATA)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            (await cluster[0].receives(METADATA)).close()
            cluster[0].releases(METADATA)
            await client.receives(1)
            rows = of(MetadataRow, await ended(forebay, tmp_path))
        assert [row.error for row in rows if row.error] != []

    @in_loop
    async def test_gauges_come_once_a_second(self, tmp_path: Path) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path)) as forebay,
        ):
            client = await forebay.client(0)
            began, before = asyncio.get_running_loop().time(), forebay.count("forebay_journal_rows_total")
            await until(lambda: forebay.count("forebay_journal_rows_total") >= before + 2)
            seconds = asyncio.get_running_loop().time() - began
            assert client is not None
            gauges = of(GaugeRow, await ended(forebay, tmp_path))
        assert len([row for row in gauges if not row.last]) <= seconds + 2
        assert gauges[-2].client_connections == 1
        assert [row.files_before for row in gauges] == [[], *[None] * (len(gauges) - 1)]

    @in_loop
    async def test_without_a_journal_nothing_is_written(self, tmp_path: Path) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))))
            await client.receives(1)
            await forebay.app.drain()
        assert closed_files(tmp_path) == []


class TestLedger:
    async def _told(
        self, tmp_path: Path, *frames: bytes, leaders: Sequence[int] = (0, 0), **changed: Any
    ) -> tuple[list[LedgerRow], FakeCluster]:
        async with (
            FakeCluster({"ponds": list(leaders)}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path), journal_ledger=True, **changed) as forebay,
        ):
            client = await forebay.client(0)
            client.send(*frames)
            for _ in frames:
                await client.receive()
            return of(LedgerRow, await ended(forebay, tmp_path)), cluster

    @in_loop
    async def test_what_was_sent_where_it_went_and_what_was_told(self, tmp_path: Path) -> None:
        before = time.time_ns() // 1000
        (row,), _ = await self._told(tmp_path, produce(7, ("ponds", 1, batch(keyed("a", "b"))), acks=-1))
        assert (row.topic, row.partition, row.acks, row.version) == ("ponds", 1, -1, 7)
        assert (row.client_id, row.host, row.reason) == ("old-producer", "127.0.0.1", "keyed")
        assert (row.records, row.stamped, row.error_code, row.base_offset) == (2, 0, NONE, 0)
        assert before - 1000 <= row.received_us <= row.time_us
        (part,) = row.parts
        assert (part.partition, part.base_offset, part.records, part.movable) == (1, 0, 2, False)
        assert (part.crc, part.first_crc, part.first_xxh64) == content_crcs([(b"key", b"a"), (b"key", b"b")])

    @in_loop
    async def test_keys_are_told_where_they_are_asked_for(self, tmp_path: Path) -> None:
        mixed = batch([*keyed("k"), *null_key("n", "m")])
        (row,), _ = await self._told(tmp_path, produce(1, ("ponds", 1, mixed)), journal_ledger_keys=True)
        kept, moved = sorted(row.parts, key=lambda part: part.movable)
        assert {"keys": kept.keys, "tombstones": kept.tombstones} == keys_of([(b"key", b"k")])
        assert (moved.keys, moved.tombstones) == (None, None)

    @pytest.mark.parametrize("records", [null_key("n"), [*keyed("k"), *null_key("n")]], ids=["none", "one of two"])
    @in_loop
    async def test_where_a_record_that_stays_has_no_key_none_are_told(
        self, tmp_path: Path, records: list[Record]
    ) -> None:
        frame = produce(1, ("ponds", 0, batch(records)))
        (row,), _ = await self._told(tmp_path, frame, leaders=[0], journal_ledger_keys=True)
        (part,) = row.parts
        assert (part.movable, part.base_offset, part.records) == (False, 0, len(records))
        assert (part.keys, part.tombstones) == (None, None)

    @in_loop
    async def test_a_mixed_batch_has_two_parts_each_where_it_went(self, tmp_path: Path) -> None:
        mixed = batch([*keyed("k"), *null_key("n", "m")])
        (row,), cluster = await self._told(tmp_path, produce(1, ("ponds", 1, mixed)))
        assert (row.reason, row.records, row.base_offset) == ("mixed", 3, -1)
        kept, moved = sorted(row.parts, key=lambda part: part.movable)
        assert (kept.partition, kept.records, kept.crc) == (1, 1, content_crcs([(b"key", b"k")])[0])
        assert (moved.records, moved.crc) == (2, content_crcs([(None, b"n"), (None, b"m")])[0])
        for part, values in ((kept, ["k"]), (moved, ["n", "m"])):
            stored = cluster.values("ponds", part.partition)
            assert stored[part.base_offset : part.base_offset + part.records] == values

    @in_loop
    async def test_requests_are_numbered_in_the_order_of_arrival(self, tmp_path: Path) -> None:
        rows, _ = await self._told(
            tmp_path,
            produce(1, ("ponds", 0, batch(keyed("a"))), ("ponds", 1, batch(keyed("b")))),
            produce(2, ("ponds", 0, batch(keyed("c")))),
        )
        assert [(row.number, row.partition) for row in sorted(rows, key=lambda row: (row.number, row.partition))] == [
            (1, 0),
            (1, 1),
            (2, 0),
        ]
        assert len({(row.process, row.connection) for row in rows}) == 1

    @in_loop
    async def test_records_that_cannot_be_opened_have_no_part_but_their_answer(self, tmp_path: Path) -> None:
        (row,), _ = await self._told(tmp_path, produce(1, ("ponds", 0, batch(keyed("a"), crc=1))))
        assert (row.reason, row.error_code, row.parts) == ("corrupt", CORRUPT_MESSAGE, [])

    @in_loop
    async def test_what_goes_on_untouched_is_noted_without_its_fate(self, tmp_path: Path) -> None:
        (row,), _ = await self._told(tmp_path, transactional(produce(1, ("ponds", 0, batch(keyed("a", "b"))))))
        assert (row.reason, row.records, row.parts) == ("transactional", 2, [])
        assert row.error_code is None

    @in_loop
    async def test_an_untouched_batch_beside_touched_ones_is_told_with_its_answer(self, tmp_path: Path) -> None:
        idempotent = batch(keyed("a"), producer_id=5)
        rows, _ = await self._told(tmp_path, produce(1, ("ponds", 0, idempotent), ("ponds", 1, batch(keyed("b")))))
        untouched, touched = sorted(rows, key=lambda row: row.partition)
        assert (untouched.reason, untouched.error_code, untouched.base_offset) == ("idempotent", NONE, 0)
        assert (untouched.parts, untouched.records) == ([], 1)
        assert (touched.reason, len(touched.parts)) == ("keyed", 1)

    @in_loop
    async def test_records_that_were_given_a_timestamp_are_counted(self, tmp_path: Path) -> None:
        old = old_produce(1, ("ponds", 0, messages([Record(None, b"a"), Record(b"k", b"b")], magic=0)))
        (row,), _ = await self._told(tmp_path, old)
        assert (row.version, row.stamped, row.records) == (0, 2, 2)

    @in_loop
    async def test_a_request_that_is_appended_in_slices_has_all_its_rows(self, tmp_path: Path) -> None:
        kinds = [batch(keyed("k")), batch(null_key("n", "m")), batch([*keyed("k"), *null_key("n")])] * SLICE
        old = [messages([Record(None, b"a")] * count, magic=0) for count in (1, 2, 3)] * SLICE
        rows, _ = await self._told(
            tmp_path,
            produce(1, *[("ponds", 1, records) for records in kinds]),
            old_produce(2, *[("ponds", 0, records) for records in old]),
        )
        new, converted = ([row for row in rows if row.number == number] for number in (1, 2))
        assert [(row.reason, row.records, len(row.parts)) for row in new] == [
            ("keyed", 1, 1),
            ("null_key", 2, 1),
            ("mixed", 2, 2),
        ] * SLICE
        assert [(row.stamped, row.records, len(row.parts)) for row in converted] == [
            (1, 1, 1),
            (2, 2, 1),
            (3, 3, 1),
        ] * SLICE

    @pytest.mark.parametrize("as_it_came", [False, True])
    @in_loop
    async def test_whose_request_of_many_partitions_is_still_to_be_written_waits_and_nobody_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_it_came: bool
    ) -> None:
        crowded = True
        monkeypatch.setattr(JournalFiles, "crowded", property(lambda self: crowded))
        many = produce(1, *[("ponds", 0, batch(keyed("a")))] * 3 * ROWS_A_TURN)
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path), journal_ledger=True) as forebay,
        ):
            client, other = await forebay.client(0), await forebay.client(0)
            client.send(transactional(many) if as_it_came else many)
            await client.receive()
            client.send(produce(2, ("ponds", 0, batch(keyed("b")))))
            other.send(produce(3, ("ponds", 0, batch(keyed("c")))))
            await other.receives(3)
            await turns(20)
            assert forebay.app._journal is not None
            assert forebay.app._journal.ledger_rows == 1, "rows that wait are not made"
            assert forebay.count("forebay_produce_requests_total", "client") == 2
            crowded = False
            await client.receives(2)
            rows = of(LedgerRow, await ended(forebay, tmp_path))
        assert Counter(row.number for row in rows) == {1: 3 * ROWS_A_TURN, 2: 1, 3: 1}
        assert sorted(row.seq or 0 for row in rows) == list(range(1, len(rows) + 1))

    @in_loop
    async def test_whose_rows_are_dropped_at_once_sends_on_in_order(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(JournalFiles, "crowded", property(lambda self: True))
        many = produce(1, *[("ponds", 0, batch(keyed("a")))] * 2 * ROWS_A_TURN)
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path), journal_ledger=True) as forebay,
        ):
            assert forebay.app._journal is not None
            forebay.app._journal.most_later = 0
            other, client = await forebay.client(0), await forebay.client(0)
            cluster[0].holds(PRODUCE)
            other.send(transactional(many))
            await cluster[0].receives(PRODUCE)
            client.send(transactional(many) + transactional(produce(2, ("ponds", 0, batch(keyed("b"))))))
            asked = [await cluster[0].receives(PRODUCE) for _ in range(2)]
            asked_of = [sum(len(partitions) for _, partitions in each.produce.topics) for each in asked]
            assert asked_of == [2 * ROWS_A_TURN, 1]
            cluster[0].releases(PRODUCE)
            for each in asked:
                each.answer()
            await client.receives(1, 2)

    @in_loop
    async def test_rows_that_found_no_room_have_numbers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """By which an audit knows that they are missing."""
        crowded = True
        monkeypatch.setattr(JournalFiles, "crowded", property(lambda self: crowded))
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path), journal_ledger=True) as forebay,
        ):
            assert forebay.app._journal is not None
            forebay.app._journal.patience_s = 0.05
            client = await forebay.client(0)
            client.send(produce(1, *[("ponds", 0, batch(keyed("a")))] * 3 * ROWS_A_TURN))
            await client.receives(1)
            client.send(produce(2, ("ponds", 0, batch(keyed("b")))))
            await client.receives(2)
            (row,) = of(LedgerRow, await ended(forebay, tmp_path))
        assert (row.number, row.seq) == (2, 3 * ROWS_A_TURN + 1)

    @in_loop
    async def test_parts_that_were_not_acknowledged_have_no_offset(self, tmp_path: Path) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path), journal_ledger=True) as forebay,
        ):
            client = await forebay.client(0)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            (await cluster[0].receives(PRODUCE)).close()
            await client.receives(1)
            (row,) = of(LedgerRow, await ended(forebay, tmp_path))
        assert row.error_code == REQUEST_TIMED_OUT
        assert [part.base_offset for part in row.parts] == [-1]

    @in_loop
    async def test_records_that_a_failing_broker_sends_elsewhere_are_told_where_they_are(self, tmp_path: Path) -> None:
        async with (
            FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path), journal_ledger=True) as forebay,
        ):
            for node in (0, 1):
                cluster[node].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))))
            await until(lambda: cluster[0].requests(PRODUCE) or cluster[1].requests(PRODUCE))
            first = 0 if cluster[0].requests(PRODUCE) else 1
            asked = await cluster[first].receives(PRODUCE)
            for node in (0, 1):
                cluster[node].releases(PRODUCE)
            asked.answer(NOT_LEADER_OR_FOLLOWER)
            await client.receives(1)
            (row,) = of(LedgerRow, await ended(forebay, tmp_path))
        assert [(part.partition, part.base_offset) for part in row.parts] == [(1 - first, 0)]

    @in_loop
    async def test_names_that_are_too_long_are_cut(self, tmp_path: Path) -> None:
        unknown = produce(1, ("n" * 30_000, 0, b""), ("n" * 30_000, 1, b""), version=9, client_id="c" * 30_000)
        rows, _ = await self._told(tmp_path, unknown)
        assert [(row.partition, row.topic, row.client_id) for row in rows] == [
            (partition, "n" * LONGEST_NAME, "c" * LONGEST_CLIENT_ID) for partition in (0, 1)
        ]


class TestTopic:
    """`journal.topic`: the same rows as records."""

    @in_loop
    async def test_rows_are_records_of_the_topic_and_do_not_tell_of_it(self) -> None:
        async with (
            FakeCluster({"ponds": [0, 0], "journal": [0, 0]}) as cluster,
            running(cluster.bootstrap, journal_topic="journal", journal_ledger=True) as forebay,
        ):
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))))
            await client.receives(1)
            await forebay.app.drain()
            records = [record for index in (0, 1) for record in cluster.log.get(("journal", index), ())]
            dropped = forebay.count("forebay_journal_rows_dropped_total")
        rows = decoded(b"\n".join(record.value or b"" for record in records))
        assert dropped == 0
        assert [row.topic for row in of(BatchRow, rows)] == ["ponds"]
        assert [row.topic for row in of(ChoiceRow, rows)] == ["ponds"]
        assert [row.topic for row in of(LedgerRow, rows)] == ["ponds"]
        assert of(GaugeRow, rows)
        assert all(record.key is None for record in records)

    @in_loop
    async def test_a_topic_that_is_not_there_costs_rows_and_nothing_else(self) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_topic="journal") as forebay,
        ):
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))))
            await client.receives(1)
            await until(lambda: forebay.count("forebay_journal_rows_dropped_total") > 0)
            client.send(produce(2, ("ponds", 0, batch(null_key("b")))))
            await client.receives(2)

    @in_loop
    async def test_rows_that_brokers_refuse_are_counted(self) -> None:
        async with FakeCluster({"journal": [0]}) as cluster:
            cluster[0].holds(PRODUCE)
            async with running(cluster.bootstrap, journal_topic="journal") as forebay:
                refused = await cluster[0].receives(PRODUCE)
                refused.answer(error_code=TOPIC_AUTHORIZATION_FAILED)
                rows = len(refused.values)
                await until(lambda: forebay.count("forebay_journal_rows_dropped_total") == rows)
                assert forebay.count("forebay_errors_total", "upstream", "answered") == 0, "no client is concerned"
                cluster[0].releases(PRODUCE)

    @in_loop
    async def test_a_row_that_is_too_large_for_brokers_costs_no_other(self) -> None:
        async with (
            FakeCluster({"journal": [0]}) as cluster,
            running(cluster.bootstrap, journal_topic="journal") as forebay,
        ):
            large = 600_000
            cluster[0].holds_produce(lambda asked: len(asked.frame) > large)
            journal = forebay.app._journal
            assert journal is not None
            for seq in range(1, 6):
                journal.write(make.ledger_row([], client_id=secrets.token_hex(large) if seq == 3 else "c", seq=seq))
            while forebay.count("forebay_journal_rows_dropped_total") == 0:
                asked = await cluster[0].receives(PRODUCE)
                if len(asked.frame) > large:
                    asked.answer(MESSAGE_TOO_LARGE)
                    await until(lambda: forebay.count("forebay_journal_rows_dropped_total") > 0)
            assert forebay.count("forebay_journal_rows_dropped_total") == 1
            await forebay.app.drain()
            records = cluster.log["journal", 0]
        rows = decoded(b"\n".join(record.value or b"" for record in records))
        assert [row.seq for row in of(LedgerRow, rows)] == [1, 2, 4, 5]

    @in_loop
    @patch("forebay_proxy.produce.journal_topic.TIMEOUT_S", 2.0)
    async def test_rows_leave_in_time_however_long_batches_linger(self) -> None:
        lingers = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
        async with (
            FakeCluster({"journal": [0]}) as cluster,
            running(cluster.bootstrap, journal_topic="journal", **lingers) as forebay,
        ):
            await until(lambda: cluster.log.get(("journal", 0)))
            assert forebay.count("forebay_journal_rows_dropped_total") == 0

    @in_loop
    async def test_rows_do_not_wait_for_the_memory_of_clients(self) -> None:
        async with (
            FakeCluster({"ponds": [0], "journal": [1]}, nodes=2) as cluster,
            running(cluster.bootstrap, journal_topic="journal", buffer_memory=262_144) as forebay,
        ):
            cluster[1].holds(PRODUCE)
            client = await forebay.client(0)
            await until(lambda: cluster[1].requests(PRODUCE))
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("x" * 250_000)))))
            held = await cluster[0].receives(PRODUCE)
            await until(lambda: forebay.count("forebay_journal_rows_dropped_total") > 0)
            cluster[0].releases(PRODUCE)
            held.answer()
            await client.receives(1)
            cluster[1].releases(PRODUCE)

    @in_loop
    @patch("forebay_proxy.produce.journal_topic.CLOSE_S", 0.1)
    async def test_a_drain_waits_for_its_broker_no_longer_than_the_journal_does(self) -> None:
        async with (
            FakeCluster({"ponds": [0], "journal": [1]}, nodes=2) as cluster,
            running(cluster.bootstrap, journal_topic="journal", journal_ledger=True) as forebay,
        ):
            cluster[1].holds(PRODUCE)
            cluster[1].forget()
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            await client.receives(1)
            await cluster[1].receives(PRODUCE)
            cluster[0].holds(PRODUCE)
            client.send(produce(2, ("ponds", 0, batch(keyed("b")))))
            held = await cluster[0].receives(PRODUCE)
            draining = asyncio.create_task(forebay.app.drain())
            await until(lambda: forebay.app.ready() == "draining")
            await turns(20)
            assert not draining.done(), "a client waits"
            held.answer()
            await client.receives(2)
            await until(draining.done)
            cluster[1].releases(PRODUCE)


class Gathered:
    """A sink that keeps the sizes of what it is given."""

    at_once = 20_000
    crowded = False
    dropped = 0
    files_before = None

    def __init__(self) -> None:
        self.puts: list[tuple[int, int]] = []

    def open(self) -> None:
        pass

    def put(self, lines: bytes, rows: int) -> None:
        assert len(decoded(lines)) == rows
        self.puts.append((len(lines), rows))

    async def close(self) -> None:
        pass


@in_loop
async def test_a_sink_is_given_not_much_more_than_it_wants() -> None:
    sink = Gathered()
    journal = Journal(0, MetricRegistry())
    journal.start(sink)
    row = make.ledger_row([], client_id="c" * 32_767)
    for _ in range(300):
        journal.write(row)
    for _ in range(300):
        journal.write(make.batch_row())
    await asyncio.sleep(0)
    await journal.close()
    assert sum(rows for _, rows in sink.puts) == 600
    assert max(size for size, _ in sink.puts) < sink.at_once + 33 * 33_200
