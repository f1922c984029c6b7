"""A look a second, details now and then, and what is told of both."""

from __future__ import annotations

import asyncio
import json
import math

from forebay_proxy.console.collector import BROKERS_IN_STREAM, Collector, TopicView, client_key
from forebay_proxy.console.history import ALL, TOTALS
from forebay_proxy.metrics.clients_seen import MAX_CLIENTS, SOFTWARE, SeenClient
from forebay_proxy.metrics.topics_seen import SeenTopic
from tests.kit.event_loop import in_loop, until
from tests.proxy.console.seen import Seen


@in_loop
async def test_each_second_has_its_row() -> None:
    seen = Seen()
    moved = seen.source.stats.counter("forebay_records_total", fate="moved")
    for records in (10, 20, 30):
        moved.value += records
        seen.step()
    history, at = seen.collector.history, TOTALS.index("records_in")
    assert [history.row("totals", ALL, second)[at] for second in range(1_000_001, 1_000_004)] == [10, 20, 30]
    assert seen.collector.second == 1_000_003


@in_loop
async def test_a_timer_that_ends_early_makes_no_row_of_its_own() -> None:
    seen = Seen()
    moved = seen.source.stats.counter("forebay_records_total", fate="moved")
    seen.step()
    early = 2**-10
    for _ in range(4):
        moved.value += 10
        seen.step(1 - early)
        seen.step(early)
    assert seen.collector.second == 1_000_005
    columns = seen.collector.history.columns("totals", ALL, 4, 1_000_005, 4)[1]
    assert list(columns)[TOTALS.index("records_in")] == [10, 10, 10, 10]


@in_loop
async def test_a_clock_that_went_back_by_less_than_two_seconds_is_waited_for() -> None:
    seen = Seen()
    for seconds in (1, 1, -1, 1, 1):
        seen.step(seconds)
    assert seen.collector.second == 1_000_003
    assert not math.isnan(seen.collector.history.row("totals", ALL, 1_000_001)[0])


@in_loop
async def test_a_clock_that_was_set_back_is_followed() -> None:
    seen = Seen()
    seen.step()
    seen.clock.now -= 5000
    seen.step()
    assert seen.collector.second == 995_002


@in_loop
async def test_it_knows_what_has_grown_lately_from_its_first_look_on() -> None:
    seen = Seen()
    refused = seen.source.stats.counter("forebay_errors_total", side="upstream", kind="authentication")
    refused.value += 1
    seen.step()
    assert seen.collector.lately.grown(60, "forebay_errors_total", "upstream", "authentication") == 1
    for _ in range(75):
        seen.step()
    assert seen.collector.lately.grown(60, "forebay_errors_total", "upstream", "authentication") == 0


@in_loop
async def test_who_waits_is_told_of_the_next_second() -> None:
    seen = Seen()
    seen.step()
    waiting = asyncio.create_task(seen.collector.after(1_000_001))
    await asyncio.sleep(0)
    assert not waiting.done()
    seen.step()
    await waiting


@in_loop
async def test_topics_have_rates_since_the_last_look() -> None:
    seen = Seen()
    seen.source.topics = [SeenTopic("ponds", 100, 1000, 0, 0, [100, 0])]
    await seen.closely(1.0)
    seen.source.topics = [SeenTopic("ponds", 400, 3000, 50, 0, [100, 300], [], [1, 2, 1, 2], {3: 7})]
    await seen.closely(10.0)
    view = seen.collector.topics["ponds"]
    assert (view.records_rate, view.bytes_rate, view.untouched_rate) == (30, 200, 5)
    assert (view.partition_rates, view.partitions, view.skew, view.queued) == ([0, 30], 4, 4, 7)
    _, columns = seen.collector.history.columns("topic", "ponds", 10, int(seen.clock.now), 10)
    assert next(columns)[-1] == 30


def test_nothing_is_no_skew() -> None:
    view = TopicView(SeenTopic("ponds"), None, 1.0)
    assert (view.skew, view.partitions) == (0, 0)


@in_loop
async def test_clients_have_errors_since_the_last_look_and_forebay_clients_is_none() -> None:
    seen = Seen()
    client = SeenClient("till-7", "10.0.0.1", None, None, 1, 5, 2.5, requests={0 << 16 | 1: 1})
    seen.source.clients = [client, SeenClient(None, "10.0.0.9", SOFTWARE, "1")]
    await seen.closely()
    client.errors += 20  # the same object counts on where there is one process
    await seen.closely(10.0)
    (view,) = seen.collector.clients.values()
    assert (view.errors_rate, view.too_old) == (2, True)
    assert client_key(client) == '["till-7","10.0.0.1",null,null]'


@in_loop
async def test_that_more_clients_may_be_connected_than_are_known_is_told() -> None:
    seen = Seen()
    for connected, full in ((MAX_CLIENTS - 1, False), (MAX_CLIENTS, True)):
        seen.source.clients = [
            SeenClient(str(n), "10.0.0.1", None, None, int(n < connected)) for n in range(MAX_CLIENTS)
        ]
        await seen.closely()
        assert seen.collector.clients_full is full


@in_loop
async def test_a_message_has_what_there_was_in_that_second() -> None:
    seen = Seen()
    stats = seen.source.stats
    up = {1: 1.0}
    stats.gauge_of_brokers("forebay_broker_up", lambda: up)
    stats.histogram("forebay_event_loop_lag_seconds", worker="0").observe(0.01)
    seen.step()
    up.clear()
    seen.step()
    first = json.loads(seen.collector.message(1_000_001))
    assert first["second"] == 1_000_001
    assert len(first["totals"]) == len(TOTALS)
    assert first["totals"][TOTALS.index("added_p99")] is None
    assert [broker[0] for broker in first["brokers"]] == ["1"]
    assert [worker[0] for worker in first["workers"]] == ["0"]
    assert json.loads(seen.collector.message(1_000_002))["brokers"] == []


@in_loop
async def test_a_message_is_small_however_many_brokers_there_are() -> None:
    seen = Seen(1 << 28)
    numbers = dict.fromkeys(range(3 * BROKERS_IN_STREAM), 123456.789)
    for name in ("up", "queued_bytes", "in_flight_requests"):
        seen.source.stats.gauge_of_brokers(f"forebay_broker_{name}", lambda: numbers)
    for worker in range(64):
        seen.source.stats.histogram("forebay_event_loop_lag_seconds", worker=str(worker)).observe(0.01)
    seen.step()
    assert len(seen.collector.message(seen.collector.second)) < 16 * 1024


@in_loop
async def test_it_looks_by_itself_once_a_second() -> None:
    seen = Seen()
    seen.source.topics = [SeenTopic("ponds", 1)]
    loop = asyncio.get_running_loop()
    ticks = [100.0]

    def hurried() -> float:
        ticks[0] += 0.4  # each look at the clock takes that long here
        return ticks[0]

    collector = Collector(seen.source, 16 << 20, hurried, hurried)
    running = loop.create_task(collector.run())
    await until(lambda: collector.second > 0 and collector.topics)
    running.cancel()
