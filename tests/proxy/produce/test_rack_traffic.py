"""Each batch that a client sends counts once, where its leader is."""

from __future__ import annotations

from tests.kit.app import running
from tests.kit.event_loop import in_loop
from tests.kit.fake_broker import FakeCluster
from tests.kit.wire import batch, keyed, null_key, produce

KINDS = ("same", "other", "unknown")


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
            same, other, unknown = (forebay.count("forebay_rack_bytes_total", kind) for kind in KINDS)
    assert 100 < unknown < len(merged)  # its records, without a header
    assert (same, other) == (unknown + len(raw), 2 * unknown)
