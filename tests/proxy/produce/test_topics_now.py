"""What waits, where, and since when, for as many partitions as can be told of each second."""

from __future__ import annotations

import pytest

from forebay_proxy.metrics.topics_seen import TopicNow
from forebay_proxy.produce import topics_now as module
from forebay_proxy.produce.topics_now import topics_now
from tests.kit.fakes_proxy import accumulator, append, flush, known
from tests.kit.wire import null_key


def test_leaders_queues_and_waits() -> None:
    to = accumulator()
    cluster = known(to, {"ponds": [0, 1], "lakes": [1]})
    queue = cluster.topics["ponds"].queues.queue(1)
    append(to, queue, null_key("a"))
    assert topics_now(cluster, 3.0)["ponds"] == TopicNow([0, 1], {1: queue.queued_bytes}, {})
    flush(queue, to)
    found = topics_now(cluster, 3.0)
    assert found == {
        "ponds": TopicNow([0, 1], {1: queue.queued_bytes}, {1: 3.0}),
        "lakes": TopicNow([1], {}, {}),
    }
    assert queue.queued_bytes > 0


def test_partitions_beyond_the_bound_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PARTITIONS", 3)
    cluster = known(accumulator(), {"ponds": [0, 1], "lakes": [1, 0], "seas": [0]})
    assert [now.leaders for now in topics_now(cluster, 0.0).values()] == [[0, 1], [1], []]
