"""The demo: its load is the same twice, its bytes are Kafka's, its table tells what was counted."""

from __future__ import annotations

import asyncio
import io
import random
import signal
import socket
import subprocess
import sys
from array import array
from collections import Counter
from collections.abc import Iterator

import pytest
import uvloop
from kafka.record import MemoryRecords  # type: ignore[import-untyped]
from rich.console import Console

from forebay_codecs import produce_request
from forebay_codecs.errors import Malformed
from forebay_proxy.demo import mock_cluster
from forebay_proxy.demo import run as demo
from forebay_proxy.demo.forebay import ForebayFailed, running_forebay
from forebay_proxy.demo.load import LoadCounts, LoadPlan, LoadResult, arrivals, measure_capacity, run_load
from forebay_proxy.demo.reader import Stored, read_stored
from forebay_proxy.demo.report import Leg, comparison, nothing_lost_line, percentile
from forebay_proxy.demo.run import DemoOptions, run_demo
from forebay_proxy.demo.wire import CLIENT_ID, ProduceAnswers, ProduceTemplate
from tests.kit.faulty_cluster import FaultyCluster

SHORT = DemoOptions(rate=400, clients=4, warm_up=0.2, seconds=0.8, calibration=0)
PLAN = LoadPlan("ponds", partitions=3, clients=2, rate=500, warm_up=0.1, seconds=0.4)


@pytest.fixture
def cluster() -> Iterator[FaultyCluster]:
    with FaultyCluster(3) as cluster:
        cluster.create_topic(PLAN.topic, PLAN.partitions)
        for partition in range(PLAN.partitions):
            cluster.set_partition_leader(PLAN.topic, partition, partition + 1)
        yield cluster


def text_console() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=100), out


def offered_by(options: DemoOptions) -> int:
    plan = LoadPlan("", options.partitions, options.clients, options.rate, options.warm_up, options.seconds)
    return len(list(arrivals(plan, random.Random(options.seed))))


def refuses(address: str) -> None:
    host, _, port = address.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


# The load


def test_the_same_seed_gives_the_same_load() -> None:
    assert list(arrivals(PLAN, random.Random(1))) == list(arrivals(PLAN, random.Random(1)))
    assert list(arrivals(PLAN, random.Random(1))) != list(arrivals(PLAN, random.Random(2)))


def test_the_load_has_its_rate_and_spreads_evenly() -> None:
    plan = PLAN._replace(rate=1000, warm_up=0, seconds=60)
    load = list(arrivals(plan, random.Random(7)))
    # Poisson with a mean of 60,000: a standard deviation is 245. A share of a third: 0.2 % of the whole.
    assert abs(len(load) - 60_000) < 5 * 245
    partitions = Counter(arrival.partition for arrival in load)
    assert all(abs(partitions[p] / len(load) - 1 / 3) < 0.01 for p in range(3))
    assert [arrival.due for arrival in load] == sorted(arrival.due for arrival in load)


def test_every_frame_is_a_produce_request_of_one_record_without_a_key() -> None:
    template = ProduceTemplate("ponds", 300)
    for correlation_id, partition, timestamp in ((1, 0, 1_700_000_000_000), (77, 5, 1_800_000_000_123)):
        frame = template.frame(correlation_id, partition, timestamp)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        request = produce_request.parse(frame[4:])
        assert (request.version, request.correlation_id, request.client_id) == (3, correlation_id, CLIENT_ID)
        assert (request.acks, request.transactional_id) == (1, None)
        [(topic, [(index, start, end)])] = request.topics
        assert (topic, index) == ("ponds", partition)

        batch = MemoryRecords(frame[4:][start:end]).next_batch()
        assert batch.validate_crc()
        [record] = list(batch)
        assert (record.key, record.timestamp, len(record.value)) == (None, timestamp, 300)


def test_an_answer_about_anything_else_is_malformed() -> None:
    answers = ProduceAnswers("ponds")
    with pytest.raises(Malformed):
        answers.read(bytes(answers.size), 0)


