"""Each batch that a client sends counts once, where its leader is."""

from __future__ import annotations

from pathlib import Path

from forebay_policies.journal_rows import GaugeRow, RackRow
from tests.codecs.message_oracle import messages
from tests.kit.app import running
from tests.kit.event_loop import in_loop
from tests.kit.fake_broker import FakeCluster
from tests.kit.journal import of, rows_in
from tests.kit.wire import batch, keyed, null_key, old_produce, produce

KINDS = ("same", "other", "unknown")


@in_loop
async def test_the_journal_tells_what_crossed_by_topic(tmp_path: Path) -> None:
    async with FakeCluster({"ponds": [0, 1, 2], "raw": [0, 1, 2]}, nodes=3) as cluster:
        cluster.racks = {0: "a", 1: "b"}
        async with running(
            cluster.bootstrap, client_rack="a", topics_exclude=("raw",), journal_dir=str(tmp_path)
        ) as forebay:
            client = await forebay.client(0)
            keyed_batch, raw = batch(keyed("x" * 100)), batch(null_key("y" * 300))
            requests = [("ponds", number, keyed_batch) for number in (0, 1, 1, 2)]
            for number, request in enumerate([*requests, ("raw", 0, raw)]):
                client.send(produce(number, request))
                await client.receives(number)
            await forebay.app.drain()
    rows = rows_in(tmp_path)
    told = {row.topic: row for row in of(RackRow, rows)}
    ponds, size = told["ponds"], len(keyed_batch)
    assert (ponds.same_bytes, ponds.other_bytes, ponds.unknown_bytes) == (size, 2 * size, size)
    assert (told["raw"].same_bytes, told["raw"].other_bytes) == (len(raw), 0)
    assert [row.seq for row in told.values()] == [1, 2]
    assert of(GaugeRow, rows)[-1].rack_rows_total == 2


@in_loop
async def test_merged_and_untouched_batches_count_where_their_leader_is() -> None:
    async with FakeCluster({"ponds": [0, 1, 2], "raw": [0, 1, 2]}, nodes=3) as cluster:
        cluster.racks = {0: "a", 1: "b"}
        async with running(cluster.bootstrap, client_rack="a", topics_exclude=("raw",)) as forebay:
            client = await forebay.client(0)
            merged, raw = batch(keyed("x" * 100)), batch(null_key("y" * 300))
            requests = [("ponds", 0, merged), ("ponds", 1, merged), ("ponds", 2, merged), ("ponds", 1, merged)]
            requests += [("raw", 0, raw)]
            for number, request in enumerate(requests):
                client.send(produce(number, request))
                await client.receives(number)
            old = messages(null_key("z" * 500))
            client.send(produce(7, ("raw", 0, raw), ("ponds", 0, merged)), old_produce(8, ("raw", 0, old), version=2))
            await client.receives(7, 8)
            same, other, unknown = (forebay.count("forebay_rack_bytes_total", kind) for kind in KINDS)
    assert unknown == len(merged)
    assert (same, other) == (2 * len(merged) + 2 * len(raw) + len(old), 2 * len(merged))


@in_loop
async def test_merged_batches_count_as_they_came_compressed_and_in_halves_too() -> None:
    async with FakeCluster({"ponds": [1], "lakes": [1, 1], "raw": [1]}, nodes=2) as cluster:
        cluster.racks = {0: "a", 1: "b"}
        async with running(cluster.bootstrap, client_rack="a", topics_exclude=("raw",)) as forebay:
            client = await forebay.client(1)
            packed = batch(keyed(*("x" * 100 for _ in range(100))), codec=1)
            mixed = batch([*keyed(*("x" * 100 for _ in range(50))), *null_key("y" * 100)], codec=1)
            old = messages(null_key("z" * 500))
            assert len(packed) < 1000
            client.send(produce(1, ("ponds", 0, packed)), produce(2, ("raw", 0, packed)))
            client.send(produce(3, ("lakes", 1, mixed)), old_produce(4, ("ponds", 0, old), version=2))
            await client.receives(1, 2, 3, 4)
            other = forebay.count("forebay_rack_bytes_total", "other")
            split = forebay.count("forebay_batches_in_total", "mixed")
    assert (other, split) == (2 * len(packed) + len(mixed) + len(old), 1)