def test_what_is_acknowledged_is_in_the_partitions(cluster: FaultyCluster) -> None:
    async def run() -> tuple[LoadResult, Stored]:
        result = await run_load(cluster.bootstrap, PLAN, random.Random(3), LoadCounts())
        return result, await read_stored(cluster.bootstrap, PLAN.topic)

    result, stored = uvloop.run(run())
    offered = list(arrivals(PLAN, random.Random(3)))
    assert (result.acknowledged, result.failed) == (len(offered), 0)
    assert len(result.latencies) == sum(arrival.due >= PLAN.warm_up for arrival in offered)
    assert stored.records == Counter(arrival.partition for arrival in offered)
    assert (stored.batches, stored.records_in_batches) == (len(offered), len(offered))


def test_records_for_a_broker_that_goes_down_have_failed(cluster: FaultyCluster) -> None:
    counts = LoadCounts()

    async def run() -> LoadResult:
        load = asyncio.create_task(run_load(cluster.bootstrap, PLAN, random.Random(3), counts))
        while counts.acknowledged < 20:  # noqa: ASYNC110 - counts tell nobody; each turn lets the load go on
            await asyncio.sleep(0)
        await asyncio.to_thread(cluster.broker_down, 2)
        return await load

    result = uvloop.run(run())
    assert result.failed > 0
    assert result.acknowledged + result.failed == len(list(arrivals(PLAN, random.Random(3))))


def test_the_capacity_is_what_is_acknowledged_while_nobody_pauses(cluster: FaultyCluster) -> None:
    """With 20 ms for each answer, 2 clients on 3 connections get at most 300/s; 6 are there anyhow."""
    for broker in (1, 2, 3):
        cluster.set_broker_rtt(broker, 20)
    capacity = uvloop.run(measure_capacity(cluster.bootstrap, PLAN))
    assert 0 < capacity <= 320  # those that were in flight when measuring began count too


@pytest.mark.parametrize(
    ("capacity", "clients"), [(50_000, 24), (10_000, 24), (5_000, 12), (2_600, 6), (100, 3), (0, 3)]
)
def test_a_machine_that_bears_less_gets_fewer_clients_that_are_as_fast(capacity: float, clients: int) -> None:
    options = DemoOptions()
    fitting = options.fitting(capacity)
    assert fitting.clients == clients
    assert fitting.rate / fitting.clients == pytest.approx(options.rate / options.clients)


# The report


def leg(name: str, acknowledged: int = 100, failed: int = 0, requests: int = 25) -> Leg:
    latencies = array("d", [number / 1000 for number in range(1, 101)])
    stored = Stored({0: 10, 1: 30, 2: 60}, batches=20, records_in_batches=100)
    return Leg(name, LoadResult(acknowledged, failed, 1234.4, latencies, 0.1, 0.001), requests, stored)


def test_a_percentile_is_a_value_that_occurred() -> None:
    thousand = [float(number) for number in range(1, 1001)]
    assert (percentile(thousand, 99), percentile(thousand, 50), percentile([3.0], 99)) == (990.0, 500.0, 3.0)


def test_the_table_has_all_ways_side_by_side() -> None:
    console, out = text_console()
    console.print(comparison([leg("directly", requests=100), leg("Forebay, sticky")], 3, frozenset({0, 1})))
    rows: dict[str, list[str]] = {}
    for line in out.getvalue().splitlines():
        cells = [cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")]
        if len(cells) == 3:
            rows.setdefault(cells[0], []).extend(cells[1:])
    assert rows[""] == ["", "Forebay,", "directly", "sticky"]
    assert rows["records/s acknowledged"] == ["1,234", "1,234"]
    assert rows["average latency"] == ["50.5 ms", "50.5 ms"]
    assert rows["p99 latency"] == ["99.0 ms", "99.0 ms"]
    assert rows["Produce requests the brokers saw"] == ["100", "25"]
    assert rows["records a request"] == ["1.0", "4.0"]
    assert rows["records a batch"] == ["5.0", "5.0"]
    assert rows["share of partition 0 (slow broker)"] == ["10.0%", "10.0%"]
    assert rows["share of partition 2"] == ["60.0%", "60.0%"]
    assert rows["slow broker together"] == ["40.0%", "40.0%"]


@pytest.mark.parametrize(
    ("acknowledged", "failed", "fine"), [(100, 0, True), (101, 0, False), (99, 0, False), (100, 1, False)]
)
def test_a_difference_is_named(acknowledged: int, failed: int, fine: bool) -> None:
    checked = leg("directly", acknowledged, failed)
    assert checked.nothing_lost is fine
    assert ("NOT THE SAME" in nothing_lost_line(checked)) is not fine


# The whole


def test_a_short_demo_directly() -> None:
    console, out = text_console()
    assert run_demo(SHORT._replace(partitioners=()), console) == 0
    offered = offered_by(SHORT)
    assert f"directly: {offered} acknowledged, {offered} in the partitions: nothing lost" in out.getvalue()
    assert f"{offered} │" in out.getvalue()


def test_without_the_wheel_one_line_and_exit_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> None:
        raise mock_cluster.MockClusterUnavailable(mock_cluster.MISSING)

    monkeypatch.setattr(mock_cluster, "_load", unavailable)
    console, out = text_console()
    assert run_demo(SHORT, console) == 1
    assert out.getvalue() == f"{mock_cluster.MISSING}\n"


def test_a_forebay_that_does_not_start_is_reported_in_its_own_words() -> None:
    async def run() -> None:
        async with running_forebay("127.0.0.1:1", ["--no-such-option"]):
            pass

    with pytest.raises(ForebayFailed, match=r"(?s)ended with [1-9].*\w"):
        uvloop.run(run())


def test_options_stay_within_what_the_issue_promises() -> None:
    """Three legs within half a minute, whatever starts and stops between them."""
    options = DemoOptions()
    assert options.calibration + 3 * (options.warm_up + options.seconds) <= 30
    assert {demo.leader(p) for p in range(options.partitions)} == {1, 2, 3}


@pytest.mark.parametrize(("number", "shown"), [(signal.SIGINT, "directly: "), (signal.SIGTERM, "Forebay, adaptive: ")])
def test_a_signal_ends_it_cleanly(number: signal.Signals, shown: str) -> None:
    seconds = 60 if shown == "directly: " else 2.5
    program = (
        "import sys; from forebay_proxy.demo.run import *;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"  # a shell's background jobs begin without it
        f"sys.exit(run_demo(DemoOptions(rate=100, clients=2, warm_up=0, seconds={seconds}, calibration=0)))"
    )
    listening = "Forebay listens on "
    address = ""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            while not (line := process.stdout.readline()).startswith(shown):
                assert line
                if line.startswith(listening):
                    address = line.removeprefix(listening).strip()
            process.send_signal(number)
            rest = process.stdout.read().splitlines()
            assert process.wait() == 128 + number
        finally:
            process.kill()
    # Where the signal was late, the next Forebay may have begun.
    later = [line.removeprefix(listening) for line in rest if line.startswith(listening)]
    assert [line for line in rest if not line.startswith((listening, "Forebay, "))] == ["stopped"]
    for each in filter(None, [address, *later]):
        refuses(each)


def test_a_short_demo_through_forebay() -> None:
    console, out = text_console()
    options = SHORT._replace(rate=1500, clients=20, seconds=2.0)
    assert run_demo(options, console) == 0
    shown = out.getvalue()
    assert shown.count("nothing lost, the counts agree") == 3
    assert shown.count("Forebay listens on") == 2
    requests = next(line for line in shown.splitlines() if "Produce requests" in line)
    directly, *through = [int(cell.replace(",", "")) for cell in requests.strip("│").split("│")[1:]]
    assert directly == offered_by(options)
    assert len(through) == 2
    assert all(0 < requests <= directly for requests in through)


@pytest.mark.whole  # the short demo and the capacity have tests of their own
def test_what_the_machine_bears_is_measured_and_said() -> None:
    console, out = text_console()
    assert run_demo(SHORT._replace(calibration=0.3, partitioners=("uniform",)), console) == 0
    [borne] = [line for line in out.getvalue().splitlines() if line.startswith("As fast as it goes, ")]
    assert int(borne.split()[5].replace(",", "")) > 0
    assert out.getvalue().count("nothing lost, the counts agree") == 2


def test_forebay_is_gone_when_its_block_is_left(cluster: FaultyCluster) -> None:
    async def run() -> str:
        async with running_forebay(cluster.bootstrap) as bootstrap:
            host, _, port = bootstrap.rpartition(":")
            with socket.create_connection((host, int(port))):
                return bootstrap

    refuses(uvloop.run(run()))
